"""Algorithms in processes of their own: served events, enforced and reported rates, and every way to end badly, with
traffic that goes on."""

import os
import signal
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, ".."), os.path.join(HERE, "..", "programs")]
import harness
from frames import capture, check_capture
from harness import Card, wait_until
from traffic import EAGER, LINE_RATE, Process, congestion, endless, is_slow, lowest_rate, mark, module, pf, throughput


def state_of(card):
    return [process["state"] for process in pf(card)["processes"]]


class Served(unittest.TestCase):
    @harness.costs(timeout=120)
    def test_reports_come_and_nothing_is_slowed_down_in_report_only_mode(self):
        for words in (["--layout", "3.4"], ["--layout", "3.1"], ["--mailbox"]):
            with self.subTest(words), Card() as card, endless(card):
                congestion(card, "--flows", "all")
                process = Process(card, "--algo", "pure_ecn", "--report-only", *words)
                process.wait_state("Active")
                mark(card, "100%")
                self.assertTrue(wait_until(lambda: any(rate < LINE_RATE // 2 for _, rate in process.reports()), 20))
                self.assertEqual(lowest_rate(card), LINE_RATE)
                self.assertEqual(pf(card)["counters"]["packets_paced"], 0)
                qpns = {flow["qpn"] for flow in pf(card)["flows"]}
                self.assertTrue({qpn for qpn, _ in process.reports()} <= qpns)
                summary = process.end()
                self.assertGreater(summary["cnp"], 10)
                self.assertGreater(summary["tx"], 100)

    @harness.costs(timeout=120)
    def test_answers_are_enforced_and_the_built_in_algorithm_follows_a_killed_process(self):
        with Card() as card, endless(card):
            congestion(card, "--flows", "all", *EAGER)
            before = throughput(card)
            process = Process(card, "--algo", "dcqcn")
            process.wait_state("Active")
            card.rdmalab("cc", "--name", card.name, "--param", "1=1000")  # as EAGER
            mark(card, "100%")
            self.assertTrue(wait_until(lambda: is_slow(card), 20), lowest_rate(card))
            self.assertLess(min(throughput(card) for _ in range(3)), 0.7 * before)
            self.assertFalse(pf(card)["flows"][0]["internal"])
            os.kill(process.pid, signal.SIGKILL)
            self.assertTrue(wait_until(lambda: state_of(card) == [], 5))
            self.assertTrue(pf(card)["flows"][0]["internal"])
            self.assertTrue(wait_until(lambda: is_slow(card), 20), "now by the built-in one")
            mark(card, "0")
            self.assertTrue(wait_until(lambda: lowest_rate(card) == LINE_RATE, 30))

    @harness.costs(timeout=120)
    def test_probes_measure_the_way_and_can_be_captured(self):
        with Card() as card, endless(card):
            congestion(card, "--flows", "all")
            process = Process(card, "--algo", "rtt", "--report-only")
            process.wait_state("Active")
            with capture(card, "p1") as path:
                self.assertTrue(wait_until(lambda: pf(card)["counters"]["probes_answered"] > 20, 20))
            check_capture(path)
            self.assertGreater(process.end()["rtt"], 10)

    @harness.costs(timeout=120)
    def test_only_flows_of_rdma_cm_are_served_unless_told_otherwise(self):
        with Card() as card:
            process = Process(card, "--algo", "pure_ecn", "--report-only")
            process.wait_state("Active")
            with endless(card):
                mark(card, "20%")
                time.sleep(0.5)
                self.assertEqual(process.reports(), [])
                self.assertTrue(all(flow["internal"] for flow in pf(card)["flows"]))
            mark(card, "0")
            with endless(card, by_cm=True):
                mark(card, "20%")
                self.assertTrue(wait_until(process.reports, 10))
                self.assertTrue(any(not flow["internal"] for flow in pf(card)["flows"]))

    def test_several_workers_share_the_flows(self):
        with Card() as card:
            congestion(card, "--flows", "all", "--acks-per-event", "1")
            process = Process(card, "--algo", "dcqcn", "--workers", "3")
            process.wait_state("Active")
            with endless(card), endless(card), endless(card):
                mark(card, "1%")
                throughput(card)
            self.assertEqual(process.errors(), [])
            self.assertGreater(process.end()["events"], 100)

    def test_events_can_be_lost_and_are_counted(self):
        with Card() as card, endless(card):
            congestion(card, "--flows", "all", "--event-loss", "50%")
            process = Process(card, "--algo", "pure_ecn", "--report-only")
            process.wait_state("Active")
            throughput(card, 0.5)
            counters = pf(card)["counters"]
            self.assertGreater(counters["tx_event_injected_drop"], 0.3 * counters["tx_events"])
            self.assertGreater(process.end()["lost"], 0)

    def test_parameters_are_listed_and_set_while_it_runs(self):
        with Card() as card, endless(card):
            process = Process(card, "--algo", "pure_ecn", "--report-only")
            process.wait_state("Active")
            listed = lambda: pf(card)["processes"][0]["parameters"]
            self.assertTrue(wait_until(listed, 5))
            self.assertEqual(listed()[0]["value"], 58982)
            card.rdmalab("cc", "--name", card.name, "--param", "0=60000", "--param", "2=128")
            self.assertEqual([row["value"] for row in listed()][:3], [60000, 52428, 128])
            done = card.rdmalab("cc", "--name", card.name, "--param", "0=70000", check=False)
            self.assertIn("expected 1 to 65536, found 70000", done.stderr)
            self.assertIn("pure ECN", card.rdmalab("cc", "--name", card.name))


class InLine(unittest.TestCase):
    def test_the_second_waits_until_the_first_has_gone(self):
        with Card() as card:
            first = Process(card, "--algo", "dcqcn")
            first.wait_state("Active")
            second = Process(card, "--algo", "pure_ecn")
            second.wait_state("Standby")
            other = Process(card, "--device", "mlx5_0", "--algo", "dcqcn")
            other.wait_state("Active")
            self.assertEqual(state_of(card), ["Active", "Standby"])
            os.kill(first.pid, signal.SIGKILL)
            second.wait_state("Active")
            self.assertEqual(second.states(), ["Standby", "Active"])
            self.assertIsNotNone(second.end())
            self.assertEqual(state_of(card), [])

    def test_processes_can_be_deactivated_and_activated_again(self):
        with Card() as card:
            process = Process(card, "--algo", "dcqcn")
            process.wait_state("Active")
            congestion(card, "--algorithms", "false")
            process.wait_state("Deactivated")
            congestion(card, "--algorithms", "true")
            process.wait_state("Active")

    def test_a_card_that_ends_is_an_error(self):
        with Card() as card:
            process = Process(card, "--algo", "dcqcn")
            process.wait_state("Active")
            card.rdmalab("down", "--name", card.name)
            process.wait_state("Error")
            process.wait(5)
            self.assertIn("the card has ended", process.errors()[0][1])

    def test_wrong_devices_and_modules_are_one_clear_error_each(self):
        cases = {
            ("--device", "mlx5_3"): "expected mlx5_1, found mlx5_3",
            ("--device", "mlx5_9"): "no device",
            ("--algo", "no_such"): "expected a path, or one of",
            ("--algo", module("other_layout")): "expected version 1",
            ("--algo", module("crash_in_init")): "has crashed",
            ("--algo", module("loop_in_init"), "--watchdog-ms", "200"): "did not return",
            ("--workers", "0"): "workers: expected 1 to 64, found 0",
        }
        with Card() as card:
            for words, expected in cases.items():
                with self.subTest(words):
                    process = Process(card, *words)
                    self.assertTrue(process.wait(10), words)
                    self.assertEqual(len(process.errors()), 1, process.output)
                    self.assertIn(expected, process.errors()[0][1])
                    self.assertEqual(process.returncode(), 1)
                    self.assertEqual(state_of(card), [])


class Misdeeds(unittest.TestCase):
    def commit(self, name, expected, *words):
        with Card() as card, endless(card) as pair:
            congestion(card, "--flows", "all", *EAGER)
            dump = os.path.join(card.folder, "coredump.txt")
            process = Process(card, "--algo", module(name), "--coredump", dump, *words)
            process.wait_state("Active")
            mark(card, "100%")
            process.wait_state("Error")
            self.assertTrue(process.wait(10))
            self.assertEqual(len(process.errors()), 1)
            self.assertIn(expected, process.errors()[0][1])
            self.assertTrue(wait_until(lambda: state_of(card) == [], 5))
            self.assertTrue(wait_until(lambda: is_slow(card), 20), "the built-in algorithm goes on")
            self.assertGreater(throughput(card, 0.5), 0)
            after = Process(card, "--algo", "dcqcn")
            after.wait_state("Active")
            self.assertTrue(pair.client.running())
            if os.path.exists(dump):
                with open(dump) as file:
                    return file.read()
            return ""

    def test_a_crash(self):
        dump = self.commit("crash", "has crashed: Segmentation fault at address 0x0")
        for words in ("backtrace", "doca_pcc_dev_user_algo", "event", "type 2", "flow 0x"):
            self.assertIn(words, dump)

    def test_a_stack_that_overflows(self):
        self.assertIn("backtrace", self.commit("overflow_stack", "has crashed: Segmentation fault"))

    def test_a_loop(self):
        self.assertIn("doca_pcc_dev_user_algo", self.commit("loop", "did not return", "--watchdog-ms", "300"))

    def test_a_rate_of_zero(self):
        self.commit("rate_zero", "a rate of 0: expected 1 to 1048576")

    def test_a_rate_above_line_rate(self):
        self.commit("rate_above", "a rate of 1048577: expected 1 to 1048576")

    @harness.costs(timeout=120)
    def test_a_process_that_stands_still_is_given_up_by_the_card(self):
        with Card() as card, endless(card):
            congestion(card, "--flows", "all", "--patience", "300ms", *EAGER)
            process = Process(card, "--algo", "pure_ecn")
            process.wait_state("Active")
            os.kill(process.pid, signal.SIGSTOP)
            mark(card, "100%")
            self.assertTrue(wait_until(lambda: state_of(card) == ["Error"], 10))
            self.assertTrue(wait_until(lambda: is_slow(card), 20))
            self.assertEqual(pf(card)["counters"]["fallbacks"], 1)
            os.kill(process.pid, signal.SIGCONT)
            process.wait_state("Error")
            process.wait(5)
            self.assertIn("the card has given up the process", process.errors()[0][1])


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        harness.list_tests(sys.modules["__main__"])
    else:
        unittest.main()
