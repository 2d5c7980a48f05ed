"""Every byte checked: our verbs_data moves a seeded pattern with each verb, size class, transport and shape."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import Card, Failure

MIB = 1 << 20
GIB = 1 << 30
VERBS = ["write", "write_imm", "read", "send", "send_imm", "fetch_add", "compare_swap"]
BULK_VERBS = VERBS[:5]
MTUS = [256, 1024, 4096]


def sizes_around(mtu):
    """0, 1, MTU-1, MTU, MTU+1 and k MTU +- 1."""
    sizes = {0, 1, 3, 64, 65}
    for k in (1, 2, 7, 32):
        sizes |= {k * mtu - 1, k * mtu, k * mtu + 1}
    return sorted(sizes)


def move(card, verb, *options, transport="RC", timeout=60):
    """Runs verbs_data and returns its report."""
    argv = [harness.tool("verbs_data"), "--verb", verb, "--transport", transport, "--seed", harness.SEED, *options]
    program = card.run(*argv, timeout=timeout)
    report = json.loads(program.stdout)
    if report["verb"] != verb or report["messages"] == 0:
        raise Failure(f"verbs_data reports {report}")
    return report


def comma(numbers):
    return ",".join(str(number) for number in numbers)


class Data(unittest.TestCase):
    def test_inline_data(self):
        with Card() as card:
            for verb in ("write", "write_imm", "send", "send_imm"):
                move(card, verb, "--sizes", comma([0, 1, 8, 63, 64, 65, 128]), "--messages", 700, "--inline", 128)

    def test_scattered_and_gathered(self):
        with Card() as card:
            for verb in BULK_VERBS:
                move(card, verb, "--sizes", comma([1, 7, 1023, 1025, 70001]), "--messages", 200, "--sges", 4)

    def test_shared_receive_queue(self):
        with Card() as card:
            for verb in ("send", "send_imm", "write_imm"):
                move(card, verb, "--sizes", comma(sizes_around(1024)), "--messages", 400, "--srq")

    def test_unreliable_datagrams(self):
        with Card() as card:
            for verb in ("send", "send_imm"):
                for gid in (harness.GID_IPV6, harness.GID_IPV4):
                    options = ["--sizes", comma([0, 1, 40, 1023, 1024, 4096]), "--messages", 600, "--gid", gid]
                    move(card, verb, *options, "--mtu", 4096, transport="UD")

    def test_unreliable_connection(self):
        with Card() as card:
            for verb in ("write", "write_imm", "send", "send_imm"):
                move(card, verb, "--sizes", comma(sizes_around(1024)), "--messages", 400, transport="UC")

    def test_psn_wraps_around(self):
        """16 messages before the 24-bit PSN ends."""
        with Card() as card:
            for verb in VERBS:
                move(card, verb, "--psn", 2**24 - 16, "--sizes", comma([1, 4096, 5000]), "--messages", 96)

    @harness.costs(timeout=400, processors=2)
    def test_one_message_of_two_gibibytes(self):
        with Card() as card:
            for verb in ("write", "read"):
                report = move(
                    card, verb, "--sizes", 2 * GIB, "--messages", 1, "--depth", 1, "--mtu", 4096, timeout=180
                )
                self.assertEqual(report["bytes"], 2 * GIB)

    def test_the_whole_device_matrix(self):
        """Every pair of devices that have an address, both directions and to itself."""
        with Card() as card:
            for server in harness.IP_OF:
                for client in harness.IP_OF:
                    move(card, "write", "--server", server, "--client", client, "--sizes", 5000, "--messages", 50)


def add_sizes(verb, mtu):
    def test(self):
        with Card() as card:
            sizes = sizes_around(mtu)
            report = move(card, verb, "--sizes", comma(sizes), "--messages", 20 * len(sizes), "--mtu", mtu)
            self.assertEqual(report["bytes"], 20 * sum(sizes))

    setattr(Data, f"test_{verb}_sizes_around_mtu_{mtu}", test)


def add_atomic(verb):
    def test(self):
        with Card() as card:
            self.assertEqual(move(card, verb, "--messages", 5000)["messages"], 5000)

    setattr(Data, f"test_{verb}_values", test)


for verb_ in BULK_VERBS:
    for mtu_ in MTUS:
        add_sizes(verb_, mtu_)
for verb_ in ("fetch_add", "compare_swap"):
    add_atomic(verb_)

if __name__ == "__main__":
    harness.main()
