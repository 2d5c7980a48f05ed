"""Scenarios over many hosts, all of them played by this machine: every pattern and direction moves data between the
devices of a card, several tests run at once, and the report has every level."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from page import as_shown, page_of, texts
from perftest_kit import check_schema
from scenario_kit import DEVICES, QUICK, Scenarios, nodes

THREE = nodes(("a", "mlx5_2"), ("b", "mlx5_3"), ("c", "mlx5_4"))
FOUR = THREE + nodes(("d", "mlx5_2"))
TIMES = {"duration": 0.3, "warmupTime": 0.1, "endMargin": 0.1}


class Patterns(Scenarios):
    def scenario(self, pattern, hosts=FOUR, **fields):
        return {"testNodes": hosts, "trafficPattern": pattern, **TIMES, **fields}

    def moved(self, count, pattern, **fields):
        run = self.json_scenario(self.scenario(pattern, **fields))
        self.assert_all_moved(run, count)
        return run

    def test_one_to_one(self):
        run = self.moved(1, "ONE_TO_ONE", hosts=THREE[:2])
        self.assertEqual(run.pairs, [("a:mlx5_2", "b:mlx5_3")])

    def test_one_to_many(self):
        run = self.moved(3, "ONE_TO_MANY")
        self.assertEqual({source for source, _ in run.pairs}, {"a:mlx5_2"})

    def test_many_to_one(self):
        run = self.moved(3, "MANY_TO_ONE", verb="send")
        self.assertEqual({destination for _, destination in run.pairs}, {"a:mlx5_2"})

    def test_all_to_all(self):
        run = self.moved(12, "ALL_TO_ALL")
        self.assertEqual(len(set(run.pairs)), 12)

    def test_bisection(self):
        run = self.moved(2, "BISECTION", msgSize=4096)
        self.assertEqual(run.pairs, [("a:mlx5_2", "c:mlx5_4"), ("b:mlx5_3", "d:mlx5_2")])

    def test_ring(self):
        run = self.moved(4, "RING", verb="read")
        self.assertEqual(run.pairs[-1], ("d:mlx5_2", "a:mlx5_2"))

    def test_both_ways_over_one_connection(self):
        run = self.moved(6, "ALL_TO_ALL", hosts=THREE, trafficDirection="BIDIR", verb="send")
        pairs = run.report["aggregatedResults"]["bidirConnections"]
        self.assertEqual(len(pairs), 3)
        connections = run.report["connections"]
        for pair in pairs:
            there, back = (connections[i] for i in pair["connectionIds"])
            self.assertEqual((there["source"]["hostName"], there["destination"]["hostName"]),
                             (back["destination"]["hostName"], back["source"]["hostName"]))
            both = there["bwResults"]["bwGbSec"] + back["bwResults"]["bwGbSec"]
            self.assertAlmostEqual(pair["bwGbSec"], both, places=6)

    def test_two_ways_over_two_connections(self):
        run = self.moved(4, "BISECTION", trafficDirection="DUAL_UNIDIR")
        self.assertEqual(run.pairs[0], tuple(reversed(run.pairs[1])))

    def test_railed(self):
        hosts = nodes(("a", "mlx5_2"), ("a", "mlx5_3"), ("b", "mlx5_2"), ("b", "mlx5_3"))
        run = self.moved(4, "ALL_TO_ALL", hosts=hosts, trafficPartition="RAILED")
        for source, destination in run.pairs:
            self.assertEqual(source.split(":")[1], destination.split(":")[1])

    def test_listed_connections(self):
        scenario = {"connections": [{"source": THREE[0], "destination": THREE[1]},
                                    {"source": THREE[2], "destination": THREE[1]}], **TIMES}
        run = self.json_scenario(scenario)
        self.assert_all_moved(run, 2)

    def test_flags_do_the_same_as_json(self):
        run = self.run_scenario("-n", "a,b", "-d", "mlx5_[2,3]", "--traffic_pattern", "a2a", "--traffic_partition",
                                "railed", *QUICK)
        self.assert_all_moved(run, 4)


class Kinds(Scenarios):
    def test_counts_are_exact_in_every_process(self):
        run = self.json_scenario({"testNodes": THREE, "trafficPattern": "RING", "verb": "send", "msgSize": 512,
                                  "iterations": 300, "warmupTime": 0, "endMargin": 0, "qps": 2, "numProcesses": 2})
        for each in self.assert_all_moved(run, 3):
            self.assertEqual(each["bwResults"]["iterations"], 2 * 2 * 300)
            for process in each["resultsPerProcess"]:
                if process["role"] == "responder":
                    self.assertEqual(process["messagesReceived"], 2 * 300)

    def test_every_byte_can_be_checked(self):
        run = self.json_scenario({"testNodes": THREE, "trafficPattern": "ALL_TO_ALL", "verb": "send", "msgSize": 3000,
                                  "iterations": 200, "warmupTime": 0, "endMargin": 0, "dataValidation": True})
        for each in self.assert_all_moved(run, 6):
            self.assertEqual(each["validationResults"]["invalidDataSampleCount"], 0)

    def test_corrupt_data_is_found_where_it_is(self):
        run = self.json_scenario({"testNodes": THREE, "trafficPattern": "RING", "verb": "send", "msgSize": 3000,
                                  "iterations": 100, "warmupTime": 0, "endMargin": 0, "dataValidation": True},
                                 env={"RDMA_PERFTEST_CORRUPT_EVERY": "10"}, expect=3)
        for each in run.report["connections"]:
            self.assertEqual(each["validationResults"]["invalidDataSampleCount"], 10)

    def test_latency_of_all_pairs(self):
        for verb in ("write", "send", "read"):
            with self.subTest(verb=verb):
                run = self.json_scenario({"testNodes": THREE, "trafficPattern": "ALL_TO_ALL", "metric": "lat",
                                          "verb": verb, "msgSize": 8, "iterations": 50, "warmupTime": 0.05})
                for each in self.assert_all_moved(run, 6):
                    self.assertEqual(each["latResults"]["samples"], 50)

    def test_datagrams(self):
        run = self.json_scenario({"testNodes": THREE, "trafficPattern": "RING", "connectionType": "UD", "verb": "send",
                                  "msgSize": 256, **TIMES})
        self.assert_all_moved(run, 3)

    def test_several_tests_run_at_the_same_time(self):
        run = self.json_scenario({"testNodes": THREE[:2], "trafficPattern": "ONE_TO_ONE", "tests": [
            {"name": "elephant", "msgSize": "1M", **TIMES},
            {"name": "mice", "verb": "send", "msgSize": 64, "trafficDirection": "DUAL_UNIDIR", **TIMES},
            {"name": "latency", "metric": "lat", "verb": "send", "msgSize": 8, "duration": 0.3, "warmupTime": 0.1}]})
        self.assert_all_moved(run, 4)
        self.assertEqual([each["testName"] for each in run.report["aggregatedResults"]["perTest"]],
                         ["elephant", "mice", "latency"])
        starts = [process["startUsec"] for process in run.report["synchronization"]["processes"]]
        self.assertEqual(len(starts), 6)
        self.assertLess(max(starts), 1_000_000)

    def test_peer_shifting_measures_every_pair_in_rounds(self):
        run = self.json_scenario({"testNodes": FOUR, "trafficPattern": "ALL_TO_ALL", "peerShifting": True,
                                  "duration": 0.2, "warmupTime": 0, "endMargin": 0.1})
        connections = self.assert_all_moved(run, 12)
        rounds = {}
        for each in connections:
            phase = each["testConfig"]["generalConfig"]["trafficPhaseId"]
            rounds.setdefault(phase, []).append(each)
        self.assertEqual({phase: len(list_) for phase, list_ in rounds.items()}, {1: 4, 2: 4, 3: 4})

    def test_sixty_four_processes_start_together(self):
        hosts = nodes(*[(f"h{i:02}", DEVICES[i % 3]) for i in range(16)])
        run = self.json_scenario({"testNodes": hosts, "trafficPattern": "RING", "numProcesses": 4, "msgSize": 64,
                                  "iterations": 100, "warmupTime": 0, "endMargin": 0})
        self.assert_all_moved(run, 16)
        together = run.report["synchronization"]
        self.assertEqual(len(together["processes"]), 64)
        # A few milliseconds on two idle cores; the bound is for a machine that is busy with others.
        self.assertLess(together["startSkewUsec"], 500_000)

    def test_sizes_pair_by_pair(self):
        path = os.path.join(self.card.folder, "sizes.ptini")
        with open(path, "w") as file:
            file.write("[collective]\ncounts = {0, 1024, 0, 256, 0, 512, 64, 128, 0}\n")
        run = self.json_scenario({"testNodes": THREE, "trafficPattern": "ALL_TO_ALL", "ptiniFile": path, **TIMES})
        sizes = {(each["source"]["hostName"], each["destination"]["hostName"]):
                 each["testConfig"]["resourceConfig"]["operations"][0]["msgSize"]
                 for each in self.assert_all_moved(run, 5)}
        self.assertEqual(sizes, {("a", "b"): 4096, ("b", "a"): 1024, ("b", "c"): 2048, ("c", "a"): 256, ("c", "b"): 512})

    def test_the_scenario_of_a_report_runs_again(self):
        run = self.json_scenario({"testNodes": THREE, "trafficPattern": "RING", "msgSize": 4096, **TIMES})
        again = self.json_scenario(run.report["scenario"])
        self.assert_all_moved(again, 3)
        self.assertEqual(again.report["scenario"], run.report["scenario"])


class LockStep(Scenarios):
    def steps(self, *words, hosts=THREE, **fields):
        options = {key: fields.pop(key) for key in ("expect", "env", "json_output") if key in fields}
        return self.json_scenario({"testNodes": hosts, "trafficPattern": "ALL_TO_ALL", "iterationSync": True,
                                   "iterations": 60, "msgSize": 20000, **fields}, *words, **options)

    def test_all_ends_count_the_same_iterations(self):
        for direction in ("UNIDIR", "BIDIR"):
            with self.subTest(direction=direction):
                run = self.steps(trafficDirection=direction, warmupIterations=5, qps=3)
                connections = self.assert_all_moved(run, 6)
                self.assertEqual({each["bwResults"]["iterations"] for each in connections}, {60})
                self.assertEqual({process["iterationsPosted"] for each in connections
                                  for process in each["resultsPerProcess"] if process["role"] == "requestor"}, {65})

    def test_both_directions_are_in_the_sum(self):
        report = self.steps(trafficDirection="BIDIR").report
        both = sum(each["bwResults"]["bwGbSec"] for each in report["connections"])
        self.assertAlmostEqual(report["aggregatedResults"]["perTest"][0]["bwResults"]["bwGbSec"], both, places=6)

    def test_every_byte_is_checked_every_time(self):
        run = self.steps(dataValidation=True, qps=2, hosts=FOUR, msgSize=3001)
        for each in self.assert_all_moved(run, 12):
            self.assertEqual(each["validationResults"]["invalidDataSampleCount"], 0)

    def test_what_is_wrong_is_found(self):
        run = self.steps(dataValidation=True, expect=3, env={"RDMA_PERFTEST_CORRUPT_EVERY": "20"})
        for each in run.report["connections"]:
            self.assertEqual(each["validationResults"]["invalidDataSampleCount"], 3)

    def test_of_different_sizes_there_is_no_bandwidth_of_the_whole(self):
        path = os.path.join(self.card.folder, "steps.ptini")
        with open(path, "w") as file:
            file.write("[collective]\ncounts = {0, 1024, 0, 256, 0, 512, 64, 128, 0}\n")
        run = self.json_scenario({"testNodes": THREE, "trafficPattern": "ALL_TO_ALL", "iterationSync": True,
                                  "iterations": 20, "ptiniFile": path, "dataValidation": True})
        self.assert_all_moved(run, 5)
        self.assertNotIn("bwResults", run.report["aggregatedResults"]["perTest"][0])
        text = self.json_scenario({"testNodes": THREE, "trafficPattern": "ALL_TO_ALL", "iterationSync": True,
                                   "iterations": 20, "ptiniFile": path}, json_output=False).program.stdout
        self.assertRegex(text, r"BW: +N/A \[Gbit/sec\]")
        self.assertIn("Message Size Matrix [bytes]:", text)
        self.assertIn("skipped 1/6 zero-size pairs", text)

    def test_loss_on_the_way_changes_nothing_that_arrives(self):
        self.card.link("--loss", "0.001")
        try:
            run = self.steps(dataValidation=True, iterations=200, msgSize=65536)
        finally:
            self.card.link("--loss", "0")
        for each in self.assert_all_moved(run, 6):
            self.assertEqual(each["validationResults"]["invalidDataSampleCount"], 0)


class Reports(Scenarios):
    def ring(self, *words, **options):
        fields = options.pop("fields", {})
        return self.json_scenario({"testNodes": THREE, "trafficPattern": "RING", **TIMES, **fields}, *words, **options)

    def test_the_text_has_summary_devices_matrix_and_skew(self):
        text = self.ring(json_output=False).program.stdout
        for part in ("Test: Test 1\nBW:", "Nodes [Gbit/sec]:", "Devices [Gbit/sec]:", "Connection Matrix [Gbit/sec]:",
                     "3 processes started within"):
            self.assertIn(part, text)
        self.assertNotIn("\x1b", text)
        self.assertNotIn("Matrix", self.ring("--disable_connection_matrix", json_output=False).program.stdout)
        self.assertNotIn("Matrix", self.ring(json_output=False, fields={"printConnectionMatrix": False}).program.stdout)

    def test_every_connection_must_hold_the_threshold(self):
        run = self.ring(fields={"bwThreshold": 100000}, expect=2)
        self.assertEqual(run.report["status"], "fail")
        self.assertEqual([each["threshold"]["passed"] for each in run.report["connections"]], [False] * 3)
        run = self.ring(fields={"bwThreshold": 0.000001})
        self.assertEqual([each["threshold"]["passed"] for each in run.report["connections"]], [True] * 3)

    def test_sums_are_those_of_the_connections(self):
        report = self.ring().report
        total = sum(each["bwResults"]["bwGbSec"] for each in report["connections"])
        self.assertAlmostEqual(report["aggregatedResults"]["perTest"][0]["bwResults"]["bwGbSec"], total, places=6)
        for level in ("perNode", "perDevice"):
            for way in ("tx", "rx"):
                part = sum(each["bwResults"]["bwGbSec"] for each in report["aggregatedResults"][level]
                           if each["direction"] == way)
                self.assertAlmostEqual(part, total, places=6)

    def test_a_file_as_document_or_lines(self):
        path = os.path.join(self.card.folder, "out.json")
        self.ring("-j", path)
        with open(path) as file:
            check_schema(json.load(file))
        path = os.path.join(self.card.folder, "out.ndjson")
        self.ring("-j", path)
        with open(path) as file:
            lines = [json.loads(line) for line in file]
        self.assertEqual(len(lines), 4)
        self.assertEqual([line.get("connectionId") for line in lines], [None, 0, 1, 2])

    def test_its_page_has_the_matrix_and_each_test_over_time(self):
        path = os.path.join(self.card.folder, "run.json")
        self.ring("-j", path, fields={"duration": 3})
        with open(path) as file:
            self.assertGreaterEqual(len(json.load(file)["timeline"][0]["points"]), 2)
        page_of(path)
        shown = as_shown(os.path.join(self.card.folder, "run.html"))
        for part in ("matrix", "summary", "time", "connections", "configuration"):
            self.assertIn(f'id="{part}"', shown)
        self.assertIn("a:mlx5_2", texts(shown))

    def test_a_report_that_cannot_be_written_is_found_before_the_run(self):
        run = self.ring("-j", "/nowhere/out.json", expect=1, json_output=False)
        self.assertIn("/nowhere/", run.program.stderr)
        self.assertEqual(run.program.stdout, "")

    def test_a_dry_run_runs_nothing(self):
        run = self.run_scenario("-n", "x[1-3]", "-d", "nothing_0", "--traffic_pattern", "a2a", "--dry_run",
                                json_output=False)
        self.assertIn("Connections: 6, 393216 bytes per iteration of all", run.program.stdout)
        plan = self.run_scenario("-n", "x[1-3]", "-d", "nothing_0", "--traffic_pattern", "a2a", "--dry_run")
        self.assertEqual(len(json.loads(plan.program.stdout)["connections"]), 6)


if __name__ == "__main__":
    harness.main()
