"""The built-in algorithm and the settings: a marked cable makes unmodified programs slow, a clean one lets them recover."""

import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, ".."), os.path.join(HERE, "..", "programs")]
import harness
from harness import Card, wait_until
from traffic import EAGER, LINE_RATE, congestion, endless, is_slow, lowest_rate, mark, pf, throughput


class BuiltIn(unittest.TestCase):
    @harness.costs(timeout=120)
    def test_marks_slow_a_program_down_until_they_end(self):
        with Card() as card, endless(card):
            congestion(card, *EAGER)
            before = throughput(card)
            mark(card, "100%")
            self.assertTrue(wait_until(lambda: is_slow(card), 20), lowest_rate(card))
            slow = min(throughput(card) for _ in range(3))
            self.assertLess(slow, 0.7 * before, f"Gb/s, {before:.2f} without marks")
            mark(card, "0")
            self.assertTrue(wait_until(lambda: lowest_rate(card) == LINE_RATE, 20), "the limit is given up")
            after = max(throughput(card) for _ in range(3))
            self.assertGreater(after, 1.3 * slow, f"Gb/s, {before:.2f} before, {slow:.2f} with marks")

    @harness.costs(timeout=120)
    def test_computed_rates_need_not_be_enforced(self):
        with Card() as card, endless(card):
            congestion(card, "--pacing", "false", *EAGER)
            mark(card, "100%")
            self.assertTrue(wait_until(lambda: card.counters()["functions"]["mlx5_3"]["rp_cnp_handled"] > 100, 20))
            self.assertEqual(lowest_rate(card), LINE_RATE)
            self.assertEqual(pf(card)["counters"]["packets_paced"], 0)

    def test_without_marks_nothing_is_paced_or_watched(self):
        with Card() as card, endless(card):
            throughput(card, 0.3)
            counters = pf(card)["counters"]
            self.assertEqual({name: value for name, value in counters.items() if value}, {})

    def test_rate_one_is_the_rate_of_the_cable(self):
        with Card() as card:
            self.assertEqual(pf(card)["line_rate_bps"], 100 * 10**9)
            congestion(card, "--line-rate", "40Gbit")
            self.assertEqual(pf(card)["line_rate_bps"], 40 * 10**9)
            card.link("--rate", "25Gbit")
            self.assertEqual(pf(card)["line_rate_bps"], 25 * 10**9)
            card.link("--rate", "0")
            self.assertEqual(pf(card)["line_rate_bps"], 40 * 10**9)

    def test_the_interval_of_notifications_is_kept(self):
        with Card() as card:
            congestion(card, "--cnp-interval", "1s", "--pacing", "false")
            mark(card, "100%")
            with endless(card):
                throughput(card, 0.5)
                counters = card.counters()["functions"]["mlx5_2"]
                self.assertGreater(counters["np_ecn_marked_roce_packets"], 100)
                self.assertLess(counters["np_cnp_sent"], 10)


class Settings(unittest.TestCase):
    def refused(self, card, *words):
        done = card.rdmalab("cc", "--name", card.name, *words, check=False)
        self.assertNotEqual(done.returncode, 0, words)
        return done.stderr

    def test_settings_are_changed_and_shown(self):
        with Card() as card:
            words = "--cnp-interval 50us --tx-packets 16 --tx-delay 20us --cnps-per-event 2 --acks-per-event 4"
            words += " --event-loss 1% --probe-interval 1ms --probe-timeout 2ms --line-rate 25Gbit --flows all"
            words += " --patience 3s --algorithms false --dcqcn g=1000 --dcqcn ai_rate_mbps=40"
            settings = congestion(card, *words.split())["settings"]
            expected = {
                "cnp_interval_ns": 50_000,
                "tx_packets_per_event": 16,
                "tx_delay_ns": 20_000,
                "cnps_per_event": 2,
                "acks_per_event": 4,
                "event_loss": 0.01,
                "probe_interval_ns": 10**6,
                "probe_timeout_ns": 2 * 10**6,
                "line_rate_bps": 25 * 10**9,
                "flows": "all",
                "patience_ns": 3 * 10**9,
                "algorithms": False,
                "pacing": True,
                "dcqcn_g": 1000,
                "dcqcn_ai_rate_mbps": 40,
            }
            self.assertEqual({name: settings[name] for name in expected}, expected)
            self.assertEqual(congestion(card)["settings"], settings, "absent options keep their value")
            text = card.rdmalab("cc", "--name", card.name)
            for words in ("dcqcn_g", "50 us", "25 Gb/s", "mlx5_0", "mlx5_1", "built-in DCQCN"):
                self.assertIn(words, text)

    def test_bad_values_are_refused_with_what_was_expected(self):
        with Card() as card:
            before = congestion(card)
            self.assertIn("tx_packets_per_event", self.refused(card, "--tx-packets", "0"))
            self.assertIn("a number from 1 to 1000000, found \"0\"", self.refused(card, "--tx-packets", "0"))
            self.assertIn("event_loss", self.refused(card, "--event-loss", "2"))
            self.assertIn("cnp_interval", self.refused(card, "--cnp-interval", "4"))
            self.assertIn("one of cm, all", self.refused(card, "--flows", "some"))
            self.assertIn("dcqcn_g", self.refused(card, "--dcqcn", "g=0"))
            self.assertIn("an unknown key", self.refused(card, "--dcqcn", "gg=1"))
            self.assertIn("NAME=VALUE", self.refused(card, "--dcqcn", "g"))
            self.assertIn("--pacing", self.refused(card, "--pacing", "perhaps"))
            self.assertIn("no", self.refused(card, "--param", "0=1"))
            self.assertEqual(congestion(card), before)


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        harness.list_tests(sys.modules["__main__"])
    else:
        unittest.main()
