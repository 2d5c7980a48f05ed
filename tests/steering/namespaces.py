"""The tutorial's setting: receivers and sender in network namespaces of their own, as root, with the programs under their
reference names. ARP, ping and RDMA cross the pipes of both programs."""

import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "netns"))
import steering_kit
from harness import costs, main, wait_until
from netns_kit import NetnsCard, needs_namespaces
from steering_kit import BLUE_IP, GREEN_IP, INGRESS, PCC, READY_INGRESS, READY_PCC, SteeringCard, lines


class TutorialCard(NetnsCard, SteeringCard):
    pass


@needs_namespaces
class Namespaces(unittest.TestCase):
    @costs(timeout=180, processors=2)
    def test_the_tutorials_commands(self):
        with TutorialCard() as card:
            ingress = card.steer(
                "doca_flow_steer", *INGRESS, "--path0-percent", 0.025, "--path1-percent", 0.05, ready=READY_INGRESS
            )
            pcc = card.steer("doca_pcc", *PCC, ready=READY_PCC)
            for address in (BLUE_IP, GREEN_IP):
                card.at("mlx5_3", "ping", "-c", 2, "-W", 5, address)
            words = ["ib_write_bw", "-R", "--report_gbits", "--run_infinitely", "-d"]
            servers = [card.start_at(device, *words, device) for device in ("mlx5_2", "mlx5_4")]
            self.assertTrue(wait_until(lambda: card.status()["cm"]["ports"] >= 2, 20))
            clients = [card.start_at("mlx5_3", *words, "mlx5_3", "-F", address) for address in (BLUE_IP, GREEN_IP)]
            for path in (0, 1):
                pattern = rf"^RDMA-CM REQ grouping: .* -> path{path}$"
                self.assertTrue(wait_until(lambda: lines(pcc, pattern), 30), pcc.report("pcc"))
            pattern = r"^ingress throughput: path0=(?!0\.000)[\d.]+ Gbps path1=(?!0\.000)"
            self.assertTrue(wait_until(lambda: lines(ingress, pattern), 30), ingress.report("flow_steer"))
            pattern = r"path-share diagnostic: path0 total=[1-9].*path1 total=[1-9].*pending-map=0;"
            self.assertTrue(wait_until(lambda: lines(pcc, pattern), 30), pcc.report("pcc"))
            for program in (*servers, *clients, ingress, pcc):
                self.assertTrue(program.running(), program.report("program"))
            self.assertEqual(len(re.findall("path0", lines(ingress, "^ingress throughput")[-1])), 1)


if __name__ == "__main__":
    main()
