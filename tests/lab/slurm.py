"""Scenarios of rdma_perftest inside Slurm, on hosts of a lab: salloc, sbatch, a host outside of the allocation."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import scenarios
from harness import Failure, Program, costs, main, wait_until
from lab_kit import TestLab, needs_lab
from scenarios import PROGRAM, OnHosts, scenario

TOOLS = ("slurmd", "slurmctld", "salloc", "sbatch", "munged")
needs_slurm = unittest.skipUnless(all(map(shutil.which, TOOLS)), "Slurm or munge is not installed")
CONFIGURATION = """ClusterName=lab
SlurmctldHost=node05
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
NodeName=node[01-04] CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    """Slurm on node01 to node04 of a lab of five; the controller is node05. One munged serves all, by its socket."""

    def __init__(self, lab):
        self.lab = lab
        self.folder = tempfile.mkdtemp(prefix="rdmalab-slurm-", dir="/var/tmp")

    def __enter__(self):
        os.chmod(self.folder, 0o755)
        for name in ("state", *(f"spool.node0{i}" for i in range(1, 5))):
            os.mkdir(os.path.join(self.folder, name))
        self.write("slurm.conf", CONFIGURATION.format(folder=self.folder))
        self.write("cgroup.conf", "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        key = os.path.join(self.folder, "munge.key")
        with open(key, "wb") as file:
            file.write(os.urandom(128))
        os.chmod(key, 0o600)
        words = ["munged", "--foreground", "--force", "--key-file", key]
        for kind in ("socket", "pid-file", "log-file", "seed-file"):
            words += [f"--{kind}", os.path.join(self.folder, "munge." + kind.removesuffix("-file"))]
        self.munged = Program(words)
        self.programs = [self.start("node05", "slurmctld", "-D")]
        self.programs += [self.start(f"node0{i}", "slurmd", "-D", "-N", f"node0{i}") for i in range(1, 5)]
        if not wait_until(lambda: self.run("sinfo", "-h", "-o", "%D %T", check=False).stdout.strip() == "4 idle", 30):
            raise Failure("\n".join(program.report("daemon") for program in [self.munged, *self.programs]) + self.logs())
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            print(self.logs())
        for program in [*self.programs, self.munged]:
            program.kill_group()
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)

    def logs(self):
        out = ""
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".log"):
                with contextlib.suppress(OSError), open(os.path.join(self.folder, name)) as file:
                    out += f"--- {name}\n{file.read()[-1500:]}\n"
        return out

    def words(self, *words):
        return ["env", f"SLURM_CONF={self.folder}/slurm.conf", *words]

    def start(self, host, *words):
        return self.lab.start(host, *self.words(*words))

    def run(self, *words, **options):
        """On the controller."""
        return self.lab.run("node05", *self.words(*words), **options)


@needs_lab
@needs_slurm
@scenarios.needs_mpi
class InSlurm(OnHosts):
    @costs(timeout=300, processors=2)
    def test_salloc_sbatch_and_a_host_outside(self):
        content = json.dumps(scenario("node[04,02,03,01]", "RING"))
        with TestLab(5) as lab, Cluster(lab) as cluster:
            done = cluster.run("salloc", "-N4", PROGRAM, "--print_json_results", "-f", content, timeout=90)
            report = self.report_of(done.stdout)
            pairs = [(each["source"]["hostName"], each["destination"]["hostName"]) for each in report["connections"]]
            # Our order, not Slurm's.
            self.assertEqual(pairs, [("node04", "node02"), ("node02", "node03"), ("node03", "node01"), ("node01", "node04")])
            self.assertEqual({each["status"] for each in report["connections"]}, {"ok"})

            outside = cluster.run("salloc", "-N2", "-w", "node[01-02]", PROGRAM, "-f", content, check=False, timeout=60)
            self.assertEqual(outside.returncode, 1, outside.stdout + outside.stderr)
            self.assertIn("not in the allocation of Slurm job", outside.stderr)
            self.assertIn("(node[01-02]): node04, node03", outside.stderr)

            results = os.path.join(cluster.folder, "results.json")
            cluster.write("job.sh", f"#!/bin/sh\n{PROGRAM} --non_interactive -j {results} -f '{content}'\n")
            output = os.path.join(cluster.folder, "job.out")
            done = cluster.run("sbatch", "-W", "-N4", "-o", output, os.path.join(cluster.folder, "job.sh"), check=False,
                               timeout=120)
            with open(output) as file:
                said = file.read()
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr + said)
            with open(results) as file:
                self.assertEqual(self.report_of(file.read())["status"], "pass")


if __name__ == "__main__":
    main()
