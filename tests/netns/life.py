"""How namespaces of a card come and go: in order, after kill -9, beside namespaces of others, and where it cannot be."""

import os
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import netns_kit
from harness import BUILD, LAUNCHER, is_alive, main, wait_until
from netns_kit import NetnsCard, ip, namespaces, needs_namespaces

SHORT_NAMES = ("ns0", "ns0_1", "ns1")
ORDINARY_UID = 54321


def names_of(card):
    return sorted(card.netns(short) for short in SHORT_NAMES)


def existing(card):
    return [name for name in names_of(card) if name in namespaces()]


def identity(name):
    """Of a namespace: differs for two that had the same name one after the other."""
    code = "import socket; print(int.from_bytes(socket.socket().getsockopt(1, 71, 8), 'little'))"
    return int(subprocess.run(["ip", "netns", "exec", name, "python3", "-c", code], capture_output=True, check=True).stdout)


def kill(card):
    os.kill(card.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(card.pid), 10)


@needs_namespaces
class InOrder(unittest.TestCase):
    def test_down_removes_all_that_up_made(self):
        with NetnsCard() as card:
            self.assertEqual(existing(card), names_of(card))
            self.assertLess(card.up_seconds, 10)
            self.assertIn(f"{card.name}.netns", os.listdir(card.runtime))
            card.rdmalab("down", "--name", card.name)
            self.assertEqual(existing(card), [])
            self.assertEqual(os.listdir(card.runtime), [])

    def test_down_does_not_wait_for_programs_in_the_namespaces(self):
        with NetnsCard() as card:
            sleeper = card.start_at("mlx5_3", "sleep", 60)
            self.assertTrue(wait_until(lambda: sleeper.find("sleep"), 10))
            card.rdmalab("down", "--name", card.name)
            self.assertEqual(existing(card), [])
            self.assertTrue(sleeper.running())
            sleeper.kill_group()

    def test_sigterm_removes_them_too(self):
        with NetnsCard() as card:
            os.kill(card.pid, signal.SIGTERM)
            self.assertTrue(wait_until(lambda: not is_alive(card.pid), 10))
            self.assertEqual(existing(card), [])

    def test_two_cards_have_namespaces_of_their_own(self):
        with NetnsCard(mark="a") as one, NetnsCard(mark="b") as two:
            for card in (one, two):
                done = card.at("mlx5_3", "ping", "-c", 2, "-i", 0.1, "10.0.0.1")
                self.assertIn("2 received", done.stdout)
            one.rdmalab("down", "--name", one.name)
            self.assertEqual((existing(one), existing(two)), ([], names_of(two)))


@needs_namespaces
class AfterKill(unittest.TestCase):
    def test_down_removes_what_is_left(self):
        with NetnsCard() as card:
            kill(card)
            self.assertEqual(existing(card), names_of(card))
            done = card.rdmalab("down", "--name", card.name)
            self.assertIn("removed the files it left behind", done)
            self.assertEqual(existing(card), [])
            self.assertEqual(os.listdir(card.runtime), [])

    def test_down_all_removes_what_is_left(self):
        with NetnsCard() as card:
            kill(card)
            os.unlink(card.socket_path())
            card.rdmalab("down", "--all")
            self.assertEqual(existing(card), [])

    def test_the_next_up_of_the_name_takes_over(self):
        with NetnsCard() as card:
            before = identity(card.netns("ns0"))
            kill(card)
            card.up()
            self.assertEqual(existing(card), names_of(card))
            self.assertNotEqual(identity(card.netns("ns0")), before)
            self.assertIn("1 received", card.at("mlx5_3", "ping", "-c", 1, "10.0.0.1").stdout)

    def test_an_up_without_netns_removes_them(self):
        with NetnsCard() as card:
            kill(card)
            card.options = []
            card.up()
            self.assertEqual(existing(card), [])

    def test_a_card_that_runs_in_them_still_ends_for_its_programs(self):
        with NetnsCard() as card:
            server = card.start_at("mlx5_2", "rping", "-s", "-a", "10.0.0.1")
            self.assertTrue(wait_until(lambda: server.find("rping"), 10))
            kill(card)
            server.kill_group()
            card.rdmalab("down", "--name", card.name)
            self.assertEqual(existing(card), [])


@needs_namespaces
class BesideOthers(unittest.TestCase):
    def add_foreign(self, name):
        ip("netns", "add", name)
        self.addCleanup(lambda: ip("netns", "del", name, check=False))
        return identity(name)

    def refuse(self, card, name):
        done = card.rdmalab("up", "--name", card.name, "--topology", card.topology, "--netns", check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(
            done.stderr,
            f"rdmalab up: network namespace {name} exists already, and this card did not make it: remove it "
            f"(ip netns del {name}), take down the card that has it, or name another in the topology\n",
        )

    def test_a_name_that_is_taken_is_an_error_and_nothing_is_left(self):
        with NetnsCard() as card:
            card.rdmalab("down", "--name", card.name)
            taken = card.netns("ns0_1")  # the last to be made
            before = self.add_foreign(taken)
            self.refuse(card, taken)
            self.assertEqual(existing(card), [taken])
            self.assertEqual(identity(taken), before)
            card.rdmalab("down", "--name", card.name, check=False)
            self.assertEqual(existing(card), [taken])
            ip("netns", "del", taken)

    def test_a_second_card_with_the_same_names_leaves_the_first_alone(self):
        with NetnsCard() as card:
            before = identity(card.netns("ns0"))
            done = card.rdmalab("up", "--name", "second", "--topology", card.topology, "--netns", check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"network namespace {card.netns('ns0')} exists already", done.stderr)
            self.assertEqual(existing(card), names_of(card))
            self.assertEqual(identity(card.netns("ns0")), before)
            self.assertIn("1 received", card.at("mlx5_3", "ping", "-c", 1, "10.0.0.1").stdout)
            files = {f"{card.name}.{end}" for end in ("lock", "log", "netns", "sock")}
            self.assertEqual(set(os.listdir(card.runtime)), files)

    def test_a_namespace_that_took_a_dead_cards_name_stays(self):
        with NetnsCard() as card:
            kill(card)
            name = card.netns("ns0")
            ip("netns", "del", name)
            before = self.add_foreign(name)
            card.rdmalab("down", "--name", card.name)
            self.assertEqual(existing(card), [name])
            self.assertEqual(identity(name), before)
            ip("netns", "del", name)

    def test_a_namespace_that_took_a_living_cards_name_stays(self):
        with NetnsCard() as card:
            name = card.netns("ns1")
            ip("netns", "del", name)
            before = self.add_foreign(name)
            card.rdmalab("down", "--name", card.name)
            self.assertEqual(existing(card), [name])
            self.assertEqual(identity(name), before)
            ip("netns", "del", name)


@needs_namespaces
class WhereItCannotBe(unittest.TestCase):
    """One clear error each, and nothing that stays."""

    def refused(self, prefix=(), environment=None, **options):
        """Standard error of an `up` that fails."""
        with NetnsCard() as card:
            card.rdmalab("down", "--name", card.name)
            words = [*prefix, LAUNCHER, "up", "--name", card.name, "--topology", card.topology, "--netns"]
            env = {**os.environ, **card.environment, **(environment or {})}
            done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=30, **options)
            self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
            self.assertEqual(existing(card), [])
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            return done.stderr

    def test_without_root(self):
        user = ["setpriv", f"--reuid={ORDINARY_UID}", f"--regid={ORDINARY_UID}", "--clear-groups", "--inh-caps=-all"]
        if subprocess.run([*user, "test", "-x", LAUNCHER]).returncode != 0:
            self.skipTest(f"{BUILD} cannot be read by other users")
        runtime = f"/tmp/rdmalab-test-{os.getpid()}-user"
        os.mkdir(runtime, 0o700)
        os.chown(runtime, ORDINARY_UID, ORDINARY_UID)
        words = [*user, LAUNCHER, "up", "--netns"]
        done = subprocess.run(words, env={**os.environ, "RDMALAB_RUNTIME_DIR": runtime}, capture_output=True, text=True)
        left = os.listdir(runtime)
        subprocess.run(["rm", "-r", runtime], check=True)
        self.assertEqual((done.returncode, done.stdout, left), (1, "", []))
        self.assertEqual(
            done.stderr,
            "rdmalab up: cannot make a network namespace: Operation not permitted; network namespaces need root\n",
        )

    def test_without_iproute2(self):
        error = self.refused(environment={"PATH": "/nonexistent"})
        self.assertEqual(error, "rdmalab up: cannot run ip: No such file or directory; network namespaces need iproute2\n")

    def test_without_tun(self):
        hide = ["unshare", "-m", "--propagation", "slave", "sh", "-c", 'mount -t tmpfs none /dev/net && exec "$@"', "sh"]
        error = self.refused(prefix=hide)
        self.assertRegex(error, "^rdmalab up: cannot open /dev/net/tun: No such file or directory; .*modprobe tun")

    def test_with_an_interface_that_the_kernel_refuses(self):
        with NetnsCard() as card:
            card.rdmalab("down", "--name", card.name)
            with open(card.topology) as file:
                text = re.sub(r'(device = "mlx5_3"\n)', r'\1netdev = "."\n', file.read())
            with open(card.topology, "w") as file:
                file.write(text)
            done = card.rdmalab("up", "--name", card.name, "--topology", card.topology, "--netns", check=False)
            self.assertEqual((done.returncode, existing(card)), (2, []))


if __name__ == "__main__":
    main()
