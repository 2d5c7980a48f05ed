"""Every verb, transport, metric and direction moves data between two devices of a card; counts are exact."""

import contextlib
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from perftest_kit import SharedBench, bench

VERBS = {
    "RC": ["write", "read", "send", "write_imm", "send_imm", "atomic_fa", "atomic_cs"],
    "UC": ["write", "send", "write_imm", "send_imm"],
    "UD": ["send", "send_imm"],
}
RECEIVED = {"send", "send_imm", "write_imm"}
ITERATIONS = 300


class Bandwidth(SharedBench):
    def check(self, transport, verb, *words):
        size = [] if verb.startswith("atomic") else ["-s", 512]
        run = self.run_client("-c", transport, "-v", verb, *size, "-i", ITERATIONS, "-w", 0, "-q", 2, *words)
        connection = run.connection()
        self.assertEqual(connection["bwResults"]["iterations"], 2 * ITERATIONS)
        self.assertGreater(connection["bwResults"]["bwGbSec"], 0)
        roles = {each["role"]: each for each in connection["resultsPerProcess"]}
        self.assertEqual(roles["requestor"]["iterationsPosted"], 2 * ITERATIONS)
        received = roles["responder"]["messagesReceived"]
        if verb not in RECEIVED:
            self.assertEqual(received, 0)
        elif transport == "RC":
            self.assertEqual(received, 2 * ITERATIONS)
        else:
            self.assertLessEqual(received, 2 * ITERATIONS)
            self.assertGreater(received, 0)


class Latency(SharedBench):
    def check(self, transport, verb, *words, definition="half_round_trip"):
        size = [] if verb.startswith("atomic") else ["-s", 64]
        run = self.run_client("-m", "lat", "-c", transport, "-v", verb, *size, "-i", 200, "-w", 0.05, *words)
        results = run.connection()["latResults"]
        self.assertEqual(results["latencyDefinition"], definition)
        self.assertEqual(results["samples"] + results.get("lost", 0), 200)
        numbers = [results[name] for name in ("minUsec", "medianUsec", "p99Usec", "p999Usec", "maxUsec")]
        self.assertEqual(numbers, sorted(numbers))
        self.assertLessEqual(results["minUsec"], results["meanUsec"])
        self.assertLessEqual(results["meanUsec"], results["maxUsec"])

    def test_one_way_sends_are_timed_to_their_local_completion(self):
        self.check("RC", "send", "--lat_mode", "one_way", definition="local_completion")

    def test_one_way_writes_are_timed_to_their_local_completion(self):
        self.check("RC", "write", "--lat_mode", "one_way", definition="local_completion")

    def test_time_mode_has_every_statistic(self):
        results = self.run_client("-m", "lat", "-v", "send", "-s", 8, "-D", 0.3, "-w", 0.1).connection()["latResults"]
        self.assertGreater(results["samples"], 10)
        self.assertIsNotNone(results["p999Usec"])
        self.assertIsNotNone(results["stdevUsec"])

    def test_several_processes_merge_their_samples(self):
        run = self.run_client("-m", "lat", "-v", "send", "-s", 8, "-N", 2, "-i", 100, "-w", 0.1)
        self.assertEqual(run.connection()["latResults"]["samples"], 200)

    def test_a_mix_is_timed_as_one(self):
        run = self.run_client("-m", "lat", "--operations", "write:4k,send:64,atomic_fa:8", "-i", 50, "-w", 0.1)
        self.assertEqual(run.connection()["latResults"]["latencyDefinition"], "completion_time")


def add_cases():
    for transport, verbs in VERBS.items():
        for verb in verbs:
            def bandwidth(self, transport=transport, verb=verb):
                self.check(transport, verb)

            def latency(self, transport=transport, verb=verb):
                reads = verb == "read" or verb.startswith("atomic")
                self.check(transport, verb, definition="completion_time" if reads else "half_round_trip")

            setattr(Bandwidth, f"test_bw_{verb}_{transport.lower()}", bandwidth)
            setattr(Latency, f"test_lat_{verb}_{transport.lower()}", latency)


add_cases()


class Directions(SharedBench):
    def check(self, *words, expected):
        run = self.run_client("-b", "-i", 200, "-w", 0, *words)
        report = run.report
        self.assertEqual(len(report["connections"]), 2)
        for connection in report["connections"]:
            self.assertEqual(connection["bwResults"]["iterations"], expected)
        there, back = (each["bwResults"]["bwGbSec"] for each in report["connections"])
        pair = report["aggregatedResults"]["bidirConnections"][0]
        self.assertAlmostEqual(pair["bwGbSec"], there + back, places=9)
        self.assertEqual(report["connections"][1]["source"]["deviceName"], harness.SERVER_DEVICE)

    def test_writes_go_both_ways(self):
        self.check("-v", "write", "-s", 4096, expected=200)

    def test_sends_go_both_ways_over_the_same_queue_pairs(self):
        self.check("-v", "send", "-s", 1024, "-q", 2, expected=400)

    def test_atomics_go_both_ways(self):
        self.check("-v", "atomic_fa", expected=200)

    def test_both_ways_by_time(self):
        report = self.run_client("-b", "-v", "send", "-s", 1024, "-D", 0.3, "-w", 0.1).report
        for connection in report["connections"]:
            self.assertAlmostEqual(connection["bwResults"]["durationSec"], 0.3, delta=0.2)
            self.assertGreater(connection["bwResults"]["iterations"], 0)


class Sizes(SharedBench):
    """From nothing to 8 MiB."""

    def check(self, verb, size):
        iterations = 40 if size > 100_000 else 200
        run = self.run_client("-v", verb, "-s", size, "-i", iterations, "-w", 0)
        self.assertEqual(run.connection()["bwResults"]["iterations"], iterations)
        sizes = run.connection()["testConfig"]["resourceConfig"]["operations"]
        self.assertEqual(sizes, [{"verb": verb, "msgSize": size}])

    def test_sizes_of_writes(self):
        for size in (0, 1, 4095, 4097, 8 << 20):
            with self.subTest(size=size):
                self.check("write", size)

    def test_sizes_of_reads(self):
        for size in (0, 1, 4097, 8 << 20):
            with self.subTest(size=size):
                self.check("read", size)

    def test_sizes_of_sends(self):
        for size in (0, 1, 4097, 8 << 20):
            with self.subTest(size=size):
                self.check("send", size)


@contextlib.contextmanager
def huge_pages(count):
    """`count` huge pages of 2 MiB more than there were; skips where the machine gives none."""
    path = "/proc/sys/vm/nr_hugepages"
    with open(path) as file:
        before = int(file.read())
    try:
        with open(path, "w") as file:
            file.write(str(before + count))
        with open(path) as file:
            if int(file.read()) < before + count:
                raise unittest.SkipTest("the machine has no memory in whole huge pages left")
        yield
    except PermissionError:
        raise unittest.SkipTest("only root can set huge pages aside")
    finally:
        with contextlib.suppress(PermissionError), open(path, "w") as file:
            file.write(str(before))


class MemoryTypes(SharedBench):
    def check(self, *words, kind):
        connection = self.run_client("-i", 100, "-w", 0, *words).connection()
        self.assertEqual(connection["testConfig"]["resourceConfig"]["memoryType"], kind)
        results = connection.get("bwResults") or connection["latencyResults"]
        self.assertEqual(results["iterations"], 100)
        return connection

    def test_memory_of_the_device_at_the_client(self):
        for words in (["-v", "write", "-s", 4096], ["-v", "send", "-s", 65536], ["-v", "read", "-s", 8]):
            self.check("-M", "device", *words, kind="device")

    def test_memory_of_the_device_at_the_server(self):
        self.check("--server_mem_type", "device", "-v", "read", "-s", 4096, kind="host")

    def test_null_memory_takes_everything_and_gives_zeros(self):
        for words in (["-v", "write", "-s", 65536], ["-v", "read", "-s", 4096]):
            self.check("-M", "nullmr", *words, kind="nullmr")
        self.check("--server_mem_type", "nullmr", "-v", "write", "-s", 4096, kind="host")

    def test_more_memory_than_the_device_has_is_refused(self):
        run = self.run_client("-M", "device", "-s", "512M", "-q", 4, "-i", 5, "-w", 0, expect=1)
        self.assertIn("memory type device: the adapter gives no", run.program.stderr)

    def test_buffers_of_huge_pages_where_the_machine_has_some(self):
        with huge_pages(16):
            connection = self.check("-s", "4M", kind="host")
            self.assertTrue(connection["source"]["processes"][0]["hugePages"])
        connection = self.check("-s", "4M", kind="host")
        self.assertFalse(connection["source"]["processes"][0]["hugePages"])


class Queues(SharedBench):
    def test_a_mix_of_operations_counts_groups(self):
        run = self.run_client("--operations", "write:65536,send:4096,atomic_fa:8", "-i", 100, "-w", 0)
        connection = run.connection()
        results = connection["bwResults"]
        self.assertEqual(results["iterations"], 100)
        bits = 8 * 100 * (65536 + 4096 + 8)
        self.assertAlmostEqual(results["bwGbSec"], bits / results["durationSec"] / 1e9, places=6)
        self.assertAlmostEqual(results["msgRateMpps"], 300 / results["durationSec"] / 1e6, places=9)
        responder = connection["resultsPerProcess"][1]
        self.assertEqual(responder["messagesReceived"], 100)

    def test_iterations_that_fill_no_list_are_exact(self):
        for iterations in (1, 7, 33, 1001):
            with self.subTest(iterations=iterations):
                run = self.run_client("-v", "send", "-s", 8, "-i", iterations, "-w", 0, "--post_list", 8, "--cq_mod", 16,
                                      "-q", 3)
                self.assertEqual(run.connection()["bwResults"]["iterations"], 3 * iterations)
                self.assertEqual(run.connection()["resultsPerProcess"][1]["messagesReceived"], 3 * iterations)

    def test_the_smallest_queues_work(self):
        run = self.run_client("-v", "send", "-s", 8, "-i", 50, "-w", 0, "--tx_depth", 1, "--rx_depth", 1)
        self.assertEqual(run.connection()["bwResults"]["iterations"], 50)

    def test_the_given_psn_is_the_one_reported(self):
        run = self.run_client("-i", 10, "-w", 0, "-q", 2, "--start_psn", 16777215)
        for end in ("source", "destination"):
            self.assertEqual(run.connection()[end]["processes"][0]["psns"], [16777215, 16777215])

    def test_random_psns_differ(self):
        run = self.run_client("-i", 10, "-w", 0, "-q", 8)
        self.assertGreater(len(set(run.connection()["source"]["processes"][0]["psns"])), 1)

    def test_the_rate_limit_holds(self):
        run = self.run_client("-s", 65536, "--rate_limit", 0.2, "-D", 1, "-w", 0.3)
        self.assertAlmostEqual(run.connection()["bwResults"]["bwGbSec"], 0.2, delta=0.03)

    def test_the_histogram_has_every_queue_pair_of_every_process(self):
        run = self.run_client("-s", 1024, "-q", 4, "-N", 2, "-H", "-D", 0.3, "-w", 0.1, "--end_margin", 0)
        for process in run.connection()["resultsPerProcess"][:2]:
            rows = process["qpHistogram"]
            self.assertEqual([row["qpIndex"] for row in rows], [0, 1, 2, 3])
            self.assertAlmostEqual(sum(row["bwGbSec"] for row in rows), process["bwResults"]["bwGbSec"], places=6)
            self.assertAlmostEqual(sum(row["relativeDeviation"] for row in rows), 0, places=6)

    def test_inline_data_is_clipped_to_the_device_and_said(self):
        run = self.run_client("-v", "send", "-s", 8, "-i", 20, "-w", 0, "--inline_size", 65536, json_output=False)
        self.assertIn("--inline_size 65536: mlx5_3 takes", run.program.stdout)


class Ece(SharedBench):
    def test_both_sides_settle_on_the_same_options(self):
        run = self.run_client("--use_ece", "-q", 2, "-i", 50, "-w", 0)
        for end in ("source", "destination"):
            settled = run.connection()[end]["processes"][0]["ece"]
            self.assertEqual(settled, [{"vendorId": 0x02726C, "options": 1, "compMask": 0}] * 2)

    def test_the_settled_options_are_shown(self):
        run = self.run_client("--use_ece", "-i", 50, "-w", 0, json_output=False)
        self.assertIn("ECE: vendor 0x2726c, options 0x1", run.program.stdout)


class Window(SharedBench):
    def test_iterations_over_the_window_are_the_rate(self):
        results = self.run_client("-s", 4096, "-D", 0.5, "-w", 0.2).connection()["bwResults"]
        self.assertAlmostEqual(results["durationSec"], 0.5, delta=0.2)
        self.assertAlmostEqual(results["iterations"] / results["durationSec"] / 1e6, results["msgRateMpps"], places=9)
        self.assertAlmostEqual(results["msgRateMpps"] * 4096 * 8 / 1e3, results["bwGbSec"], places=6)

    def test_warm_up_and_margin_are_not_counted(self):
        run = self.run_client("-s", 1024, "-i", 100, "--warmup_iterations", 50)
        requester = run.connection()["resultsPerProcess"][0]
        self.assertEqual(requester["bwResults"]["iterations"], 100)
        self.assertEqual(requester["iterationsPosted"], 150)

    def test_an_end_margin_goes_on_after_the_window(self):
        run = self.run_client("-s", 1024, "-D", 0.3, "-w", 0, "--end_margin", 0.5)
        requester = run.connection()["resultsPerProcess"][0]
        self.assertAlmostEqual(requester["bwResults"]["durationSec"], 0.3, delta=0.2)
        self.assertGreater(requester["iterationsPosted"], requester["bwResults"]["iterations"])

    def test_processes_start_together(self):
        run = self.run_client("-s", 1024, "-N", 4, "-D", 0.2, "-w", 0.1, "--end_margin", 0)
        starts = [each["startTimeNs"] for each in run.connection()["resultsPerProcess"] if each["role"] == "requestor"]
        self.assertEqual(len(starts), 4)
        # Within 1 ms where every process has a core; here four share two with the card.
        self.assertLess(max(starts) - min(starts), 50e6)


class Thresholds(SharedBench):
    def test_a_missed_bandwidth_is_exit_2(self):
        run = self.run_client("-i", 50, "-w", 0, "--bw_threshold", 99999, expect=2)
        self.assertEqual(run.connection()["threshold"], {"type": "bw", "value": 99999, "passed": False})
        self.assertEqual(run.report["status"], "fail")

    def test_a_kept_bandwidth_is_exit_0(self):
        run = self.run_client("-i", 50, "-w", 0, "--bw_threshold", "0.000001")
        self.assertTrue(run.connection()["threshold"]["passed"])

    def test_a_missed_latency_is_exit_2(self):
        self.run_client("-m", "lat", "-v", "send", "-s", 8, "-i", 50, "-w", 0, "--lat_threshold", 0.001, expect=2)

    def test_a_kept_latency_is_exit_0(self):
        self.run_client("-m", "lat", "-v", "send", "-s", 8, "-i", 50, "-w", 0, "--lat_threshold", 1e6 // 1)


class Validation(SharedBench):
    WORDS = ["-v", "send", "--validate", "-w", 0, "-s", 3000, "-i", 500, "-q", 2]

    def test_right_content_is_found_right(self):
        run = self.run_client(*self.WORDS)
        self.assertEqual(run.connection()["validationResults"], {"invalidDataSampleCount": 0})

    def test_both_directions_are_checked(self):
        run = self.run_client(*self.WORDS, "-b")
        for index in range(2):
            self.assertEqual(run.connection(index)["validationResults"], {"invalidDataSampleCount": 0})

    def test_damaged_messages_are_counted_and_exit_3(self):
        run = self.run_client(*self.WORDS, expect=3, env={"RDMA_PERFTEST_CORRUPT_EVERY": "100"})
        self.assertEqual(run.connection()["validationResults"], {"invalidDataSampleCount": 10})
        self.assertIn("invalid message: queue pair 1, message 99: byte 99: expected", self.bench.server.stderr)


class CorruptLink(unittest.TestCase):
    def test_a_cable_that_flips_bits_unseen_is_found_out(self):
        with bench() as made:
            # Receivers do not check the CRC: what was flipped arrives. Large packets: nearly all flips are in payload.
            made.card.link("--corrupt", "2%", "--verify-icrc", "false", "--direction", "b-to-a")
            run = made.client("-v", "send", "--validate", "-w", 0, "-s", 4000, "-i", 400, expect=3)
            found = run.connection()["validationResults"]["invalidDataSampleCount"]
            self.assertGreater(found, 0)
            self.assertLess(found, 100)


if __name__ == "__main__":
    harness.main()
