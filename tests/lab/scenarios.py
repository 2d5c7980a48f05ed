"""Scenarios of rdma_perftest on hosts of a lab: mpirun over ssh, cards over uplinks, hosts and wires that fail."""

import json
import os
import shutil
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "perftest"))
import harness
from harness import BUILD, Failure, costs, main, wait_until
from lab_kit import TestLab, needs_lab
from perftest_kit import check_schema

PROGRAM = os.path.join(BUILD, "bin", "rdma_perftest")
PLUGIN = os.path.join(BUILD, "lib", "rdmalab", "cluster_mpi.so")
TIMES = {"duration": 0.5, "warmupTime": 0.1, "endMargin": 0.2}
LONG = {"duration": 60, "warmupTime": 0.1, "endMargin": 0.2, "qpTimeOut": 12, "retryCount": 3}
READY = os.path.exists(PROGRAM) and os.path.exists(PLUGIN) and shutil.which("mpirun")
needs_mpi = unittest.skipUnless(READY, "rdma_perftest, its plugin or mpirun is missing")


def scenario(hosts, pattern, device="mlx5_0", **fields):
    out = {"testNodes": [{"hostName": hosts, "deviceName": device}], "trafficPattern": pattern, **TIMES, **fields}
    if "iterations" in fields:
        del out["duration"]
    return out


class OnHosts(unittest.TestCase):
    def run_in(self, lab, host, content, *words, expect=0, timeout=90):
        """The finished front-end, run in a host."""
        done = lab.run(host, PROGRAM, "--print_json_results", "-f", json.dumps(content), *words, check=False, timeout=timeout)
        if done.returncode != expect:
            raise Failure(f"exit {done.returncode}, expected {expect}\n{harness.indent(done.stdout + done.stderr)}")
        return done

    def report_of(self, text):
        report = json.loads(text)
        check_schema(report)
        return report

    def moved(self, lab, host, content, count, *words, **options):
        report = self.report_of(self.run_in(lab, host, content, *words, **options).stdout)
        self.assertEqual(len(report["connections"]), count)
        for each in report["connections"]:
            self.assertEqual((each["status"], each["error"]), ("ok", None))
            self.assertGreater((each.get("bwResults") or {}).get("iterations", 0) or each["latResults"]["samples"], 0)
        self.assertEqual(report["synchronization"]["backend"], "mpi")
        return report

    def start_in(self, lab, host, content):
        """A front-end that runs, once traffic does."""
        program = lab.start(host, PROGRAM, "--print_json_results", "-f", json.dumps(content))
        busy = wait_until(lambda: not program.running() or self.posts(lab), 60)
        if not busy or not program.running():
            raise Failure(program.report("front-end"))
        time.sleep(1)
        return program

    def posts(self, lab):
        return lab.counters("node02")["functions"]["mlx5_0"].get("tx_bytes", 0) > 1_000_000

    def finish(self, program, seconds, expect=1):
        if not program.wait(seconds):
            raise Failure(program.report("hangs"))
        self.assertEqual(program.returncode(), expect, program.report("front-end"))
        return self.report_of(program.stdout)

    def nothing_runs(self, lab, hosts):
        def left():
            return [host for host in hosts
                    if lab.run(host, "sh", "-c", "ps -eo stat,comm | grep -v '^Z' | grep -qE 'rdma_perf|orted|mpirun'",
                               check=False).returncode == 0]

        if not wait_until(lambda: not left(), 15):
            raise Failure(f"processes are left on {left()}")


@needs_lab
@needs_mpi
class Patterns(OnHosts):
    @costs(timeout=300, processors=2)
    def test_of_four_hosts(self):
        with TestLab(4) as lab:
            for pattern, direction, count in (("ONE_TO_ONE", "UNIDIR", 1), ("ONE_TO_MANY", "DUAL_UNIDIR", 6),
                                              ("MANY_TO_ONE", "UNIDIR", 3), ("ALL_TO_ALL", "UNIDIR", 12),
                                              ("ALL_TO_ALL", "BIDIR", 12), ("BISECTION", "BIDIR", 4), ("RING", "UNIDIR", 4)):
                with self.subTest(pattern=pattern, direction=direction):
                    hosts = "node[01-02]" if pattern == "ONE_TO_ONE" else "node[01-04]"
                    self.moved(lab, "node01", scenario(hosts, pattern, trafficDirection=direction, verb="send"), count)

    @costs(timeout=180, processors=2)
    def test_from_a_host_that_takes_no_part(self):
        with TestLab(4) as lab:
            report = self.moved(lab, "node04", scenario("node[01-03]", "RING"), 3)
            # Real clocks of one machine: what is left is the error of the comparison and the scheduler.
            self.assertLess(report["synchronization"]["startSkewUsec"], 500_000)

    @costs(timeout=300, processors=2)
    def test_of_eight_hosts_with_two_rails(self):
        with TestLab(8, "--rails", 2) as lab:
            report = self.moved(lab, "node01", scenario("node[01-08]", "ALL_TO_ALL", "mlx5_[0-1]",
                                                        trafficPartition="RAILED", iterations=50, msgSize=4096,
                                                        warmupTime=0, endMargin=0), 112)
            for each in report["connections"]:
                self.assertEqual(each["source"]["deviceName"], each["destination"]["deviceName"])

    @costs(timeout=300, processors=2)
    def test_rounds_and_lock_step(self):
        with TestLab(4) as lab:
            report = self.moved(lab, "node01", scenario("node[01-04]", "ALL_TO_ALL", peerShifting=True), 12)
            phases = [each["testConfig"]["generalConfig"]["trafficPhaseId"] for each in report["connections"]]
            self.assertEqual(sorted(phases), [1] * 4 + [2] * 4 + [3] * 4)
            steps = {"testNodes": [{"hostName": "node[01-04]", "deviceName": "mlx5_0"}], "trafficPattern": "ALL_TO_ALL",
                     "iterationSync": True, "iterations": 50, "msgSize": 20000, "dataValidation": True}
            for each in self.moved(lab, "node01", steps, 12)["connections"]:
                self.assertEqual(each["validationResults"]["invalidDataSampleCount"], 0)


@needs_lab
@needs_mpi
class Failures(OnHosts):
    @costs(timeout=300, processors=2)
    def test_before_traffic_name_every_host_and_cause(self):
        with TestLab(3) as lab:
            said = self.run_in(lab, "node01", scenario("node[01-02],nowhere", "RING"), expect=1).stderr
            self.assertIn("nowhere", said)
            said = self.run_in(lab, "node01", scenario("node[01-03]", "RING", "mlx5_7"), expect=1).stderr
            for host in ("node01", "node02", "node03"):
                self.assertIn(f"{host}: --device mlx5_7: no such RDMA device", said)
            said = self.run_in(lab, "node01", scenario("node[01-03]", "RING", mpiTcpNetworkInterfaces="10.99.0.0/24"),
                               expect=1).stderr
            self.assertIn("no interface in 10.99.0.0/24", said)
            lab.rdmalab("crash", "node03")
            said = self.run_in(lab, "node01", scenario("node[01-03]", "RING"), expect=1).stderr
            self.assertIn("node03", said)
            self.nothing_runs(lab, ["node01", "node02"])

    @costs(timeout=300, processors=2)
    def test_a_program_that_is_missing_or_different_on_one_host(self):
        with TestLab(3) as lab:
            for host in ("node01", "node02"):
                lab.run(host, "cp", PROGRAM, "/tmp/rdma_perftest")
            words = ["--remote_exe", "/tmp/rdma_perftest", "--mpirun", f"mpirun -x RDMA_PERFTEST_MPI_PLUGIN={PLUGIN}"]
            said = self.run_in(lab, "node01", scenario("node[01-03]", "RING"), *words, expect=1).stderr
            self.assertIn("node03", said)
            lab.run("node03", "sh", "-c", f"cp {PROGRAM} /tmp/rdma_perftest; echo >> /tmp/rdma_perftest")
            said = self.run_in(lab, "node01", scenario("node[01-03]", "RING"), *words, expect=1).stderr
            self.assertIn("node03 has another build of rdma_perftest", said)
            lab.run("node03", "cp", PROGRAM, "/tmp/rdma_perftest")
            self.moved(lab, "node01", scenario("node[01-03]", "RING"), 3, *words)

    @costs(timeout=240, processors=2)
    def test_an_interface_that_all_hosts_have_alike_does_no_harm(self):
        with TestLab(3) as lab:
            for host in ("node01", "node02", "node03"):
                lab.run(host, "sh", "-c", "ip link add docker0 type veth peer name docker1 && "
                        "ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up && ip link set docker1 up")
            self.moved(lab, "node01", scenario("node[01-03]", "RING"), 3)

    @costs(timeout=240, processors=2)
    def test_a_host_that_dies_ends_it_and_is_named(self):
        with TestLab(3) as lab:
            program = self.start_in(lab, "node01", {**scenario("node[01-03]", "RING"), **LONG})
            lab.rdmalab("crash", "node03")
            report = self.finish(program, 40)
            self.assertIn("node03", " ".join(report["errors"]))
            # Open MPI ends all with it; what had been done until then is kept.
            for each in report["connections"]:
                self.assertEqual(each["status"], "failed")
                self.assertGreater(each["bwResults"]["iterations"], 0)
            self.nothing_runs(lab, ["node01", "node02"])

    @costs(timeout=240, processors=2)
    def test_a_wire_that_is_cut_silently_ends_it_in_bounded_time(self):
        with TestLab(3) as lab:
            program = self.start_in(lab, "node01", {**scenario("node[01-03]", "RING"), **LONG})
            lab.rdmalab("link", "node03", "cut")
            report = self.finish(program, 60)
            self.assertIn("node03", " ".join(report["errors"]))
            self.nothing_runs(lab, ["node01", "node02", "node03"])

    @costs(timeout=240, processors=2)
    def test_an_interrupt_and_the_end_of_the_front_end(self):
        with TestLab(3) as lab:
            program = self.start_in(lab, "node01", {**scenario("node[01-03]", "RING"), **LONG})
            lab.run("node01", "sh", "-c", "kill -INT $(pgrep -o -x rdma_perftest)")
            report = self.finish(program, 30)
            self.assertTrue(report["interrupted"])
            for each in report["connections"]:
                self.assertGreater(each["bwResults"]["iterations"], 0)
            self.nothing_runs(lab, ["node01", "node02", "node03"])
            program = self.start_in(lab, "node01", {**scenario("node[01-03]", "RING"), **LONG})
            lab.run("node01", "sh", "-c", "kill -KILL $(pgrep -o -x rdma_perftest)")
            self.nothing_runs(lab, ["node01", "node02", "node03"])


if __name__ == "__main__":
    main()
