"""RDMA CM in numbers: thousands of connects and disconnects, hundreds at once, storms of processes. The card may keep
nothing of them."""

import os
import re
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import CLIENT_DEVICE, IP_OF, SERVER_DEVICE, Card, wait_until

IP = IP_OF[SERVER_DEVICE]
PORT = 7471


class Scale(unittest.TestCase):
    def serve(self, card):
        server = card.start(harness.tool("cm_load"), "server", PORT, env={"RDMALAB_DEVICES": SERVER_DEVICE})
        self.assertTrue(wait_until(lambda: "listening" in server.stdout, 20), server.report("server"))
        return server

    def connect(self, card, connections, rounds, processes, timeout):
        words = ["client", IP, PORT, connections, rounds, processes]
        client = card.run(harness.tool("cm_load"), *words, env={"RDMALAB_DEVICES": CLIENT_DEVICE}, timeout=timeout)
        self.assertRegex(client.stdout, rf"^connected {connections * rounds * processes} in ")

    def wait_until_over(self, card, timeout=10):
        """Only the server's own session, id and port are left; timewait takes 67 ms, or as long as an MRA asked for."""
        idle = {"sessions": 1, "ids": 1, "ports": 1, "connections": 0}
        wait_until(lambda: card.status()["cm"] == idle, timeout)
        self.assertEqual(card.status()["cm"], idle)

    def end(self, card, server, served):
        os.kill(server.find("cm_load"), signal.SIGTERM)
        self.assertTrue(server.wait(10), server.report("server"))
        self.assertEqual(server.returncode(), 0, server.report("server"))
        self.assertIn(f"served {served}, 0 are left", server.stdout)
        card.wait_idle()
        self.assertEqual(set(card.status()["cm"].values()), {0})

    @harness.costs(timeout=300, processors=2)
    def test_five_thousand_connects_and_disconnects_leave_nothing(self):
        with Card() as card:
            server = self.serve(card)
            self.connect(card, 1, 500, 1, 60)
            self.wait_until_over(card)
            before = self.held_by(card, server)
            self.connect(card, 1, 5000, 1, 240)
            self.wait_until_over(card)
            wait_until(lambda: self.held_by(card, server)[:2] <= before[:2], 5)
            after = self.held_by(card, server)
            self.assertLessEqual(after[0], before[0], "descriptors of the card")
            self.assertLessEqual(after[1], before[1], "descriptors of the server")
            self.assertLessEqual(after[2], before[2] + 1024, "resident KiB of the card")
            self.assertLessEqual(after[3], before[3] + 1024, "resident KiB of the server")
            self.end(card, server, 5500)

    def held_by(self, card, server):
        pids = [card.pid, server.find("cm_load")]
        return [*map(harness.open_descriptors, pids), *map(harness.resident_kib, pids)]

    @harness.costs(timeout=180, processors=2)
    def test_five_hundred_connections_at_once(self):
        with Card() as card:
            server = self.serve(card)
            self.connect(card, 500, 2, 1, 120)
            self.wait_until_over(card)
            self.end(card, server, 1000)

    @harness.costs(timeout=180, processors=2)
    def test_a_storm_of_64_processes(self):
        with Card() as card:
            server = self.serve(card)
            self.connect(card, 1, 10, 64, 120)
            self.wait_until_over(card)
            self.end(card, server, 640)

    @harness.costs(timeout=180, processors=2)
    def test_a_storm_over_a_bad_cable(self):
        with Card() as card:
            card.link("--loss", "2%", "--reorder", "1%", "--duplicate", "1%", "--corrupt", "0.5%")
            server = self.serve(card)
            self.connect(card, 8, 2, 16, 150)
            card.link("--clear")
            self.wait_until_over(card, 40)
            self.end(card, server, 256)


if __name__ == "__main__":
    harness.main()
