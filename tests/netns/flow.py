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


if __name__ == "__main__":
    main()
