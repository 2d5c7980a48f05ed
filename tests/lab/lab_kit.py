"""What the tests of labs share: a lab in a runtime folder of its own, programs in its hosts, proof that nothing stays."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

import harness
from harness import LAUNCHER, Failure, Program, is_alive, wait_until


def why_not():
    """Why the tests cannot run here; None when they can."""
    if os.geteuid() != 0:
        return "a lab needs root"
    if subprocess.run(["unshare", "-numpi", "--fork", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        return "this machine permits no namespaces"
    if not os.path.exists("/usr/sbin/sshd"):
        return "openssh-server is not installed"
    return None


REASON = why_not()
needs_lab = unittest.skipIf(REASON is not None, REASON or "")


class TestLab:
    """`with TestLab(4) as lab`: brings it up, takes it down, and looks at what is left."""

    __test__ = False

    def __init__(self, hosts, *options):
        self.count = hosts
        self.options = list(map(str, options))
        self.runtime = tempfile.mkdtemp(prefix="rdmalab-test-lab-")
        self.environment = {"RDMALAB_RUNTIME_DIR": self.runtime}
        self.programs = []
        self.processes = []

    def __enter__(self):
        self.rdmalab("up", self.count, *self.options)
        self.note_processes()
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is not None:
                print("\n".join(program.report("program") for program in self.programs))
            for program in self.programs:
                program.kill_group()
            self.rdmalab("down")
            self.check_nothing_left()
        finally:
            shutil.rmtree(self.runtime, ignore_errors=True)

    def note_processes(self):
        status = self.status()
        self.processes = [status["keeper"]["pid"]] + [host["init"]["pid"] for host in status["hosts"]]

    def check_nothing_left(self):
        if not wait_until(lambda: not any(map(is_alive, self.processes)), 10):
            raise Failure(f"processes were left behind: {[pid for pid in self.processes if is_alive(pid)]}")
        if os.listdir(self.runtime):
            raise Failure(f"files were left behind: {os.listdir(self.runtime)}")

    def words(self, *words):
        return [LAUNCHER, "lab", *map(str, words)]

    def rdmalab(self, *words, check=True, timeout=90, **options):
        done = subprocess.run(
            self.words(*words),
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout * harness.TIME_FACTOR,
            **options,
        )
        if check and done.returncode != 0:
            raise Failure(f"rdmalab lab {words}: exit {done.returncode}\n{harness.indent(done.stdout + done.stderr)}")
        return done

    def status(self):
        return json.loads(self.rdmalab("status", "--json").stdout)

    def host(self, name):
        return next(host for host in self.status()["hosts"] if host["name"] == name)

    def run(self, host, *words, **options):
        """Runs a program in a host to its end."""
        return self.rdmalab("exec", host, "--", *words, **options)

    def start(self, host, *words):
        program = Program(self.words("exec", host, "--", *words), env=self.environment)
        self.programs.append(program)
        return program

    def pair(self, server, client, timeout=60):
        """Runs two programs, the server at node01, the client at node02, to their ends; returns both."""
        serving = self.start("node01", *server)
        name = os.path.basename(server[0])
        wait_until(lambda: self.listens("node01", serving) or not serving.running(), 20)
        asking = self.start("node02", *client)
        for program, title in ((asking, "client"), (serving, "server")):
            if not program.wait(timeout * harness.TIME_FACTOR) or program.returncode() != 0:
                raise Failure(f"{name}\n{program.report(title)}\n{serving.report('server')}")
        return serving, asking

    def listens(self, host, program):
        """The program waits for its client: by TCP, or in the card (RDMA CM)."""
        if self.run(host, "sh", "-c", "ss -Hltn | grep -qv ':22 '", check=False).returncode == 0:
            return True
        status = json.loads(self.run(host, LAUNCHER, "status", "--json").stdout)
        return status["cm"]["ports"] > 0

    def counters(self, host):
        return json.loads(self.run(host, LAUNCHER, "counters", "--json").stdout)
