"""kill -9 in the middle of traffic: of a client, of a server, of the card. The others learn of it by the right error in
its due time, nothing hangs, nothing stays behind, and a card that lives serves the next client."""

import os
import re
import signal
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
sys.path.insert(0, os.path.join(HERE, "..", "programs"))
import harness
import perftest
from harness import CLIENT_DEVICE, SERVER_DEVICE, Card, Failure, is_alive, reserved_port, wait_until
from perftest import Case

RETRY_EXCEEDED = 12  # IBV_WC_RETRY_EXC_ERR
# -u 14, 7 retries: 8 timeouts of 67 ms; IBTA lets a device take up to four times as long (9.7.6.1.3).
DUE_S = 8 * 4 * 0.067 + 1


class Deaths(unittest.TestCase):
    def start_traffic(self, card, port, tool, *flags):
        """An endless pair in full flight."""
        argv = [tool, "-p", port, "-x", 1, "-F", "-D", 60, "-s", 65536, *flags]
        if tool == "ib_send_bw":
            argv += ["-c", "RC"]
        pair = card.start_pair([*argv, "-d", SERVER_DEVICE], [*argv, "-d", CLIENT_DEVICE, "127.0.0.1"], port)
        start = card.counters()["ports"]["p1"]["tx_frames"]
        flowing = wait_until(lambda: card.counters()["ports"]["p1"]["tx_frames"] > start + 500, 20)
        if not flowing:
            pair.fail("no traffic")
        return pair

    def kill(self, program, tool):
        pid = program.find(tool)
        self.assertIsNotNone(pid, program.report("no such process in"))
        os.kill(pid, signal.SIGKILL)
        return time.monotonic()

    def serves_the_next_client(self, card):
        card.wait_idle()
        case = Case("write", "bw", "RC")
        perftest.check_rows(case, perftest.run_case(card, case).client.stdout)

    def survivor_of(self, card, victim, tool, *flags):
        with reserved_port() as port:
            pair = self.start_traffic(card, port, tool, *flags)
            dead, survivor = (pair.client, pair.server) if victim == "client" else (pair.server, pair.client)
            killed = self.kill(dead, tool)
            if not survivor.wait(DUE_S):
                report = survivor.report("survivor")
                survivor.kill_group()
                raise Failure(f"the survivor still runs {DUE_S:.1f} s after the kill\n{report}")
            self.assertNotEqual(survivor.returncode(), 0, survivor.report("survivor"))
            self.assertTrue(dead.wait(5), "the launcher outlives its program")
            return survivor, survivor.ended - killed

    def test_server_of_writes(self):
        with Card() as card:
            survivor, _ = self.survivor_of(card, "server", "ib_write_bw")
            self.assertRegex(survivor.output, rf"(?i)status {RETRY_EXCEEDED}\b|status -- {RETRY_EXCEEDED}")
            self.serves_the_next_client(card)

    def test_server_of_reads(self):
        with Card() as card:
            survivor, _ = self.survivor_of(card, "server", "ib_read_bw")
            self.assertRegex(survivor.output, rf"(?i)status {RETRY_EXCEEDED}\b")
            self.serves_the_next_client(card)

    def test_server_of_sends(self):
        with Card() as card:
            survivor, _ = self.survivor_of(card, "server", "ib_send_bw")
            self.assertRegex(survivor.output, rf"(?i)status {RETRY_EXCEEDED}\b")
            self.serves_the_next_client(card)

    def test_client_of_writes(self):
        """The server is passive: it learns from its TCP connection."""
        with Card() as card:
            self.survivor_of(card, "client", "ib_write_bw")
            self.serves_the_next_client(card)

    def test_client_of_writes_in_both_directions(self):
        with Card() as card:
            survivor, _ = self.survivor_of(card, "client", "ib_write_bw", "-b")
            self.assertRegex(survivor.output, rf"(?i)status {RETRY_EXCEEDED}\b")
            self.serves_the_next_client(card)

    def test_both_at_once(self):
        with Card() as card, reserved_port() as port:
            pair = self.start_traffic(card, port, "ib_write_bw")
            pair.server.kill_group()
            pair.client.kill_group()
            self.serves_the_next_client(card)

    def test_killed_while_creating_objects(self):
        with Card() as card:
            for delay in (0.05, 0.1, 0.2, 0.4):
                program = card.start(harness.tool("verbs_scale"), "churn", 100000)
                wait_until(lambda: card.objects()["attached"], 10)
                time.sleep(delay)  # a different place in the cycle each time
                program.kill_group()
            self.serves_the_next_client(card)

    # --- the card

    def test_the_card_in_the_middle_of_traffic(self):
        with Card() as card:
            program = card.start(harness.tool("verbs_fatal"))
            if not wait_until(lambda: "ready" in program.stdout or not program.running(), 20) or not program.running():
                raise Failure(program.report("verbs_fatal"))
            os.kill(card.pid, signal.SIGKILL)
            if not program.wait(5):
                report = program.report("verbs_fatal hangs")
                program.kill_group()
                raise Failure(report)
            self.assertEqual(program.returncode(), 0, program.report("verbs_fatal"))
            self.assertIn("async event DEVICE_FATAL", program.stdout)
            for call in ("ibv_reg_mr", "ibv_create_cq", "ibv_modify_qp", "ibv_post_send"):
                self.assertIn(f"{call} EIO\n", program.stdout)
            self.assertRegex(program.stdout, r"ibv_destroy_qp (success|EIO)\n")
            self.card_is_replaced(card)

    def test_the_card_under_perftest(self):
        """perftest does not listen to async events: its work requests must fail, so that it ends."""
        for tool in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
            with self.subTest(tool=tool), Card() as card, reserved_port() as port:
                pair = self.start_traffic(card, port, tool)
                os.kill(card.pid, signal.SIGKILL)
                for title, program in (("client", pair.client), ("server", pair.server)):
                    if not program.wait(5):
                        report = program.report(title)
                        program.kill_group()
                        raise Failure(f"the {title} still runs 5 s after the card's death\n{report}")
                    self.assertNotEqual(program.returncode(), 0, program.report(title))
                self.card_is_replaced(card)

    def card_is_replaced(self, card):
        """What a dead card leaves (its socket) does not keep the next one of the same name from starting."""
        wait_until(lambda: not is_alive(card.pid), 5)
        card.up()
        self.serves_the_next_client(card)

    def test_the_card_is_taken_down_in_order(self):
        """`rdmalab down` under traffic: programs end with an error, the socket is gone."""
        with Card() as card, reserved_port() as port:
            pair = self.start_traffic(card, port, "ib_write_bw")
            card.rdmalab("down", "--name", card.name)
            for program in (pair.client, pair.server):
                self.assertTrue(program.wait(5), program.report("still running"))
                self.assertNotEqual(program.returncode(), 0)

    def test_an_embedded_card_ends_with_its_program(self):
        """`rdmalab run` without a card starts one that lives as long as the program, also when that is killed."""
        with Card() as card:
            card.rdmalab("down", "--name", card.name)
            argv = [harness.LAUNCHER, "run", "--", "ibv_devices"]
            program = harness.Program(argv, card.environment)
            self.assertTrue(program.wait(20), program.report("embedded"))
            self.assertEqual(program.returncode(), 0, program.report("embedded"))
            self.assertIn("mlx5_2", program.stdout)
            program = harness.Program([*argv[:3], "sleep", "60"], card.environment)
            wait_until(lambda: program.find("sleep"), 10)
            os.kill(program.find("sleep"), signal.SIGKILL)
            self.assertTrue(program.wait(5), program.report("embedded"))
            self.assertEqual(program.returncode(), 128 + signal.SIGKILL)


if __name__ == "__main__":
    harness.main()
