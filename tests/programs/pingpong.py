"""ibverbs-utils: ibv_{rc,uc,ud,srq}_pingpong between two devices, with the flags that each has."""

import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import CLIENT_DEVICE, SERVER_DEVICE, Card, reserved_port

ITERATIONS = 500
SIZES = {"rc": 4096, "uc": 4096, "ud": 1024, "srq": 4096}
# -c: check the received bytes; -e: sleep on events; -N: ibv_wr_* API; -t: completions with time stamps.
FLAGS = {
    "rc": [[], ["-e"], ["-c"], ["-N"], ["-t"], ["-N", "-t"], ["-e", "-c"], ["-c", "-s", "100000"]],
    "uc": [[], ["-e"], ["-c"], ["-e", "-c"]],
    "ud": [[], ["-e"], ["-c"], ["-e", "-c"]],
    "srq": [[], ["-e"], ["-c"], ["-q", "3"], ["-e", "-c"]],
}


def run_pingpong(card, transport, flags, iterations=ITERATIONS, gid=harness.GID_IPV4,
                 devices=(SERVER_DEVICE, CLIENT_DEVICE)):
    with reserved_port() as port:
        argv = [f"ibv_{transport}_pingpong", "-g", gid, "-n", iterations, "-p", port, *flags]
        return card.run_pair([*argv, "-d", devices[0]], [*argv, "-d", devices[1], "127.0.0.1"], port)


class Pingpong(unittest.TestCase):
    def check(self, transport, flags, **keywords):
        with Card() as card:
            before = card.counters()
            pair = run_pingpong(card, transport, flags, **keywords)
            size = int(flags[flags.index("-s") + 1]) if "-s" in flags else SIZES[transport]
            for program in (pair.server, pair.client):
                self.check_report(program, transport, flags, size)
            after = card.counters()
            for port in ("p0", "p1"):
                grown = after["ports"][port]["tx_bytes"] - before["ports"][port]["tx_bytes"]
                self.assertGreaterEqual(grown, size * ITERATIONS, f"bytes out of {port}")
            card.wait_idle()

    def check_report(self, program, transport, flags, size):
        moved = re.search(r"(\d+) bytes in", program.stdout).group(1)
        iterations = int(re.search(r"(\d+) iters in", program.stdout).group(1))
        self.assertEqual(int(moved), size * ITERATIONS * 2)
        self.assertEqual(iterations, ITERATIONS)
        self.assertNotIn("invalid data", program.output)
        if "-t" in flags:
            self.assertIn("Max receive completion clock cycles", program.stdout)

    def test_rc_with_on_demand_paging_says_so_when_the_device_cannot(self):
        """-o needs a capability that the device does not claim: the program must say so and end, not hang."""
        with Card() as card:
            info = card.run("ibv_devinfo", "-v", "-d", SERVER_DEVICE).stdout
            if re.search(r"\bODP_SUPPORT\b", info):
                run_pingpong(card, "rc", ["-o"])
            else:
                program = card.run("ibv_rc_pingpong", "-o", "-d", SERVER_DEVICE, "-g", 1, expect=1)
                self.assertIn("The device isn't ODP capable", program.output)
            card.wait_idle()

    def test_rc_over_ipv6(self):
        self.check("rc", ["-c"], gid=harness.GID_IPV6)

    def test_ud_over_ipv6(self):
        self.check("ud", ["-c"], gid=harness.GID_IPV6)


def add(transport, flags):
    def test(self):
        self.check(transport, flags)

    name = "_".join([transport, *(flag.lstrip("-") for flag in flags)])
    setattr(Pingpong, "test_" + name, test)


for transport_, variants in FLAGS.items():
    for flags_ in variants:
        add(transport_, flags_)

if __name__ == "__main__":
    harness.main()
