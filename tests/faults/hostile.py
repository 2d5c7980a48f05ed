"""Whatever a client sends or writes, the card lives, other programs' traffic stays right, and nothing is left over."""

import contextlib
import os
import random
import re
import socket
import struct
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "..", "programs"))
import data
import harness
from harness import Card, is_alive



def protocol_version():
    with open(os.path.join(HERE, "..", "..", "src", "card", "ring_abi.h")) as file:
        return int(re.search(r"kVersion = (\d+);", file.read()).group(1))


MAGIC, VERSION = 0x726C6162, protocol_version()
OPS = list(range(0, 5)) + list(range(14, 56)) + [256, 257, 0xFFFFFFFF]
ADMIN = 256


class Hostile(unittest.TestCase):
    @contextlib.contextmanager
    def traffic(self, card):
        """A checked stream beside the attack; it must end well."""
        program = card.start(harness.tool("verbs_data"), "--verb", "write", "--total", 512 * data.MIB)
        harness.wait_until(lambda: card.objects()["qps"] >= 2, 10)
        yield
        self.assertTrue(is_alive(card.pid), "the card died")
        self.assertTrue(program.wait(60), program.report("traffic"))
        self.assertEqual(program.returncode(), 0, program.report("traffic"))
        card.wait_idle()

    def connect(self, card):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.settimeout(5)
        client.connect(card.socket_path())
        return client

    def send(self, client, message, descriptors=()):
        """False when the card has closed the connection, which is its right."""
        try:
            socket.send_fds(client, [message], list(descriptors)) if descriptors else client.send(message)
            client.recv(1 << 17)
            return True
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            return False

    def test_random_bytes(self):
        draw = random.Random(harness.SEED)
        with Card() as card, self.traffic(card):
            for _ in range(300):
                with self.connect(card) as client:
                    client.settimeout(0.05)
                    for _ in range(4):
                        if not self.send(client, draw.randbytes(draw.choice([1, 4, 15, 16, 17, 100, 5000, 60000]))):
                            break

    def test_right_headers_with_random_bodies(self):
        draw = random.Random(harness.SEED)
        with Card() as card, self.traffic(card):
            for _ in range(100):
                with self.connect(card) as client:
                    client.settimeout(0.05)
                    if draw.random() < 0.7:  # attached to a device, so that the other requests get further
                        self.send(client, self.request(3, struct.pack("<I", draw.randrange(5))))
                    for _ in range(40):
                        if not self.send(client, self.random_request(draw)):
                            break

    def request(self, op, body, length=None):
        return struct.pack("<IIII", MAGIC, VERSION, op, len(body) if length is None else length) + body

    def random_request(self, draw):
        words = [draw.choice([0, 1, 2, 3, 16, 64, 4096, 0x7FFFFFFF, 0xFFFFFFFF, draw.getrandbits(32)]) for _ in range(40)]
        body = struct.pack("<40I", *words)[: draw.choice([0, 4, 8, 12, 16, 20, 24, 32, 36, 44, 48, 96, 104, 160])]
        length = None if draw.random() < 0.9 else draw.getrandbits(32)
        return self.request(draw.choice(OPS), body, length)

    def test_random_administration_requests(self):
        draw = random.Random(harness.SEED)
        pieces = ['{"op":"', "link", "status", "pcap_start", '"', ",", "}", '"cable":"cable0"', '"loss":', "-1", "1e999",
                  "null", "[" * 1000, '"at":"p0"', '"at":7', "\\ud800", "\xff", "{", "}"]
        with Card() as card, self.traffic(card):
            for _ in range(300):
                with self.connect(card) as client:
                    client.settimeout(0.05)
                    text = "".join(draw.choice(pieces) for _ in range(draw.randrange(1, 12))).encode("latin-1")
                    self.send(client, self.request(ADMIN, text))

    def test_unasked_descriptors_are_closed(self):
        with Card() as card:
            before = harness.open_descriptors(card.pid)
            for _ in range(50):
                with self.connect(card) as client, open("/dev/null") as null:
                    client.settimeout(0.2)
                    self.send(client, self.request(1, bytes(16)), [null.fileno()] * 8)
                    self.send(client, b"junk", [null.fileno()] * 8)
            harness.wait_until(lambda: harness.open_descriptors(card.pid) <= before, 5)
            self.assertLessEqual(harness.open_descriptors(card.pid), before)

    def test_a_client_that_never_reads(self):
        with Card() as card, self.traffic(card):
            with self.connect(card) as client:
                client.setblocking(False)
                with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                    for _ in range(10_000):
                        client.send(self.request(2, b""))

    def test_many_idle_connections(self):
        with Card() as card, self.traffic(card):
            clients = [self.connect(card) for _ in range(200)]
            for client in clients:
                client.close()

    def test_random_bytes_in_the_rings(self):
        """A program scribbles over all memory that it shares with the card, and rings the doorbells."""
        with Card() as card:
            for seed in range(1, 6):
                with self.traffic(card):
                    program = card.start(harness.tool("verbs_scribble"), seed, 2)
                    self.assertTrue(program.wait(20), program.report("scribbler"))


if __name__ == "__main__":
    harness.main()
