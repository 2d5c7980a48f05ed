"""A poor environment: no rights, no room, low limits, another user, what a crashed card left. One clear error each, or
it simply works."""

import contextlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "..", "programs"))
import harness
import perftest
from harness import LAUNCHER, Card, Failure, is_alive, wait_until
from perftest import Case

NOBODY = 65534
AS_ROOT = unittest.skipUnless(os.geteuid() == 0, "needs root to become somebody else or to mount")


def limit(kind, value):
    return lambda: resource.setrlimit(kind, (value, value))


def as_user(uid, then=None):
    def become():
        if then:
            then()
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)

    return become


class Environment(unittest.TestCase):
    def run_plainly(self, argv, environment, prepare=None, timeout=15):
        """A program without a card's help; hanging is a failure."""
        return subprocess.run(
            argv, env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout,
            preexec_fn=prepare, stdin=subprocess.DEVNULL, cwd="/",
        )

    def one_clear_error(self, done, pattern):
        """An exit code of its own (no signal), one short message, and the message says what is wrong."""
        text = done.stderr if hasattr(done, "args") else done.output
        self.assertGreater(done.returncode if hasattr(done, "args") else done.returncode(), 0, text)
        self.assertRegex(text, pattern)
        self.assertLessEqual(len(text.strip().splitlines()), 4, text)

    @contextlib.contextmanager
    def folder(self, mode=0o700):
        path = tempfile.mkdtemp(prefix="rdmalab-test-")
        os.chmod(path, mode)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    # --- the runtime folder

    def test_unwritable_runtime_folder(self):
        folder = "/proc/rdmalab"  # not even root can make it
        done = self.run_plainly([LAUNCHER, "up"], {"RDMALAB_RUNTIME_DIR": folder})
        self.one_clear_error(done, folder)

    @AS_ROOT
    def test_runtime_folder_of_another_user(self):
        with self.folder(0o755) as path:
            done = self.run_plainly([LAUNCHER, "up"], {"RDMALAB_RUNTIME_DIR": path}, as_user(NOBODY))
            self.one_clear_error(done, path)

    def test_no_card_is_up(self):
        with self.folder() as path:
            environment = {"RDMALAB_RUNTIME_DIR": path}
            for command in (["status"], ["counters"], ["link", "cable0"], ["down", "--name", "x"]):
                done = self.run_plainly([LAUNCHER, *command], environment)
                self.one_clear_error(done, "rdmalab up|no card")

    def test_a_program_without_a_card_finds_no_device(self):
        """The drop-in alone (no launcher, no card): an empty list and a hint, as on a machine without adapters."""
        with self.folder() as path:
            library = os.path.join(harness.BUILD, "lib", "rdma")
            done = self.run_plainly(["ibv_devices"], {"RDMALAB_RUNTIME_DIR": path, "LD_LIBRARY_PATH": library})
            self.assertNotIn("mlx5", done.stdout)
            self.assertGreaterEqual(done.returncode, 0)

    def test_a_stale_socket(self):
        with Card() as card:
            card.rdmalab("down", "--name", card.name)
            wait_until(lambda: not is_alive(card.pid), 5)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(card.socket_path())
            self.assertTrue(os.path.exists(card.socket_path()))
            done = card.rdmalab("status", "--name", card.name, check=False)
            self.one_clear_error(done, "rdmalab up|no card")
            card.up()
            card.run("ibv_devices")

    def test_two_cards_of_one_name(self):
        with Card() as card:
            done = card.rdmalab("up", "--name", card.name, check=False)
            self.assertEqual(done.returncode, 2)
            self.one_clear_error(done, card.name)
            card.run("ibv_devices")

    def test_two_cards_side_by_side(self):
        with Card() as first, Card() as second:
            for card in (first, second):
                case = Case("write", "bw", "RC")
                perftest.check_rows(case, perftest.run_case(card, case).client.stdout)

    @AS_ROOT
    def test_a_full_disk_under_the_runtime_folder(self):
        with self.folder() as path:
            script = f"mount -t tmpfs -o size=4k,nr_inodes=2 none {path} && touch {path}/x; exec {LAUNCHER} up"
            done = self.run_plainly(["unshare", "-m", "sh", "-c", script], {"RDMALAB_RUNTIME_DIR": path + "/."})
            self.one_clear_error(done, "No space left|no space|full")

    @AS_ROOT
    def test_a_full_disk_under_a_capture(self):
        """The capture ends with an error; the traffic does not notice."""
        with Card() as card, self.folder() as path:
            script = f"mount -t tmpfs -o size=64k none {path} && exec {LAUNCHER} pcap --name {card.name} --at p0 {path}/f"
            program = harness.Program(["unshare", "-m", "sh", "-c", script], card.environment)
            card.programs.append(program)
            wait_until(lambda: card.status()["captures"] or not program.running(), 5)
            case = Case("write", "bw", "RC")
            perftest.check_rows(case, perftest.run_case(card, case).client.stdout)
            self.assertTrue(program.wait(5), program.report("the capture goes on"))
            self.one_clear_error(program, "No space left|no space|full")
            self.assertEqual(card.status()["captures"], [])

    # --- users

    @AS_ROOT
    def test_a_second_user_is_refused(self):
        """A card serves its own user and root. Here the files' modes would let another user in; the card must not."""
        with Card() as card:
            os.chmod(card.folder, 0o755)
            os.chmod(card.runtime, 0o755)
            os.chmod(card.socket_path(), 0o666)
            environment = {"RDMALAB_RUNTIME_DIR": card.runtime, "RDMALAB_CARD": card.name}
            done = self.run_plainly([LAUNCHER, "status", "--name", card.name], environment, as_user(NOBODY))
            self.one_clear_error(done, "(?i)permission|not permitted|user|uid")
            environment["LD_LIBRARY_PATH"] = os.path.join(harness.BUILD, "lib", "rdma")
            done = self.run_plainly(["ibv_devinfo"], environment, as_user(NOBODY))
            self.one_clear_error(done, "(?i)permission|not permitted|user|uid")
            card.run("ibv_devices")

    @AS_ROOT
    def test_an_ordinary_user_has_a_card_of_his_own(self):
        with self.folder() as path:
            os.chown(path, NOBODY, NOBODY)
            environment = {"RDMALAB_RUNTIME_DIR": path, "HOME": path}
            user = as_user(NOBODY)
            try:
                done = self.run_plainly([LAUNCHER, "up"], environment, user)
                self.assertEqual(done.returncode, 0, done.stderr)
                done = self.run_plainly([LAUNCHER, "run", "--", "ibv_devinfo"], environment, user)
                self.assertEqual(done.stdout.count("PORT_ACTIVE"), len(harness.DEVICES), done.stderr)
                argv = [LAUNCHER, "run", "--", harness.tool("verbs_data"), "--verb", "write"]
                done = self.run_plainly(argv, environment, user, timeout=30)
                self.assertEqual(done.returncode, 0, done.stderr)
            finally:
                done = self.run_plainly([LAUNCHER, "down"], environment, user)
            self.assertEqual(done.returncode, 0, done.stderr)

    # --- limits

    def test_few_descriptors_for_a_program(self):
        with Card() as card:
            program = card.run("ibv_rc_pingpong", "-g", 1, limits=limit(resource.RLIMIT_NOFILE, 6), expect=None)
            self.one_clear_error(program, "Couldn't get context|Failed to get IB devices|No IB devices")
            card.wait_idle()

    def test_few_descriptors_for_the_card(self):
        """A card that runs out of descriptors refuses the client that is too many, and goes on with the others."""
        with Card() as card:
            _, hard = resource.prlimit(card.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(card.pid, resource.RLIMIT_NOFILE, (24, hard))
            holders = [card.start("ibv_asyncwatch", "-d", harness.SERVER_DEVICE) for _ in range(12)]
            wait_until(lambda: any(not holder.running() for holder in holders), 10)
            refused = [holder for holder in holders if not holder.running()]
            self.assertTrue(refused, "12 clients fit into 24 descriptors?")
            for holder in refused:
                self.one_clear_error(holder, "(?i)open files|descriptors|couldn't get|no ib devices")
            for holder in holders:
                holder.kill_group()
            resource.prlimit(card.pid, resource.RLIMIT_NOFILE, (hard, hard))
            card.wait_idle()
            case = Case("write", "bw", "RC")
            perftest.check_rows(case, perftest.run_case(card, case).client.stdout)

    def test_little_address_space_for_a_program(self):
        with Card() as card:
            argv = [harness.tool("verbs_data"), "--sizes", "1000", "--depth", "16"]
            program = card.run(*argv, limits=limit(resource.RLIMIT_AS, 24 << 20), expect=None)
            code = program.returncode()
            self.assertGreaterEqual(code, 0, program.report("a signal"))
            if code != 0:
                self.one_clear_error(program, "(?i)memory|allocate|ENOMEM")
            card.wait_idle()

    def test_no_locked_memory_is_needed(self):
        """The card pins nothing, so `ulimit -l 0` is no obstacle."""
        with Card() as card:
            argv = [harness.tool("verbs_data"), "--sizes", "65536", "--messages", "100"]
            card.run(*argv, limits=limit(resource.RLIMIT_MEMLOCK, 0))
            card.wait_idle()

    def test_registering_memory_that_goes_away_is_a_work_error(self):
        """munmap of a registered buffer: remote access error for the peer or a local error, never a dead card."""
        with Card() as card:
            program = card.run(harness.tool("verbs_vanish"))
            self.assertRegex(program.stdout, r"write to unmapped memory: status (10|11) ")
            self.assertRegex(program.stdout, r"write from unmapped memory: status 4 ")
            card.run("ibv_devices")


if __name__ == "__main__":
    harness.main()
