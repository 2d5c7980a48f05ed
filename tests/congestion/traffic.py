"""Traffic with a rate that can be watched: ib_write_bw without end, measured by the cable's counters; and congestion
control processes beside it."""

import contextlib
import json
import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import harness
from harness import BUILD, CLIENT_DEVICE, IP_OF, SERVER_DEVICE, Failure, Program, wait_until

LINE_RATE = 1 << 20
# How fast programs are here is unknown, and with it how often a mark comes. So the built-in algorithm
# looks back a millisecond instead of a microsecond: a mark in each of them is enough to halve the rate.
EAGER = ["--line-rate", "10Gbit", "--dcqcn", "rtt_us=1000"]
TEST_MODULES = os.path.join(BUILD, "lib", "pcc_test")


def module(name):
    return os.path.join(TEST_MODULES, name + ".so")


@contextlib.contextmanager
def endless(card, by_cm=False, size=65536):
    """ib_write_bw from mlx5_3 to mlx5_2 (b to a of the cable) until the block ends; it must still run then."""
    common = ["ib_write_bw", "-F", "--run_infinitely", "-s", size, "-D", "1"]
    with harness.reserved_port() as port:
        common += ["-p", port]
        if by_cm:
            server = [*common, "-R", "-d", SERVER_DEVICE]
            client = [*common, "-R", "-d", CLIENT_DEVICE, IP_OF[SERVER_DEVICE]]
            env = {"RDMALAB_DEVICES": CLIENT_DEVICE}
            serving = card.start(*server)
            time.sleep(1)
            pair = harness.Pair(serving, card.start(*client, env=env))
        else:
            pair = card.start_pair(
                [*common, "-x", 1, "-d", SERVER_DEVICE], [*common, "-x", 1, "-d", CLIENT_DEVICE, "localhost"], port
            )
        try:
            if not wait_until(lambda: sent_bytes(card) > 1 << 20, 20):
                pair.fail("no traffic")
            yield pair
            if not (pair.server.running() and pair.client.running()):
                pair.fail("the traffic has ended")
        finally:
            pair.client.kill_group()
            pair.server.kill_group()


def sent_bytes(card):
    return card.counters()["cables"]["cable0"]["b_to_a"]["bytes"]


def throughput(card, seconds=1.0):
    """Gb/s over the cable."""
    before, start = card.counters(), time.monotonic()
    time.sleep(seconds)
    after = card.counters()
    bytes_sent = [c["cables"]["cable0"]["b_to_a"]["bytes"] for c in (before, after)]
    return (bytes_sent[1] - bytes_sent[0]) * 8 / (after["time_ns"] - before["time_ns"])


def mark(card, share):
    card.link("--direction", "b-to-a", "--ce", share)


def congestion(card, *words):
    return json.loads(card.rdmalab("cc", "--name", card.name, "--json", *words))


def pf(card, name="mlx5_1"):
    return next(one for one in congestion(card)["pfs"] if one["pf"] == name)


def lowest_rate(card):
    return min((flow["rate"] for flow in pf(card)["flows"]), default=LINE_RATE)


def is_slow(card):
    return lowest_rate(card) < LINE_RATE // 8


class Process(Program):
    """tests/congestion/congestion_process."""

    def __init__(self, card, *words):
        env = {**card.environment, "RDMALAB_CARD": card.name}
        super().__init__([harness.tool("congestion_process"), *words], env, None, card.folder)
        card.programs.append(self)

    def states(self):
        return re.findall(r"^state (\w+)$", self.stdout, re.M)

    def wait_state(self, state, timeout=10):
        if not wait_until(lambda: state in self.states()[-1:], timeout):
            raise Failure(f"expected the state {state}\n{self.report('process')}")

    def reports(self):
        return [(int(qpn, 16), int(rate)) for qpn, rate in re.findall(r"^report (\w+) (\d+)$", self.stdout, re.M)]

    def errors(self):
        return [(int(code), text) for code, text in re.findall(r"^error (\d+) (.*)$", self.stdout, re.M)]

    def end(self):
        """Ends it in order; its summary."""
        if self.running():
            os.kill(self.pid, 15)
        if not self.wait(10):
            raise Failure(f"did not end\n{self.report('process')}")
        found = re.search(r"^end (\{.*\})$", self.stdout, re.M)
        return json.loads(found.group(1)) if found else None
