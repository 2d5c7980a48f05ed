"""What goes wrong in a scenario: bad input starts nothing, and whatever dies is named, in bounded time, with the results
of the others kept and no process left."""

import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import Failure, process_name, wait_until
from perftest_kit import check_schema
from scenario_kit import Scenarios, nodes

THREE = nodes(("a", "mlx5_2"), ("b", "mlx5_3"), ("c", "mlx5_4"))
LONG = {"testNodes": THREE, "trafficPattern": "RING", "duration": 3, "warmupTime": 0.1, "endMargin": 0.1,
        "qpTimeOut": 12, "retryCount": 3}


class BadInput(Scenarios):
    def refused(self, scenario, *parts):
        text = scenario if isinstance(scenario, str) else json.dumps(scenario)
        run = self.run_scenario("-f", text, expect=1, json_output=False)
        for part in parts:
            self.assertIn(part, run.program.stderr)
        self.assertEqual(run.program.stdout, "")
        return run.program.stderr

    def test_all_errors_at_once_with_file_path_value_and_rule(self):
        path = os.path.join(self.card.folder, "bad.json")
        with open(path, "w") as file:
            json.dump({"tests": [{"testNodes": [{"hostName": "n[3-1]", "deviceName": "d"}], "trafficPattern": "RING"},
                                 {"testNodes": THREE, "trafficPattern": "STAR", "msgSise": 8}]}, file)
        said = self.refused(path, f"{path}: tests[0].testNodes[0].hostName: range '3-1' ends before it begins",
                            f"{path}: tests[1].trafficPattern: expected one of", "found 'STAR'",
                            f"{path}: tests[1].msgSise: unknown field; did you mean 'msgSize'?")
        self.assertEqual(len(said.splitlines()), 3)

    def test_what_is_not_json_or_not_there(self):
        self.refused("/nowhere/s.json", "cannot read /nowhere/s.json")
        self.refused('{"a": ', "parse error")
        self.refused('{"qps": 1, "qps": 2}', "qps: the same key a second time")
        path = os.path.join(self.card.folder, "latin1.json")
        with open(path, "wb") as file:
            file.write(b'{"name": "\xe4"}')
        self.refused(path, "UTF-8")

    def test_rules_of_patterns_and_sizes(self):
        self.refused({"testNodes": THREE, "trafficPattern": "BISECTION"}, "even number of endpoints, found 3")
        self.refused({"testNodes": THREE[:1], "trafficPattern": "RING"}, "at least two endpoints, found 1")
        self.refused({"testNodes": THREE, "trafficPattern": "A2A", "trafficPartition": "LOCAL"}, "keeps none")
        self.refused({"testNodes": [{"hostName": "n[1-1000]", "deviceName": "d[1-1000]"}], "trafficPattern": "RING"},
                     "more than 65536 endpoints")
        self.refused({"testNodes": [{"hostName": "n[1-2]", "deviceName": "d[0-2]", "cudaDeviceId": "[0,1]"}],
                      "trafficPattern": "RING", "memoryType": "cuda"}, "2 GPUs for 3 devices")
        path = os.path.join(self.card.folder, "two.ptini")
        with open(path, "w") as file:
            file.write("[collective]\ncounts = {0,1,1,0}\n[collective]\ncounts = {0,1,1,0}\n")
        self.refused({"testNodes": THREE[:2], "trafficPattern": "A2A", "ptiniFile": path},
                     f"{path}: line 3: a second [collective] pattern")

    def test_flags_beside_a_scenario(self):
        run = self.run_scenario("-f", json.dumps(LONG), "-s", 8, expect=1, json_output=False)
        self.assertIn("--msg_size with --input_file: the scenario says what is measured", run.program.stderr)
        run = self.run_scenario("-n", "a,b", "-d", "mlx5_2", "--dual_unidir", expect=1, json_output=False)
        self.assertIn("--dual_unidir without --traffic_pattern", run.program.stderr)


class Endings(Scenarios):
    def worker_of(self, program, host):
        """The pid of a worker of that host's agent: a grandchild of the front-end."""
        main = program.find("rdma_perftest")
        agents = [pid for pid in harness.descendants_of(main) if harness.parent_of(pid) == main]
        agent = agents[[node["hostName"] for node in THREE].index(host)]
        return agent, [pid for pid in harness.descendants_of(agent)][0]

    def run_until_traffic(self, scenario, *words):
        program = self.start("-f", json.dumps(scenario), "--print_json_results", *words)
        started = wait_until(lambda: len(program.descendants()) >= 6 or not program.running(), 20)
        if not started or not program.running():
            raise Failure(program.report("never started"))
        wait_until(lambda: self.card.objects()["qps"] >= 6, 10)
        time.sleep(0.8)
        return program

    def finish(self, program, expect=1, timeout=40):
        if not program.wait(timeout):
            report = program.report("hangs")
            program.kill_group()
            raise Failure(report)
        self.assertEqual(program.returncode(), expect, program.report("scenario"))
        report = json.loads(program.stdout)
        check_schema(report)
        self.card.wait_idle()
        return report

    def test_a_worker_that_is_killed_fails_its_connections_only(self):
        program = self.run_until_traffic(LONG)
        _, worker = self.worker_of(program, "b")
        os.kill(worker, signal.SIGKILL)
        report = self.finish(program)
        states = {(each["source"]["hostName"], each["destination"]["hostName"]): each for each in report["connections"]}
        self.assertEqual(states["c", "a"]["status"], "ok")
        self.assertGreater(states["c", "a"]["bwResults"]["iterations"], 0)
        for pair in (("a", "b"), ("b", "c")):
            self.assertEqual(states[pair]["status"], "failed")
            self.assertIn("process 0 of b:mlx5_3 was killed by signal 9", states[pair]["error"])

    def test_a_worker_that_is_killed_ends_the_lock_step_of_all(self):
        scenario = {"testNodes": THREE, "trafficPattern": "ALL_TO_ALL", "iterationSync": True, "iterations": 1000000000,
                    "msgSize": 4096, "qpTimeOut": 12, "retryCount": 3}
        program = self.run_until_traffic(scenario)
        _, worker = self.worker_of(program, "b")
        os.kill(worker, signal.SIGKILL)
        report = self.finish(program)
        self.assertEqual({each["status"] for each in report["connections"]}, {"failed"})
        self.assertTrue(any("was killed by signal 9" in each["error"] for each in report["connections"]))

    def test_an_agent_that_is_killed_is_named_and_the_others_go_on(self):
        program = self.run_until_traffic(LONG)
        agent, _ = self.worker_of(program, "b")
        os.kill(agent, signal.SIGKILL)
        report = self.finish(program)
        self.assertIn("the agent of b was killed by signal 9", report["errors"][0])
        states = {each["source"]["hostName"]: each["status"] for each in report["connections"]}
        self.assertEqual(states, {"a": "failed", "b": "failed", "c": "ok"})

    def test_an_interrupt_keeps_what_was_measured(self):
        program = self.run_until_traffic({**LONG, "duration": 60})
        os.kill(program.find("rdma_perftest"), signal.SIGINT)
        report = self.finish(program, timeout=20)
        self.assertTrue(report["interrupted"])
        for each in report["connections"]:
            self.assertGreater(each["bwResults"]["iterations"], 0)

    def test_two_interrupts_end_at_once(self):
        program = self.run_until_traffic({**LONG, "duration": 60, "endMargin": 60})
        os.kill(program.find("rdma_perftest"), signal.SIGINT)
        time.sleep(0.5)
        if program.running():
            os.kill(program.find("rdma_perftest"), signal.SIGINT)
        self.assertTrue(program.wait(15), program.report("hangs"))
        self.assertEqual(program.returncode(), 1)
        self.card.wait_idle()

    def test_no_process_survives_the_front_end(self):
        program = self.run_until_traffic({**LONG, "duration": 60})
        below = [pid for pid in program.descendants()]
        os.kill(program.find("rdma_perftest"), signal.SIGKILL)
        self.assertTrue(wait_until(lambda: not any(harness.is_alive(pid) for pid in below), 10))
        self.card.wait_idle()

    def test_a_device_that_is_missing_on_one_host_ends_it_before_traffic(self):
        scenario = {**LONG, "testNodes": THREE[:2] + nodes(("c", "mlx5_77"))}
        run = self.run_scenario("-f", json.dumps(scenario), expect=1)
        self.assertIn("mlx5_77: no such RDMA device", run.program.stderr)
        self.assertEqual(run.report["status"], "error")
        self.card.wait_idle()

    def test_every_host_that_is_wrong_is_named(self):
        scenario = {**LONG, "testNodes": nodes(("a", "mlx5_2"), ("b", "mlx5_77"), ("c", "mlx5_78"))}
        run = self.run_scenario("-f", json.dumps(scenario), expect=1, json_output=False)
        self.assertIn("mlx5_77", run.program.stderr)
        self.assertIn("mlx5_78", run.program.stderr)

    def test_a_gid_that_does_not_match_is_told_once(self):
        scenario = {**LONG, "testNodes": [{**THREE[0], "gidIndex": 0}, {**THREE[1], "gidIndex": 1}]}
        run = self.run_scenario("-f", json.dumps(scenario), expect=1, json_output=False)
        self.assertIn("GIDs do not match", run.program.stderr)


if __name__ == "__main__":
    harness.main()
