"""Flow rules beside the kernel: a raw packet QP takes chosen datagrams away from the network interface of its device,
and the rest still reaches the kernel."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import main, wait_until
from netns_kit import PLACES, NetnsCard, needs_namespaces

SERVER, CLIENT = "mlx5_2", "mlx5_3"
SERVER_IP = PLACES[SERVER][2]
TAKEN, LEFT = 7471, 7472

# The ports of the datagrams that the kernel has got, one a line.
LISTENER = f"""
import select, socket
sockets = {{}}
for port in ({TAKEN}, {LEFT}):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind(("", port))
    sockets[one] = port
print("ready", flush=True)
while True:
    for one in select.select(list(sockets), [], [])[0]:
        one.recv(2000)
        print(sockets[one], flush=True)
"""
SENDER = """
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in sys.argv[2:]:
    one.sendto(b"x" * 100, (sys.argv[1], int(port)))
"""


@needs_namespaces
class Rules(unittest.TestCase):
    def sniffer(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        program = os.path.join(folder, "udp_sniffer")
        source = os.path.join(harness.SOURCE, "examples", "udp_sniffer", "udp_sniffer.c")
        subprocess.run(["cc", "-O1", source, "-o", program, "-libverbs"], check=True)
        return program

    def test_take_datagrams_away_from_the_kernel_and_leave_it_the_rest(self):
        with NetnsCard() as card:
            listener = card.start_at(SERVER, "/usr/bin/python3", "-c", LISTENER)
            wait_until(lambda: "ready" in listener.stdout, 10)

            def send(*ports):
                card.at(CLIENT, "/usr/bin/python3", "-c", SENDER, SERVER_IP, *map(str, ports))

            def heard():
                return [int(line) for line in listener.stdout.split()[1:]]

            send(TAKEN, LEFT)
            wait_until(lambda: len(heard()) == 2, 10)
            self.assertEqual(sorted(heard()), [TAKEN, LEFT])
            sniffer = card.start_at(SERVER, self.sniffer(), SERVER, "--take", TAKEN, "--count", 5)
            wait_until(lambda: "ready" in sniffer.stdout or not sniffer.running(), 10)
            send(TAKEN, LEFT, TAKEN, LEFT, LEFT)
            self.assertTrue(sniffer.wait(30), sniffer.report("udp_sniffer"))
            self.assertIn("taken: 2 packets, 284 bytes", sniffer.stdout, sniffer.report("udp_sniffer"))
            wait_until(lambda: len(heard()) == 5, 10)
            self.assertEqual(heard()[2:], [LEFT] * 3)
            send(TAKEN)  # the rules went with the program
            wait_until(lambda: len(heard()) == 6, 10)
            self.assertEqual(heard()[5], TAKEN)


@needs_namespaces
class Protocols(unittest.TestCase):
    """Packets that the kernel makes, each kind taken by a rule of its own."""

    def taken(self, card, kind, value, count, make):
        """Lengths of the packets that a rule at the server takes while the client makes them."""
        watcher = card.start_at(SERVER, harness.tool("verbs_watch"), SERVER, kind, value, count)
        wait_until(lambda: "ready" in watcher.stdout or not watcher.running(), 10)
        make()
        wait_until(lambda: not watcher.running(), 20)
        if watcher.returncode() != 0:
            raise harness.Failure(watcher.report(f"verbs_watch {kind} {value}"))
        return [int(line) for line in watcher.stdout.split()[1:]]

    def test_arp_icmp_tcp_and_ipv6(self):
        server_ip6 = PLACES[SERVER][3]
        with NetnsCard() as card:
            interface = PLACES[CLIENT][1]

            def client(*words):
                return card.at(CLIENT, *words, check=False, timeout=10)

            def connect():
                code = f"import socket; s = socket.socket(); s.settimeout(1); s.connect(('{SERVER_IP}', 4100))"
                client("/usr/bin/python3", "-c", code)

            client("ping", "-n", "-c", 1, "-W", 1, SERVER_IP)  # the neighbour is known
            echo = ["ping", "-n", "-c", 2, "-i", 0.1, "-W", 0.2]
            self.assertEqual(self.taken(card, "ipv4", 1, 2, lambda: client(*echo, "-s", 100, SERVER_IP)), [142, 142])
            self.assertGreaterEqual(min(self.taken(card, "tcp", 4100, 1, connect)), 60)
            pings = lambda: client(*echo, "-s", 100, f"{server_ip6}%{interface}")
            self.assertTrue(all(length >= 60 for length in self.taken(card, "ipv6", 58, 1, pings)))
            client("ip", "neighbour", "flush", "dev", interface)
            arps = self.taken(card, "ether", 0x0806, 1, lambda: client(*echo, SERVER_IP))
            self.assertTrue(all(length in (42, 60) for length in arps), arps)

    def test_vxlan_by_its_network_and_by_what_is_inside(self):
        with NetnsCard() as card:
            made = card.at(CLIENT, "ip", "link", "add", "vx0", "address", "02:00:00:00:aa:01", "type", "vxlan", "id",
                           0x1234, "remote", SERVER_IP, "dstport", 4789, check=False)
            if made.returncode != 0:
                self.skipTest(f"the kernel has no VXLAN: {made.stderr.strip()}")
            card.at(CLIENT, "ip", "address", "add", "192.168.7.1/24", "dev", "vx0")
            card.at(CLIENT, "ip", "link", "set", "vx0", "up")
            card.at(CLIENT, "ip", "neighbour", "add", "192.168.7.2", "lladdr", "02:00:00:00:aa:02", "dev", "vx0")

            def send():
                card.at(CLIENT, "/usr/bin/python3", "-c", SENDER, "192.168.7.2", "5555")

            # 100 bytes in UDP, IPv4 and Ethernet, in VXLAN, UDP, IPv4 and Ethernet.
            length = 100 + 8 + 20 + 14 + 8 + 8 + 20 + 14
            for kind, value in (("vxlan", 0x1234), ("inner-udp", 5555), ("inner-ipv4", 17)):
                with self.subTest(kind=kind):
                    self.assertIn(length, self.taken(card, kind, value, 1, send))


if __name__ == "__main__":
    main()
