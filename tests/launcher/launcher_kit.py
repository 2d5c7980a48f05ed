"""What the tests of the launcher share: a runtime folder per test, the launcher in it, and proof that nothing stays."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import LAUNCHER, TIME_FACTOR, is_alive, process_name, processes_of, start_reaper, wait_until

__all__ = ["LAUNCHER", "SOURCE", "LauncherTest", "is_alive", "process_name", "wait_until", "may_use_namespaces"]

SOURCE = harness.SOURCE
ORDINARY_UID = 54321  # a user that this machine does not know: it has no privileges of any kind


class LauncherTest(unittest.TestCase):
    """Each test has a runtime folder of its own and leaves no process behind."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="rdmalab-test-")
        self.runtime = os.path.join(self.folder, "run")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("RDMALAB_")}
        self.environment["RDMALAB_RUNTIME_DIR"] = self.runtime
        self.farewell = start_reaper(self.runtime, self.folder)
        self.addCleanup(self.clean_up)

    def clean_up(self):
        # What a shell runs in the background of a pipe may end a moment after the shell.
        wait_until(lambda: not processes_of(self.runtime), 2)
        left = [(pid, process_name(pid)) for pid in processes_of(self.runtime)]
        for pid, _ in left:
            os.kill(pid, signal.SIGKILL)
        os.write(self.farewell, b"x")
        os.close(self.farewell)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.assertEqual(left, [], "processes were left behind")

    # --- the launcher

    def rdmalab(self, *words, timeout=30, **options):
        return self.command([LAUNCHER, *words], timeout=timeout, **options)

    def command(self, argv, timeout=30, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("env", self.environment)
        return subprocess.run(
            [str(word) for word in argv], capture_output=True, text=True, timeout=timeout * TIME_FACTOR, **options
        )

    def start(self, *words, **options):
        """The launcher in the background, its output in pipes."""
        process = subprocess.Popen(
            [LAUNCHER, *map(str, words)],
            env=self.environment,
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    # --- what tests expect

    def expect_success(self, *words, **options):
        done = self.rdmalab(*words, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), f"rdmalab {words}\n{done.stdout}")
        return done.stdout

    def expect_failure(self, status, message, *words, **options):
        """The exit status and exactly this on standard error, nothing on standard output."""
        done = self.rdmalab(*words, **options)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (status, "", message + "\n"), f"rdmalab {words}")

    def up(self, *words):
        output = self.expect_success("up", *words)
        name = words[words.index("--name") + 1] if "--name" in words else "default"
        self.addCleanup(self.rdmalab, "down", "--name", name)
        return output

    def card_pid(self, name="default"):
        with open(os.path.join(self.runtime, name + ".lock")) as file:
            return int(file.read())

    def files(self):
        return sorted(os.listdir(self.runtime)) if os.path.isdir(self.runtime) else []

    def cards(self):
        return [pid for pid in processes_of(self.runtime) if process_name(pid) == "rdmalab-card"]


def may_use_namespaces():
    """Whether this process, or one without its privileges, may have a mount namespace of its own."""
    words = ["unshare", "-m", "true"] if os.geteuid() == 0 else ["unshare", "-Um", "true"]
    return subprocess.run(words, stderr=subprocess.DEVNULL).returncode == 0
