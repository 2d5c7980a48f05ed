"""A bad cable: 1 % loss, 0.5 % reordering, 0.5 % duplication and 0.1 % corruption together. RC completes and every byte
of 1 GiB per verb is right."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "..", "programs"))
import data
import harness
import perftest
from data import GIB, MIB
from harness import Card
from perftest import Case

IMPAIRMENTS = ["--loss", "1%", "--reorder", "0.5%", "--duplicate", "0.5%", "--corrupt", "0.1%"]
# A short ACK timeout (4.096 us * 2^10 = 4.2 ms) keeps the waits for lost last packets short.
OPTIONS = ["--mtu", 4096, "--timeout", 10, "--sizes", data.comma([65536, 4097, 1, 262144]), "--depth", 32]


class Lossy(unittest.TestCase):
    def move(self, verb, total, timeout):
        with Card() as card:
            card.link(*IMPAIRMENTS)
            options = ["--messages", total] if verb in ("fetch_add", "compare_swap") else ["--total", total]
            report = data.move(card, verb, *OPTIONS, *options, "--stall-limit", timeout, timeout=timeout)
            counters = card.counters()
            self.check_faults_happened(counters)
            print(f"{verb}: {report['bytes'] / MIB:.0f} MiB in {report['seconds']:.1f} s")

    def check_faults_happened(self, counters):
        directions = counters["cables"]["cable0"].values()
        for fault in ("lost", "reordered", "duplicated", "corrupted"):
            self.assertGreater(sum(counted[fault] for counted in directions), 0, f"{fault} frames")
        functions = counters["functions"]
        self.assertGreater(functions["mlx5_2"]["rx_icrc_errors"] + functions["mlx5_3"]["rx_icrc_errors"], 0)
        self.assertGreater(functions["mlx5_2"]["retransmitted_frames"] + functions["mlx5_3"]["retransmitted_frames"], 0)

    # Not here: the ibv_*_pingpong programs. The side that is done first destroys its QPs without a
    # word, so when the last ACK is lost the other side runs out of retries, on any adapter.

    def test_every_perftest_tool_completes(self):
        with Card() as card:
            card.link(*IMPAIRMENTS)
            for verb in ("write", "read", "send", "atomic"):
                for metric in ("bw", "lat"):
                    case = Case(verb, metric, "RC", ["-u", 10])
                    pair = perftest.run_case(card, case)
                    perftest.check_rows(case, pair.client.stdout)
            card.wait_idle()

    def test_faults_are_seeded(self):
        """Two cards with one seed lose the same frames of the same traffic."""
        counted = []
        for _ in range(2):
            with Card(seed=7) as card:
                card.link("--loss", "5%")
                # UC sends no answers and repeats nothing, so the traffic does not depend on timing.
                perftest.run_case(card, Case("write", "bw", "UC", ["-n", 1000, "-s", 1000]))
                counted.append(card.counters()["cables"]["cable0"])
        self.assertGreater(counted[0]["b_to_a"]["lost"] + counted[0]["a_to_b"]["lost"], 0)
        self.assertEqual(counted[0], counted[1])

    def test_one_direction_only(self):
        with Card() as card:
            card.link("--loss", "10%", "--direction", "b_to_a")
            data.move(card, "write", *OPTIONS, "--total", 4 * MIB)
            cables = card.counters()["cables"]["cable0"]
            self.assertGreater(cables["b_to_a"]["lost"], 0)
            self.assertEqual(cables["a_to_b"]["lost"], 0)


def add(verb, total, name):
    @harness.costs(timeout=300)
    def test(self):
        self.move(verb, total, 250)

    setattr(Lossy, f"test_{verb}_{name}", test)


for verb_ in data.BULK_VERBS:
    add(verb_, GIB, "one_gib")
for verb_ in ("fetch_add", "compare_swap"):
    add(verb_, 20_000, "values")

if __name__ == "__main__":
    harness.main()
