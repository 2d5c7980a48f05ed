"""kill -9 of either end of a connection by RDMA CM at each of its states: the other end gets the right event in its due
time, and the card keeps nothing of it."""

import os
import re
import signal
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import harness
from harness import CLIENT_DEVICE, IP_OF, SERVER_DEVICE, Card, Failure, wait_until

PORT = 7471
IP = IP_OF[SERVER_DEVICE]
# The card sees the end of a process at once and tells the peer by a message.
AT_ONCE_S = 1
# One repetition of a message: 0.54 s and two packet life times.
REPEAT_S = 0.61
# 16 times that: nobody answers any more.
GIVE_UP_S = 16 * REPEAT_S


class Deaths(unittest.TestCase):
    # --- steps

    def listener(self, card, stages, *words):
        return self.end(card, "listen", stages, SERVER_DEVICE, words)

    def connector(self, card, stages, *words):
        return self.end(card, "connect", stages, CLIENT_DEVICE, words)

    def end(self, card, role, stages, device, words):
        program = card.start(harness.tool("cm_stages"), role, IP, PORT, stages, *words, env={"RDMALAB_DEVICES": device})
        if role == "listen":
            self.wait_for(program, "at listening")
        return program

    def wait_for(self, program, line, timeout=10):
        found = wait_until(lambda: re.search(rf"^{line}\b", program.stdout, re.M) or not program.running(), timeout)
        if not found or not program.running():
            raise Failure(program.report(f"`{line}` did not come within {timeout} s from"))

    def go_on(self, program, line):
        os.kill(program.find("cm_stages"), signal.SIGUSR1)
        self.wait_for(program, line)

    def kill(self, program):
        os.kill(program.find("cm_stages"), signal.SIGKILL)

    def events(self, program):
        return re.findall(r"^event (\w+) (-?\d+)$", program.stdout, re.M)

    def expect(self, survivor, expected, within):
        """The survivor gets exactly these events."""
        started = time.monotonic()
        wait_until(lambda: len(self.events(survivor)) >= len(expected), within + 5)
        took = time.monotonic() - started
        found = [name if status == "0" else f"{name} {status}" for name, status in self.events(survivor)]
        self.assertEqual(found, expected, survivor.report("survivor"))
        self.assertLess(took, within * harness.TIME_FACTOR + 0.5, survivor.report("survivor"))

    def leaves_nothing(self, card, *survivors):
        for program in survivors:
            program.kill_group()
        nothing = {"sessions": 0, "ids": 0, "ports": 0, "connections": 0}
        wait_until(lambda: card.status()["cm"] == nothing, 3 * GIVE_UP_S)
        self.assertEqual(card.status()["cm"], nothing)
        card.wait_idle()

    def meet(self, card, listening, connecting, *words):
        """Both ends at their first stop."""
        listener = self.listener(card, listening, *words)
        connector = self.connector(card, connecting, *words)
        self.wait_for(connector, "at " + connecting.split(",")[0])
        self.wait_for(listener, "at " + listening.split(",")[0])
        return listener, connector

    def dies(self, victim, listening, connecting, expected, within=AT_ONCE_S, pause=0):
        with Card() as card:
            listener, connector = self.meet(card, listening, connecting)
            time.sleep(pause)
            dead, survivor = (listener, connector) if victim == "listener" else (connector, listener)
            self.kill(dead)
            self.expect(survivor, expected, within)
            self.leaves_nothing(card, survivor)

    def dies_disconnecting(self, victim):
        """The cable was cut when it said good-bye; the card goes on saying it after the death."""
        with Card() as card:
            stages = {name: "established" for name in ("listener", "connector")}
            stages[victim] += ",disconnecting"
            ends = self.establish(card, stages)
            card.link("--loss", "100%")
            self.go_on(ends[victim], "at disconnecting")
            self.kill(ends.pop(victim))
            (survivor,) = ends.values()
            self.assertEqual(self.events(survivor), [])
            card.link("--loss", "0")
            self.expect(survivor, ["DISCONNECTED", "TIMEWAIT_EXIT"], 2 * REPEAT_S)
            self.leaves_nothing(card, survivor)

    def dies_in_timewait(self, victim):
        with Card() as card:
            stages = {name: "established" for name in ("listener", "connector")}
            stages[victim] += ",disconnected"
            ends = self.establish(card, stages)
            self.go_on(ends[victim], "at disconnected")
            self.kill(ends.pop(victim))
            (survivor,) = ends.values()
            self.expect(survivor, ["DISCONNECTED", "TIMEWAIT_EXIT"], AT_ONCE_S)
            self.leaves_nothing(card, survivor)

    def establish(self, card, stages):
        listener = self.listener(card, stages["listener"])
        connector = self.connector(card, stages["connector"])
        ends = {"listener": listener, "connector": connector}
        for program in ends.values():
            self.wait_for(program, "at established")
        return ends

    # --- the connecting end

    def test_connector_with_its_route(self):
        """Nobody has heard of it; the listener serves the next one."""
        with Card() as card:
            listener = self.listener(card, "established")
            dead = self.connector(card, "resolved")
            self.wait_for(dead, "at resolved")
            self.kill(dead)
            connector = self.connector(card, "established")
            self.wait_for(listener, "at established")
            self.assertEqual(self.events(listener), [])
            self.leaves_nothing(card, listener, connector)

    def test_connector_with_its_request_sent(self):
        self.dies("connector", "requested", "requesting", ["REJECTED 4"])

    def test_connector_told_to_wait_for_the_answer(self):
        """The request was repeated and answered by an MRA."""
        self.dies("connector", "requested", "requesting", ["REJECTED 4"], pause=2 * REPEAT_S)

    def test_connector_with_its_reply(self):
        self.dies("connector", "accepted", "replied", ["REJECTED 28"])

    def test_connector_that_asked_to_wait_with_the_reply(self):
        self.dies("connector", "accepted", "replied", ["REJECTED 28"], pause=2 * REPEAT_S)

    def test_connector_established(self):
        self.dies("connector", "established", "established", ["DISCONNECTED", "TIMEWAIT_EXIT"])

    def test_connector_whose_disconnect_is_lost(self):
        self.dies_disconnecting("connector")

    def test_connector_in_timewait(self):
        self.dies_in_timewait("connector")

    def test_connector_of_datagrams(self):
        """A service query is not taken back; the answer finds nobody."""
        with Card() as card:
            listener, connector = self.meet(card, "requested", "requesting", "ud")
            self.kill(connector)
            self.go_on(listener, "at accepted")
            self.leaves_nothing(card, listener)

    # --- the listening end

    def test_listener_with_unread_requests(self):
        with Card() as card:
            listener = self.listener(card, "listening")
            connectors = [self.connector(card, "requesting") for _ in range(10)]
            for connector in connectors:
                self.wait_for(connector, "at requesting")
            self.kill(listener)
            for connector in connectors:
                self.expect(connector, ["REJECTED 28"], AT_ONCE_S)
            self.leaves_nothing(card, *connectors)

    def test_listener_with_a_request(self):
        self.dies("listener", "requested", "requesting", ["REJECTED 28"])

    def test_listener_that_asked_to_wait_with_the_request(self):
        self.dies("listener", "requested", "requesting", ["REJECTED 28"], pause=2 * REPEAT_S)

    def test_listener_that_has_accepted(self):
        self.dies("listener", "accepted", "replied", ["DISCONNECTED", "TIMEWAIT_EXIT"])

    def test_listener_told_to_wait_for_the_last_message(self):
        """Timewait is as long as the listener was told to wait, 17 s: not awaited here."""
        self.dies("listener", "accepted", "replied", ["DISCONNECTED"], pause=2 * REPEAT_S)

    def test_listener_whose_reply_is_lost(self):
        with Card() as card:
            listener, connector = self.meet(card, "requested,accepted", "requesting")
            card.link("--loss", "100%")
            self.go_on(listener, "at accepted")
            self.kill(listener)
            card.link("--loss", "0")
            self.expect(connector, ["REJECTED 10"], 2 * REPEAT_S)
            self.leaves_nothing(card, connector)

    def test_listener_established(self):
        self.dies("listener", "established", "established", ["DISCONNECTED", "TIMEWAIT_EXIT"])

    def test_listener_whose_disconnect_is_lost(self):
        self.dies_disconnecting("listener")

    def test_listener_in_timewait(self):
        self.dies_in_timewait("listener")

    def test_listener_of_datagrams(self):
        """Status 2 of a service query: rejected."""
        with Card() as card:
            listener, connector = self.meet(card, "requested", "requesting", "ud")
            self.kill(listener)
            self.expect(connector, ["UNREACHABLE 2"], AT_ONCE_S)
            self.leaves_nothing(card, connector)

    # --- all at once, and nobody there

    def test_both_ends_at_once(self):
        with Card() as card:
            for stages in (("requested", "requesting"), ("accepted", "replied"), ("established", "established")):
                for program in self.meet(card, *stages):
                    program.kill_group()
                self.leaves_nothing(card)

    def test_the_card(self):
        """Both ends lose their device."""
        for stages in (("requested", "requesting"), ("accepted", "replied"), ("established", "established")):
            with self.subTest(stages=stages), Card() as card:
                ends = self.meet(card, *stages)
                os.kill(card.pid, signal.SIGKILL)
                for survivor in ends:
                    wait_until(lambda: self.events(survivor), 5)
                    self.assertEqual({name for name, _ in self.events(survivor)}, {"DEVICE_REMOVAL"})
                    survivor.kill_group()
                wait_until(lambda: not harness.is_alive(card.pid), 5)
                card.up()  # the next card of the name takes the dead one's place

    def test_a_request_into_a_cut_cable(self):
        with Card() as card:
            listener = self.listener(card, "listening")
            card.link("--loss", "100%")
            connector = self.connector(card, "requesting")
            self.wait_for(connector, "at requesting")
            self.expect(connector, ["UNREACHABLE -110"], GIVE_UP_S)
            self.leaves_nothing(card, listener, connector)

    def test_a_reply_into_a_cut_cable(self):
        with Card() as card:
            listener, connector = self.meet(card, "requested,accepted", "requesting")
            card.link("--loss", "100%")
            self.go_on(listener, "at accepted")
            self.expect(listener, ["UNREACHABLE -110"], GIVE_UP_S)
            self.expect(connector, ["UNREACHABLE -110"], GIVE_UP_S)
            self.leaves_nothing(card, listener, connector)

    def test_a_disconnect_into_a_cut_cable(self):
        with Card() as card:
            ends = self.establish(card, {"listener": "established", "connector": "established,disconnecting"})
            card.link("--loss", "100%")
            self.kill(ends["listener"])
            self.go_on(ends["connector"], "at disconnecting")
            self.expect(ends["connector"], ["DISCONNECTED", "TIMEWAIT_EXIT"], GIVE_UP_S)
            self.leaves_nothing(card, ends["connector"])


if __name__ == "__main__":
    harness.main()
