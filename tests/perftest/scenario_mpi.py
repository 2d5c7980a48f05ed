"""Scenarios over Open MPI: mpirun, relays and agents are real, all hosts are names of this machine."""

import json
import os
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import process_name, wait_until
from perftest_kit import check_schema
from scenario_kit import QUICK, Scenarios, nodes

# Three names of one machine: mpirun sees three hosts, and all of them are local.
THREE = nodes(("ha", "mlx5_2"), ("hb", "mlx5_3"), ("hc", "mlx5_4"))
AGENT = """#!/bin/sh
# In place of ssh: the host is this machine, but for a folder of its own: daemons of one job that share one, and a host
# name, sometimes wait for each other for ever.
export TMPDIR="$TMPDIR/$1"
mkdir -p "$TMPDIR"
shift
exec sh -c "$*"
"""


class OverMpi(Scenarios):
    control = "mpi"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.agent = os.path.join(cls.card.folder, "agent")
        with open(cls.agent, "w") as file:
            file.write(AGENT)
        os.chmod(cls.agent, 0o700)

    def start(self, *words, env=None):
        # Whatever other interfaces come and go on this machine meanwhile: all hosts are here.
        if not any("mpiTcpNetworkInterfaces" in str(word) for word in words):
            index = list(words).index("-f") + 1
            words = [*words[:index], json.dumps({**json.loads(words[index]), "mpiTcpNetworkInterfaces": "lo"}),
                     *words[index + 1:]]
        # A folder for each run: what one cleans away must not be what the next has just made.
        folder = tempfile.mkdtemp(dir=self.card.folder)
        variables = {"RDMA_PERFTEST_RSH_AGENT": self.agent, "TMPDIR": folder, **(env or {})}
        return super().start(*words, env=variables)

    def ring(self, *words, **fields):
        options = {key: fields.pop(key) for key in ("expect", "env", "json_output") if key in fields}
        scenario = {"testNodes": THREE, "trafficPattern": "RING", "duration": 0.3, "warmupTime": 0.1, "endMargin": 0.1,
                    **fields}
        return self.json_scenario(scenario, *words, **options)

    def left_over(self):
        return [pid for pid in self.card.processes() if process_name(pid) in ("rdma_perftest", "mpirun", "orted")]

    def assert_nothing_left(self, seconds):
        if not wait_until(lambda: not self.left_over(), seconds):
            lines = []
            for pid in self.left_over():
                with open(f"/proc/{pid}/cmdline") as file:
                    words = file.read().replace("\0", " ")
                with open(f"/proc/{pid}/wchan") as file:
                    lines.append(f"{pid} (of {harness.parent_of(pid)}) {file.read()}: {words[:160]}")
            raise harness.Failure("left:\n" + "\n".join(lines))

    def test_a_ring_moves_data_and_all_start_together(self):
        run = self.ring()
        self.assert_all_moved(run, 3)
        together = run.report["synchronization"]
        self.assertEqual(together["backend"], "mpi")
        self.assertEqual(len(together["processes"]), 3)
        # The clocks are one: what is left is the error of the comparison, and the scheduler of a busy machine.
        self.assertLess(together["clockErrorUsec"], 100_000)
        self.assertLess(together["startSkewUsec"], 1_000_000)

    def test_all_to_all_both_ways_with_two_processes(self):
        run = self.ring(trafficPattern="ALL_TO_ALL", trafficDirection="BIDIR", verb="send", numProcesses=2)
        self.assert_all_moved(run, 6)

    def test_the_network_must_be_there(self):
        run = self.ring(mpiTcpNetworkInterfaces="10.77.66.0/24", expect=1, json_output=False)
        self.assertIn("no interface in 10.77.66.0/24; there are: lo 127.0.0.1/8", run.program.stderr)

    def test_an_mpirun_that_is_not_there_is_named(self):
        run = self.ring("--mpirun", "/nowhere/mpirun", expect=1, json_output=False)
        self.assertIn("cannot run /nowhere/mpirun", run.program.stderr)

    def test_a_program_that_is_not_there_is_named(self):
        run = self.ring("--remote_exe", "/nowhere/rdma_perftest", expect=1, json_output=False)
        self.assertIn("/nowhere/rdma_perftest", run.program.stderr)
        self.assert_nothing_left(10)

    def test_a_machine_without_the_plugin_says_so(self):
        env = {"RDMA_PERFTEST_MPI_PLUGIN": "/nowhere/cluster_mpi.so"}
        run = self.ring("--mpirun", "mpirun -x RDMA_PERFTEST_MPI_PLUGIN", expect=1, json_output=False, env=env)
        self.assertIn("no MPI here", run.program.stderr)

    def test_hosts_outside_of_a_slurm_allocation_are_named_before_anything_starts(self):
        env = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "h[a,b]"}
        run = self.ring(expect=1, json_output=False, env=env)
        self.assertIn("not in the allocation of Slurm job 7 (h[a,b]): hc", run.program.stderr)

    def running(self):
        scenario = {"testNodes": THREE, "trafficPattern": "RING", "duration": 60, "warmupTime": 0.1, "endMargin": 0.1}
        program = self.start("-f", json.dumps(scenario), "--print_json_results")
        self.assertTrue(wait_until(lambda: self.card.objects()["qps"] >= 6 or not program.running(), 60))
        self.assertTrue(program.running(), program.report("scenario"))
        time.sleep(1)
        return program

    def test_an_interrupt_keeps_what_was_measured(self):
        program = self.running()
        os.kill(program.find("rdma_perftest"), signal.SIGINT)
        self.assertTrue(program.wait(30), program.report("hangs"))
        report = json.loads(program.stdout)
        check_schema(report)
        self.assertEqual((program.returncode(), report["interrupted"]), (1, True))
        for each in report["connections"]:
            self.assertGreater(each["bwResults"]["iterations"], 0)
        self.assert_nothing_left(10)

    def test_nothing_survives_the_front_end(self):
        program = self.running()
        os.kill(program.find("rdma_perftest"), signal.SIGKILL)
        self.assert_nothing_left(15)
        self.card.wait_idle()

    def test_an_agent_that_dies_is_named_and_the_others_go_on(self):
        scenario = {"testNodes": THREE, "trafficPattern": "RING", "duration": 4, "warmupTime": 0.1, "endMargin": 0.1,
                    "qpTimeOut": 12, "retryCount": 3}
        program = self.start("-f", json.dumps(scenario), "--print_json_results")
        self.assertTrue(wait_until(lambda: self.card.objects()["qps"] >= 6, 60))
        time.sleep(1)
        agents = [pid for pid in self.left_over() if process_name(harness.parent_of(pid)) == "rdma_perftest"
                  and process_name(harness.parent_of(harness.parent_of(pid))) != "rdma_perftest"]
        os.kill(agents[1], signal.SIGKILL)
        self.assertTrue(program.wait(60), program.report("hangs"))
        report = json.loads(program.stdout)
        check_schema(report)
        self.assertEqual(program.returncode(), 1)
        self.assertIn("was killed by signal 9", report["errors"][0])
        self.assertEqual(sorted(each["status"] for each in report["connections"]), ["failed", "failed", "ok"])
        self.assert_nothing_left(10)


if __name__ == "__main__":
    harness.main()
