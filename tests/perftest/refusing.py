"""What is refused: wrong values, contradictions, parts that are absent. Exit 1, one line that names flag, value and rule."""

import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from perftest_kit import PROGRAM, SharedBench, bench

BAD_VALUES = [
    ("--msg_size", ["", "-1", "1e3", "0x10", "64q", "3G", "99999999999"]),
    ("--duration", ["", "-1", "1e3", "0x10", "0", "99999999999"]),
    ("--iterations", ["", "-1", "1e3", "0x10", "0", "1k"]),
    ("--qps", ["", "-1", "1e3", "0x10", "0", "99999999999"]),
    ("--gid_index", ["", "-1", "256", "300", "0x1"]),
    ("--port", ["", "-5", "0", "70000", "x"]),
    ("--qp_timeout", ["", "-1", "32", "300"]),
    ("--service_level", ["-1", "16", "256"]),
    ("--traffic_class", ["-1", "256", "300"]),
    ("--mtu", ["1500", "0"]),
    ("--start_psn", ["-1", "16777216"]),
    ("--connection_type", ["XRC", ""]),
    ("--verb", ["fly", ""]),
    ("--metric", ["speed"]),
    ("--cores", ["0-", "5,5", "9-5", "a"]),
    ("--operations", ["write", "write:8,", ""]),
    ("--mem_type", ["gpu"]),
    ("--launch_server", ["maybe", "exec:"]),
]


def run(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)


class CommandLine(unittest.TestCase):
    """Without any device: the command line is judged first."""

    def refused(self, *words):
        done = run(*words)
        self.assertEqual(done.returncode, 1, (words, done.stdout, done.stderr))
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_bad_values_name_flag_and_value(self):
        count = 0
        for flag, values in BAD_VALUES:
            for value in values:
                with self.subTest(flag=flag, value=value):
                    words = [flag, value] + (["-n", "nowhere"] if flag == "--launch_server" else [])
                    said = self.refused(*words)
                    self.assertIn(flag, said)
                    self.assertIn(f"'{value}'", said)
                count += 1
        self.assertGreaterEqual(count, 60)

    def test_repeated_and_unknown_flags(self):
        self.assertIn("--msg_size: expected once, found 2 times (8, 16)", self.refused("-s", 8, "-s", 16))
        self.assertIn("did you mean '--msg_size'", self.refused("--msgsize", 8))
        self.assertIn("unknown argument", self.refused("host"))
        self.assertIn("'--traffic_pattern'", self.refused("--trafic_pattern", "a2a"))

    def test_conflicts_name_both_sides_and_the_rule(self):
        for words, said in [
            (["-b", "-v", "read"], "--bidirectional with read"),
            (["-D", 5, "-i", 5], "--duration with --iterations"),
            (["-m", "lat", "-R", 1], "--report_interval with -m lat"),
            (["-v", "send", "--validate"], "--validate with warm-up"),
            (["--tph_core_id", 0], "give both or neither"),
            (["-C", "1,2", "-N", 3], "2 cores for 3 processes"),
        ]:
            with self.subTest(words=words):
                self.assertIn(said, self.refused(*words))

    def test_absent_parts_are_named(self):
        self.assertIn("CUDA driver", self.refused("-M", "cuda"))
        self.assertIn("libcuda", self.refused("-M", "cuda_peermem", "--cuda_lib_path", "/nowhere"))
        self.assertIn("DOCA verbs", self.refused("-r", "dv"))
        self.assertIn("DOCA verbs", self.refused("-r", "dv", "-M", "cuda", "--engine", "gpunetio"))
        self.assertIn("TPH", self.refused("--ph", 1))
        self.assertIn("cannot read /nowhere", self.refused("-r", "dv", "--cc_group_hints", "/nowhere,8,1,1"))

    def test_without_devices_the_way_without_hardware_is_named(self):
        if os.path.exists("/sys/class/infiniband"):
            self.skipTest("this machine has RDMA devices")
        said = self.refused("-n", "localhost")
        self.assertIn("no RDMA device", said)
        self.assertIn("rdmalab run -- rdma_perftest", said)

    def test_help_topics_version_and_completion_go_to_stdout(self):
        for words in (["--help"], ["-h"], ["--help", "memory"], ["-V"], ["--completion", "bash"]):
            done = run(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""), words)
            self.assertTrue(done.stdout)

    def test_every_flag_is_in_the_manual(self):
        path = os.path.join(harness.SOURCE, "man", "rdma_perftest.1")
        with open(path) as file:
            page = file.read().replace("Fl -", "--")
        for flag in set(re.findall(r"--\w+", run("--help").stdout)):
            self.assertIn(flag, page)
        done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", path], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_link_answers_by_its_own_name(self):
        link = os.path.join(harness.BUILD, "bin", "doca_perftest")
        done = subprocess.run([link, "--version"], capture_output=True, text=True, timeout=20)
        self.assertTrue(done.stdout.startswith("doca_perftest "))


class OnACard(SharedBench):
    def test_unknown_devices_are_refused_with_those_that_are_there(self):
        with harness.Card() as card:
            program = card.run(PROGRAM, "-n", "127.0.0.1", "-d", "mlx5_77", expect=1)
            self.assertIn("--device mlx5_77: no such RDMA device; there are: mlx5_0", program.stderr)

    def test_an_unreachable_server_is_named(self):
        with harness.reserved_port() as port:
            program = self.bench.card.run(PROGRAM, "-n", "127.0.0.1", "--port", port, "--launch_server", "disable",
                                          "-d", harness.CLIENT_DEVICE, expect=1)
        self.assertIn(f"cannot reach control port {port} of '127.0.0.1'", program.stderr)

    def test_an_unknown_host_is_named(self):
        program = self.bench.card.run(PROGRAM, "-n", "no.such.host.invalid", "-d", harness.CLIENT_DEVICE, expect=1)
        self.assertIn("cannot find host 'no.such.host.invalid'", program.stderr)

    def test_mismatched_gids_are_refused_before_traffic(self):
        with bench("-g", "0") as made:
            run_ = made.client("-g", 1, "-i", 10, expect=1)
            self.assertIn("GIDs do not match", run_.program.stderr)
            self.assertIn("link-local", run_.program.stderr)

    def test_a_gid_index_that_is_not_there(self):
        run_ = self.run_client("-g", 200, "-i", 10, expect=1)
        self.assertIn("--gid_index 200", run_.program.stderr)
        self.assertEqual(run_.report["status"], "error")

    def test_the_family_of_the_gid_can_be_chosen(self):
        run_ = self.run_client("--gid_family", "ipv6", "-i", 10, "-w", 0)
        for end in ("source", "destination"):
            self.assertEqual(run_.connection()[end]["gid"]["family"], "ipv6")

    def test_the_automatic_gid_is_routable_roce_v2(self):
        gid = self.run_client("-i", 10, "-w", 0).connection()["source"]["gid"]
        self.assertEqual((gid["type"], gid["family"], gid["linkLocal"]), ("RoCE v2", "ipv4", False))

    def test_flags_of_a_server_that_contradict_are_refused_by_name(self):
        with bench("-s", "4096") as made:
            run_ = made.client("-i", 10, "-w", 0, expect=1)
            self.assertIn("started with --msg_size 4096, the client asks for 65536", run_.program.stderr)
            made.client("-i", 10, "-w", 0, "-s", "4k")

    def test_ud_above_the_mtu(self):
        run_ = self.run_client("-c", "UD", "-v", "send", "-s", 4096, "--mtu", 1024, expect=1)
        self.assertIn("MTU", run_.program.stderr)

    def test_a_busy_control_port_is_explained(self):
        program = self.bench.card.run(PROGRAM, "--port", self.bench.port, expect=1)
        self.assertIn(f"cannot listen on control port {self.bench.port}: another program uses it", program.stderr)

    def test_queues_beyond_the_device(self):
        run_ = self.run_client("-q", 16384, "--tx_depth", 65536, "-v", "send", "--rx_depth", 65536, expect=1)
        self.assertIn("--rx_depth 65536", run_.program.stderr)

    def test_nothing_of_a_refused_test_stays_in_the_card(self):
        self.run_client("-g", 200, "-i", 10, expect=1)
        self.bench.card.wait_idle()


if __name__ == "__main__":
    harness.main()
