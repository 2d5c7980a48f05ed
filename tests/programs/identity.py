"""Programs that only look: ibv_devices, ibv_devinfo, and one that opens the library as NCCL does."""

import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import Card, DEVICES


class Identity(unittest.TestCase):
    def test_ibv_devices_lists_the_five_functions(self):
        with Card() as card:
            output = card.run("ibv_devices").stdout
            listed = dict(re.findall(r"^\s+(\w+)\s+([0-9a-f]{16})$", output, re.M))
            self.assertEqual(sorted(listed), DEVICES)
            self.assertEqual(len(set(listed.values())), len(DEVICES), "node GUIDs differ")
            self.assertNotIn("0" * 16, listed.values())

    def test_ibv_devinfo_shows_active_ethernet_ports(self):
        with Card() as card:
            output = card.run("ibv_devinfo").stdout
            self.assertEqual(re.findall(r"hca_id:\s+(\w+)", output), DEVICES)
            self.assertEqual(output.count("PORT_ACTIVE (4)"), len(DEVICES))
            self.assertEqual(len(re.findall(r"link_layer:\s+Ethernet", output)), len(DEVICES))

    def test_ibv_devinfo_verbose_shows_the_gids_and_the_limits(self):
        with Card() as card:
            for device, ip in harness.IP_OF.items():
                output = card.run("ibv_devinfo", "-v", "-d", device).stdout
                with self.subTest(device=device):
                    self.assertRegex(output, rf"GID\[\s*1\]:\s+::ffff:{re.escape(ip)}, RoCE v2")
                    self.assertRegex(output, r"GID\[\s*0\]:\s+fe80:.*, RoCE v2")
                    self.assertRegex(output, r"max_mtu:\s+4096 \(5\)")
                    self.assertRegex(output, r"active_mtu:\s+\d+ \([1-5]\)")
                    self.assertRegex(output, r"atomic_cap:\s+ATOMIC_(HCA|GLOB) ")
                    self.assertGreaterEqual(self.limit(output, "max_cqe"), 4_000_000)
                    self.assertGreaterEqual(self.limit(output, "max_qp_wr"), 16_384)
                    self.assertGreaterEqual(self.limit(output, "max_qp"), 1_000)

    def limit(self, output, name):
        return int(re.search(rf"\b{name}:\s+(\d+)", output).group(1))

    def test_an_unknown_device_is_not_found(self):
        with Card() as card:
            output = card.run("ibv_devinfo", "-d", "mlx5_9", expect=255).output
            self.assertIn("mlx5_9", output)

    def test_the_library_opens_as_nccl_opens_it(self):
        with Card() as card:
            output = card.run(harness.tool("nccl_like"), "mlx5_2").stdout
            self.assertEqual(re.findall(r"^device (\w+)", output, re.M), DEVICES)
            self.assertRegex(output, r"opened mlx5_2: port active, ethernet")
            self.assertRegex(output, r"registered 1048576 bytes: lkey \d+ rkey \d+")
            self.assertIn("gid 1 ::ffff:10.0.0.1", output)
            card.wait_idle()


if __name__ == "__main__":
    harness.main()
