"""The verbs surface as programs see it: XRC, speeds, ids, what ibstat and ibv_devinfo tell, contexts in two processes."""

import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import CLIENT_DEVICE, DEVICES, SERVER_DEVICE, Card, reserved_port

HERE = os.path.dirname(os.path.abspath(__file__))
VENDOR_ID = 0x02726C


class Xrc(unittest.TestCase):
    def test_xsrq_pingpong(self):
        with Card() as card, reserved_port() as port:
            argv = ["ibv_xsrq_pingpong", "-g", harness.GID_IPV4, "-p", port, "-n", 500, "-s", 3000]
            pair = card.run_pair(
                [*argv, "-d", SERVER_DEVICE], [*argv, "-d", CLIENT_DEVICE, "127.0.0.1"], port
            )
            for program in (pair.server, pair.client):
                self.assertRegex(program.stdout, r"(?m)^success$", program.report("ibv_xsrq_pingpong"))
            card.wait_idle()

    def test_ib_send_bw_over_xrc(self):
        with Card() as card, reserved_port() as port:
            argv = ["ib_send_bw", "-c", "XRC", "-x", harness.GID_IPV4, "-p", port, "-n", 1000, "-s", 8192, "-F"]
            pair = card.run_pair(
                [*argv, "-d", SERVER_DEVICE], [*argv, "-d", CLIENT_DEVICE, "127.0.0.1"], port
            )
            for program in (pair.server, pair.client):
                self.assertRegex(program.stdout, r"(?m)^ 8192 +1000 ", program.report("ib_send_bw"))
            card.wait_idle()


class Values(unittest.TestCase):
    def test_the_vendor_id_is_the_same_everywhere(self):
        with Card() as card:
            told = card.run("ibv_devinfo", "-d", SERVER_DEVICE).stdout
            self.assertRegex(told, rf"vendor_id:\s+0x{VENDOR_ID:04x}\n")
            shown = card.run("cat", f"/sys/class/infiniband/{SERVER_DEVICE}/device/vendor").stdout
            self.assertEqual(int(shown, 16), VENDOR_ID)

    def test_the_speed_of_the_port_is_that_of_the_cable(self):
        cases = {"0": (2, 32, "100 Gb/sec (4X EDR)"), "25Gbit": (1, 32, "25 Gb/sec (1X EDR)"), "200Gbit": (2, 64, "200 Gb/sec")}
        with Card() as card:
            for rate, (width, speed, text) in cases.items():
                with self.subTest(rate=rate):
                    card.link("--rate", rate)
                    told = card.run("ibv_devinfo", "-v", "-d", SERVER_DEVICE).stdout
                    self.assertRegex(told, rf"active_width:.*\({width}\)")
                    self.assertRegex(told, rf"active_speed:.*\({speed}\)")
                    shown = card.run("cat", f"/sys/class/infiniband/{SERVER_DEVICE}/ports/1/rate").stdout
                    self.assertTrue(shown.startswith(text), shown)

    def test_ibstat_shows_every_device(self):
        with Card() as card:
            output = card.run("ibstat").stdout
            self.assertEqual(re.findall(r"^CA '(\w+)'", output, re.M), DEVICES)
            self.assertEqual(output.count("State: Active"), len(DEVICES))
            self.assertEqual(output.count("Physical state: LinkUp"), len(DEVICES))
            self.assertEqual(output.count("Link layer: Ethernet"), len(DEVICES))
            self.assertEqual(set(re.findall(r"Rate: (\d+)", output)), {"100"})

    def test_what_ibv_devinfo_claims_is_what_there_is(self):
        with Card() as card:
            output = card.run("ibv_devinfo", "-v", "-d", SERVER_DEVICE).stdout
            flags = re.search(r"device_cap_flags:\s+0x\w+\n((?:\s+[A-Z_0-9]+\n|.*\n)*?)\s+max_sge:", output).group(1)
            for flag in ("XRC", "MEM_WINDOW", "MEM_WINDOW_TYPE_2B"):
                self.assertRegex(flags, rf"\b{flag}\b")
            self.assertRegex(output, r"general_odp_caps:\n\s+ODP_SUPPORT\n\s+ODP_SUPPORT_IMPLICIT")
            self.assertRegex(output, r"max_dm_size:\s+[1-9]|maximum device memory size:?\s+[1-9]|device memory.*[1-9]")


# What verbs_memory finds.
FINDINGS = """\
send to pages that come: success
receive in pages that come: success
arrived: yes
send to pages that come: success
receive in pages that come: success
arrived: yes
send to pages that cannot come: remote operation error
receive in pages that cannot come: local protection error
send to pages that cannot come: remote operation error
receive in pages that cannot come: local protection error
advice on pages that cannot come: EFAULT
write from pages that are gone: local protection error
send to nowhere: success
receive in nowhere: success
send to nowhere: success
receive in nowhere: success
send to device memory: success
receive in device memory: success
arrived: yes
send to device memory: success
receive in device memory: success
arrived: yes
free in use: EBUSY
bind: success
write into the window: success
deregister a bound region: EBUSY
write beside the window: remote access error
"""


class Memory(unittest.TestCase):
    def test_kinds_of_memory(self):
        with Card() as card:
            output = card.run(harness.tool("verbs_memory")).stdout
            self.assertEqual(output.splitlines(), FINDINGS.splitlines())
            card.wait_idle()


class Shared(unittest.TestCase):
    def test_a_second_process_joins_a_context(self):
        with Card() as card:
            output = card.run("/usr/bin/python3", os.path.join(HERE, "shared_context.py"), SERVER_DEVICE).stdout
            self.assertEqual(output.strip(), "shared")
            card.wait_idle()


if __name__ == "__main__":
    harness.main()
