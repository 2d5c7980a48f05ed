"""What the kernel sends through the interfaces of a card: ARP, ping, UDP, TCP, ssh, over its switch and cable."""

import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import netns_kit
from harness import costs, cpu_seconds, main, wait_until
from netns_kit import MAC_OF, PLACES, NetnsCard, needs_namespaces

SERVER, CLIENT, NEIGHBOUR = "mlx5_2", "mlx5_3", "mlx5_4"
SERVER_IP, CLIENT_IP, NEIGHBOUR_IP = (PLACES[device][2] for device in (SERVER, CLIENT, NEIGHBOUR))

# A server that sends back the SHA-256 of each stream; a client that sends `size` seeded bytes and prints both digests.
HASH_SERVER = """
import hashlib, socket
listener = socket.create_server(("", 4100))
print("ready", flush=True)
while True:
    stream, _ = listener.accept()
    digest = hashlib.sha256()
    while piece := stream.recv(1 << 16):
        digest.update(piece)
    stream.sendall(digest.hexdigest().encode())
    stream.close()
"""
HASH_CLIENT = """
import hashlib, random, socket, sys
address, size = sys.argv[1], int(sys.argv[2])
source, digest = random.Random(7), hashlib.sha256()
stream = socket.create_connection((address, 4100))
while size > 0:
    piece = source.randbytes(min(size, 1 << 20))
    size -= len(piece)
    digest.update(piece)
    stream.sendall(piece)
stream.shutdown(socket.SHUT_WR)
print(stream.recv(100).decode(), digest.hexdigest())
"""


def port_frames(card):
    return card.counters()["ports"]["p1"]["tx_frames"]


def ping(card, device, address, count=5, interval=0.01, check=True, words=()):
    """(received, round trips in ms)"""
    done = card.at(device, "ping", "-n", "-c", count, "-i", interval, "-W", 2, *words, address, check=check)
    times = [float(value) for value in re.findall(r"time=([\d.]+) ms", done.stdout)]
    received = re.search(r"(\d+) received", done.stdout)
    return int(received.group(1)) if received else 0, times


@needs_namespaces
class Interfaces(unittest.TestCase):
    def test_have_the_macs_and_addresses_of_their_functions(self):
        with NetnsCard() as card:
            for device, (_, name, address, link_local) in PLACES.items():
                found = card.interface(device)
                self.assertEqual(found["address"], MAC_OF[device])
                self.assertEqual(found["mtu"], 9000)
                self.assertIn("UP", found["flags"])
                addresses = {(entry["local"], entry["prefixlen"]) for entry in found["addr_info"]}
                self.assertEqual(addresses, {(address, 24), (link_local, 64)})
                names = card.at(device, "ls", "/sys/class/net").stdout.split()
                self.assertEqual(sorted(names), sorted(["lo", name]))

    def test_are_what_the_topology_says(self):
        netns = f"{netns_kit.PREFIX}-{os.getpid()}-a-own"
        with NetnsCard(topology=None) as card:
            pass  # only to have a folder for the file
        path = f"/tmp/{netns}.toml"
        with open(path, "w") as file:
            file.write(
                f"""netdev_mtu = 1500
[[function]]
device = "mlx5_0"
kind = "pf"
ips = ["192.0.2.1/25", "fd00::1/48"]
mac = "02:00:00:00:00:77"
netns = "{netns}"
netdev = "eth7"
[[function]]
device = "mlx5_1"
kind = "pf"
netns = "{netns}"
"""
            )
        try:
            with NetnsCard(topology=path) as card:
                found = json.loads(netns_kit.ip("-n", netns, "-j", "address").stdout)
                found = {entry["ifname"]: entry for entry in found}
                self.assertEqual(set(found), {"lo", "eth7", "enp3s0f1np1"})
                self.assertEqual((found["eth7"]["mtu"], found["eth7"]["address"]), (1500, "02:00:00:00:00:77"))
                addresses = {f"{entry['local']}/{entry['prefixlen']}" for entry in found["eth7"]["addr_info"]}
                self.assertEqual(addresses, {"192.0.2.1/25", "fd00::1/48", "fe80::ff:fe00:77/64"})
                self.assertEqual([f["netdev"] for f in card.status()["functions"]], ["eth7", "enp3s0f1np1"])
        finally:
            os.unlink(path)


@needs_namespaces
class Ping(unittest.TestCase):
    def test_crosses_the_cable_and_fills_the_arp_table(self):
        with NetnsCard() as card:
            before = port_frames(card)
            self.assertEqual(ping(card, CLIENT, SERVER_IP)[0], 5)
            self.assertGreaterEqual(port_frames(card) - before, 5)
            neighbours = json.loads(card.at(CLIENT, "ip", "-j", "neigh", "show", SERVER_IP).stdout)
            self.assertEqual([entry["lladdr"] for entry in neighbours], [MAC_OF[SERVER]])
            counted = card.counters()["functions"][SERVER]
            self.assertGreaterEqual(counted["netdev_tx_frames"], 5)
            self.assertGreaterEqual(counted["netdev_rx_frames"], 5)
            self.assertEqual((counted["netdev_rx_dropped"], counted["netdev_malformed"]), (0, 0))

    def test_within_one_e_switch_needs_no_cable(self):
        with NetnsCard() as card:
            self.assertEqual(ping(card, SERVER, NEIGHBOUR_IP, 1)[0], 1)  # ARP is broadcast over the cable as well
            before = card.counters()["ports"]["p0"]["tx_frames"]
            self.assertEqual(ping(card, SERVER, NEIGHBOUR_IP, 20)[0], 20)
            self.assertLess(card.counters()["ports"]["p0"]["tx_frames"] - before, 10)

    def test_of_loopback_own_and_link_local_addresses(self):
        with NetnsCard() as card:
            for address in ("127.0.0.1", "::1", SERVER_IP, PLACES[SERVER][3]):
                scope = f"%{PLACES[SERVER][1]}" if address.startswith("fe80") else ""
                self.assertEqual(ping(card, SERVER, address + scope)[0], 5, address)
            self.assertEqual(ping(card, CLIENT, f"{PLACES[SERVER][3]}%{PLACES[CLIENT][1]}")[0], 5)

    def test_of_every_size_up_to_fragments(self):
        with NetnsCard() as card:
            for size in (0, 1, 17, 18, 1472, 8972, 20000, 65000):
                self.assertEqual(ping(card, CLIENT, SERVER_IP, 2, words=["-s", size])[0], 2, size)

    def test_of_all_nodes_reaches_every_interface(self):
        with NetnsCard() as card:
            address = f"ff02::1%{PLACES[CLIENT][1]}"
            done = card.at(CLIENT, "ping", "-n", "-c", 2, "-i", 0.1, "-W", 2, address).stdout
            answers = set(re.findall(r"from (fe80::[0-9a-f:]+)%", done))
            self.assertEqual(answers, {place[3] for place in PLACES.values()})

    def test_shows_the_delay_of_the_cable(self):
        with NetnsCard() as card:
            ping(card, CLIENT, SERVER_IP, 1)
            card.link("--delay", "5ms")
            received, times = ping(card, CLIENT, SERVER_IP, 10)
            self.assertEqual(received, 10)
            self.assertGreaterEqual(min(times), 10)
            card.link("--clear")
            self.assertLess(min(ping(card, CLIENT, SERVER_IP, 10)[1]), 5)

    def test_shows_the_loss_of_the_cable(self):
        with NetnsCard() as card:
            ping(card, CLIENT, SERVER_IP, 1)
            card.at(CLIENT, "ip", "neigh", "replace", SERVER_IP, "lladdr", MAC_OF[SERVER], "dev", PLACES[CLIENT][1])
            card.link("--direction", "b-to-a", "--loss", "30%")
            received, _ = ping(card, CLIENT, SERVER_IP, 200, interval=0.002, check=False)
            self.assertGreater(received, 100)
            self.assertLess(received, 180)
            lost = card.counters()["cables"]["cable0"]["b_to_a"]["lost"]
            self.assertGreaterEqual(lost, 200 - received)


@needs_namespaces
class Trouble(unittest.TestCase):
    def test_an_interface_that_is_down_drops_and_counts(self):
        with NetnsCard() as card:
            self.assertEqual(ping(card, CLIENT, SERVER_IP, 1)[0], 1)
            card.at(SERVER, "ip", "link", "set", PLACES[SERVER][1], "down")
            before = card.counters()["functions"][SERVER]["netdev_rx_dropped"]
            card.at(CLIENT, "ping", "-c", 2, "-i", 0.1, "-W", 1, SERVER_IP, check=False)
            self.assertGreaterEqual(card.counters()["functions"][SERVER]["netdev_rx_dropped"] - before, 2)
            card.at(SERVER, "ip", "link", "set", PLACES[SERVER][1], "up")
            self.assertEqual(ping(card, CLIENT, SERVER_IP, 1)[0], 1)

    def test_an_interface_that_is_deleted_leaves_the_card_at_rest(self):
        with NetnsCard() as card:
            card.at(SERVER, "ip", "link", "del", PLACES[SERVER][1])
            self.assertEqual(ping(card, CLIENT, NEIGHBOUR_IP, 3)[0], 3)
            before = cpu_seconds(card.pid)
            time.sleep(2)
            self.assertLess(cpu_seconds(card.pid) - before, 0.5)
            self.assertIn(SERVER, card.run_at(SERVER, "ibv_devices").stdout)

    def test_a_namespace_that_is_deleted_changes_nothing_for_others(self):
        with NetnsCard() as card:
            netns_kit.ip("netns", "del", card.netns_of(SERVER))
            self.assertEqual(ping(card, CLIENT, NEIGHBOUR_IP, 3)[0], 3)


@needs_namespaces
class Datagrams(unittest.TestCase):
    RECEIVER = """
import socket
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
for one, port in zip(sockets, (4791, 4792)):
    one.bind(("", port))
    one.settimeout(20)
print("ready", flush=True)
print(sockets[1].recv(100).decode())
sockets[0].settimeout(0.3)
try:
    print("4791:", sockets[0].recv(100))
except TimeoutError:
    print("nothing at 4791")
"""
    SENDER = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in (4791, 4792):
    sender.sendto(b"to the kernel", (sys.argv[1], port))
"""

    def test_of_the_roce_port_never_reach_the_kernel(self):
        with NetnsCard() as card:
            receiver = card.start_at(SERVER, "python3", "-c", self.RECEIVER)
            self.assertTrue(wait_until(lambda: "ready" in receiver.stdout, 20), receiver.report("receiver"))
            card.at(CLIENT, "python3", "-c", self.SENDER, SERVER_IP)
            receiver.wait(30)
            self.assertEqual(receiver.stdout.split("\n")[1:3], ["to the kernel", "nothing at 4791"])
            self.assertEqual(card.counters()["functions"][CLIENT]["netdev_malformed"], 1)  # no BTH in it


@needs_namespaces
class Tcp(unittest.TestCase):
    def check(self, size, *impairments, timeout=60):
        with NetnsCard() as card:
            server = card.start_at(SERVER, "python3", "-c", HASH_SERVER)
            self.assertTrue(wait_until(lambda: "ready" in server.stdout, 20), server.report("server"))
            if impairments:
                card.link(*impairments)
            done = card.at(CLIENT, "python3", "-c", HASH_CLIENT, SERVER_IP, size, timeout=timeout)
            theirs, ours = done.stdout.split()
            self.assertEqual(theirs, ours)
            return card.counters()

    @costs(processors=2)
    def test_delivers_every_byte(self):
        size = 256 << 20
        counters = self.check(size)
        self.assertGreater(counters["functions"][SERVER]["netdev_rx_bytes"], size)
        self.assertGreater(counters["cables"]["cable0"]["b_to_a"]["bytes"], size)
        self.assertEqual(counters["functions"][SERVER]["netdev_malformed"], 0)

    def test_delivers_every_byte_over_a_bad_cable(self):
        faults = ("--loss", "0.5%", "--reorder", "0.5%", "--duplicate", "0.5%", "--corrupt", "0.1%", "--delay", "20us")
        counters = self.check(16 << 20, *faults, timeout=100)
        for fault in ("lost", "duplicated", "reordered"):
            self.assertGreater(counters["cables"]["cable0"]["b_to_a"][fault], 0)

    def test_keeps_to_the_rate_of_the_cable(self):
        with NetnsCard() as card:
            server = card.start_at(SERVER, "iperf3", "-s", "-1", "--forceflush")
            card.link("--rate", "200Mbit")
            self.assertTrue(wait_until(lambda: "listening" in server.output, 20), server.report("server"))
            done = json.loads(card.at(CLIENT, "iperf3", "-J", "-t", 3, "-c", SERVER_IP).stdout)
            received = done["end"]["sum_received"]["bits_per_second"]
            self.assertLess(received, 205e6)
            self.assertGreater(received, 100e6)


@needs_namespaces
class OwnedSwitches(unittest.TestCase):
    """Programs own the switches of both PFs: what the kernel sends goes through their pipes like RDMA."""

    def own(self, card, side):
        owner = card.start(netns_kit.harness.tool("flow_owner"), side)
        self.assertTrue(wait_until(lambda: "ready" in owner.stdout or not owner.running(), 20))
        self.assertTrue(owner.running(), owner.report(side))
        return owner

    def test_ping_goes_through_their_pipes(self):
        with NetnsCard() as card:
            owners = [self.own(card, side) for side in ("egress", "ingress")]
            self.assertEqual(ping(card, CLIENT, SERVER_IP, 20)[0], 20)
            counted = lambda: re.findall(r"path0=(\d+) path1=(\d+)", owners[1].stdout)  # noqa: E731
            self.assertTrue(wait_until(lambda: counted() and sum(map(int, counted()[-1])) >= 20, 10), owners[1].stdout)
            for owner in owners:
                owner.kill_group()
            self.assertTrue(wait_until(lambda: ping(card, CLIENT, NEIGHBOUR_IP, 3, check=False)[0] == 3, 10))


@needs_namespaces
class Captures(unittest.TestCase):
    def test_show_frames_of_both_kinds_that_tshark_decodes(self):
        with NetnsCard() as card:
            path = os.path.join(card.folder, "frames.pcapng")
            capture = subprocess.Popen(
                [netns_kit.harness.LAUNCHER, "pcap", "--name", card.name, "--at", "p0", path],
                env={**os.environ, **card.environment},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            self.assertTrue(wait_until(lambda: card.status()["captures"], 10))
            ping(card, CLIENT, SERVER_IP, 3)
            server = card.start_at(SERVER, "rping", "-s", "-a", SERVER_IP, "-C", 3)
            wait_until(lambda: card.objects()["attached"] == 1 or not server.running(), 10)
            client = card.run_at(CLIENT, "rping", "-c", "-a", SERVER_IP, "-C", 3)
            self.assertEqual(client.returncode(), 0)
            capture.terminate()
            capture.wait(10)
            words = ["tshark", "-r", path, "-T", "fields", "-e", "frame.protocols", "-e", "_ws.malformed"]
            lines = subprocess.run(words, capture_output=True, text=True, timeout=60).stdout.splitlines()
            protocols = {line.split("\t")[0].split(":")[-1] for line in lines}
            self.assertIn("eth:ethertype:arp", {line.split("\t")[0] for line in lines})
            self.assertTrue(any("icmp" in line for line in lines), protocols)
            self.assertTrue(any("infiniband" in line for line in lines), protocols)
            self.assertFalse([line for line in lines if line.split("\t")[1:] not in ([], [""])])


@needs_namespaces
class Ssh(unittest.TestCase):
    """A session of unmodified ssh with an unmodified sshd, each in its namespace."""

    def prepare(self, folder):
        for name in ("host", "user"):
            path = os.path.join(folder, name)
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir("/run/sshd", 0o755)
        config = os.path.join(folder, "sshd_config")
        with open(config, "w") as file:
            file.write(
                f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\nPidFile none\n"
                "PermitRootLogin yes\nUsePAM no\nPasswordAuthentication no\n"
            )
        return config

    @unittest.skipUnless(os.path.exists("/usr/sbin/sshd"), "openssh-server is missing")
    def test_session_runs_commands_and_carries_a_file(self):
        with NetnsCard() as card:
            config = self.prepare(card.folder)
            server = card.start_at(SERVER, "/usr/sbin/sshd", "-D", "-e", "-f", config)
            self.assertTrue(wait_until(lambda: "listening" in server.output, 20), server.report("sshd"))
            options = ["-i", f"{card.folder}/user", "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes"]
            options += ["-o", f"UserKnownHostsFile={card.folder}/known", "-o", "LogLevel=ERROR", f"root@{SERVER_IP}"]
            done = card.at(CLIENT, "ssh", *options, "echo $SSH_CONNECTION; ip -br address show dev enp3s0f0s0")
            connection, address = done.stdout.splitlines()
            self.assertRegex(connection, rf"^{CLIENT_IP} \d+ {SERVER_IP} 22$")
            self.assertIn(f"{SERVER_IP}/24", address)
            content = os.urandom(4 << 20)
            words = card.inside(CLIENT, "ssh", *options, "sha256sum")
            done = subprocess.run(words, input=content, capture_output=True, timeout=60)
            self.assertEqual(done.stdout.split()[0].decode(), hashlib.sha256(content).hexdigest(), done.stderr)
            server.kill_group()


if __name__ == "__main__":
    main()
