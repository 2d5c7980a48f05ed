"""What the tests of `rdmalab up --netns` share: a card with namespaces of its own, programs in them, proof that nothing stays.

The namespaces have names with the test's process id in them, so that tests run beside each other and beside whatever the
machine has. A test that was killed leaves its namespaces to the next one, which removes those of dead tests.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import SOURCE, Card, Failure, is_alive

NETNS_FOLDER = "/run/netns"
PREFIX = "rdmalab-test"
# device -> (short name of its namespace, interface, address, link-local address); the names of the default topology
PLACES = {
    "mlx5_2": ("ns0", "enp3s0f0s0", "10.0.0.1", "fe80::ff:fe00:3"),
    "mlx5_4": ("ns0_1", "enp3s0f0s4", "10.0.0.11", "fe80::ff:fe00:5"),
    "mlx5_3": ("ns1", "enp3s0f1s0", "10.0.0.2", "fe80::ff:fe00:4"),
}
MAC_OF = {"mlx5_2": "02:00:00:00:00:03", "mlx5_3": "02:00:00:00:00:04", "mlx5_4": "02:00:00:00:00:05"}


def why_not():
    """Why the tests cannot run here; None when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if subprocess.run(["unshare", "-n", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        return "this machine permits no network namespaces"
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        return f"/dev/net/tun: {error.strerror}"
    return None


REASON = why_not()
needs_namespaces = unittest.skipIf(REASON is not None, REASON or "")


def namespaces():
    return sorted(os.listdir(NETNS_FOLDER)) if os.path.isdir(NETNS_FOLDER) else []


def names_of_files():
    """Namespaces that have files of their own."""
    return os.listdir("/etc/netns") if os.path.isdir("/etc/netns") else []


def ip(*words, check=True):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise Failure(f"ip {words}: {done.stderr}")
    return done


def remove_those_of_dead_tests():
    for name in namespaces():
        owner = re.fullmatch(rf"{PREFIX}-(\d+)-.*", name)
        if owner and not is_alive(int(owner.group(1))):
            ip("netns", "del", name, check=False)
    for name in names_of_files():
        owner = re.fullmatch(rf"{PREFIX}-(\d+)-.*", name)
        if owner and not is_alive(int(owner.group(1))):
            shutil.rmtree(os.path.join("/etc/netns", name), ignore_errors=True)


def loopback_topology(rename, folder):
    """The default topology with its namespaces renamed; the path of the file."""
    with open(os.path.join(SOURCE, "topologies", "loopback.toml")) as file:
        text = re.sub(r'netns = "(\w+)"', lambda found: f'netns = "{rename(found.group(1))}"', file.read())
    path = os.path.join(folder, "renamed.toml")
    with open(path, "w") as file:
        file.write(text)
    return path


class NetnsCard(Card):
    """A card up with --netns; by default in namespaces of its own, with `own_names=False` in ns0, ns0_1 and ns1."""

    def __init__(self, own_names=True, mark="a", **options):
        super().__init__(options=["--netns"], **options)
        self.mark = mark
        self.own_names = own_names
        if own_names and self.topology is None:
            self.topology = loopback_topology(self.netns, self.folder)
        remove_those_of_dead_tests()

    def netns(self, short):
        return f"{PREFIX}-{os.getpid()}-{self.mark}-{short}" if self.own_names else short

    def netns_of(self, device):
        return self.netns(PLACES[device][0])

    def inside(self, device, *words):
        """A command line that runs in the namespace of a device, as `ip netns exec` does it."""
        return ["ip", "netns", "exec", self.netns_of(device), *map(str, words)]

    def at(self, device, *words, timeout=30, check=True, **options):
        """Runs a command in the namespace of a device to its end, with nothing of rdmalab in its environment."""
        done = subprocess.run(
            self.inside(device, *words), capture_output=True, text=True, timeout=timeout * harness.TIME_FACTOR, **options
        )
        if check and done.returncode != 0:
            raise Failure(f"{words} at {device}: exit {done.returncode}\n{harness.indent(done.stdout + done.stderr)}")
        return done

    def start_at(self, device, *words, **options):
        """Starts a program that sees the card, in the namespace of a device."""
        return self.start(*self.inside(device, *words), **options)

    def run_at(self, device, *words, **options):
        return self.run(*self.inside(device, *words), **options)

    def interface(self, device):
        return json.loads(self.at(device, "ip", "-j", "address", "show", "dev", PLACES[device][1]).stdout)[0]

    def check_nothing_left(self):
        super().check_nothing_left()
        mine = [name for name in namespaces() if name.startswith(f"{PREFIX}-{os.getpid()}-{self.mark}-")]
        if not self.own_names:
            mine += [name for name in namespaces() if name in ("ns0", "ns0_1", "ns1")]
        mine += [name for name in names_of_files() if name.startswith(f"{PREFIX}-{os.getpid()}-{self.mark}-")]
        if mine:
            raise Failure(f"namespaces were left behind: {mine}")


@contextlib.contextmanager
def the_names_of_the_default_topology():
    """Lets one test at a time use ns0, ns0_1 and ns1; skips it when somebody else has them."""
    with open("/tmp/rdmalab-test-netns.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        taken = [name for name in ("ns0", "ns0_1", "ns1") if name in namespaces()]
        if taken:
            raise unittest.SkipTest(f"this machine has namespaces {taken} already")
        yield
