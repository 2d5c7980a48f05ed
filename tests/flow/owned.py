"""A program owns the switch of a PF: unmodified programs run through its pipes, also while these change, and go on when it
is killed."""

import json
import os
import re
import signal
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import harness
from harness import CLIENT_DEVICE, IP_OF, SERVER_DEVICE, Card, Failure, Program, reserved_port, wait_until

LOST = ("retransmitted_frames", "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rx_icrc_errors")


class Owned(unittest.TestCase):
    # --- steps

    def own(self, card, role, *words):
        """The program, when its pipes are there."""
        environment = {**card.environment, "RDMALAB_CARD": card.name}
        owner = Program([harness.tool("flow_owner"), role, *words], environment)
        card.programs.append(owner)
        if not wait_until(lambda: "ready\n" in owner.stdout or not owner.running(), 20) or not owner.running():
            raise Failure(owner.report("never ready"))
        return owner

    def flow(self, card, *words):
        return card.rdmalab("flow", *words, "--name", card.name, timeout=30)

    def domain(self, card, pf):
        return json.loads(self.flow(card, "dump", pf, "--json"))[0]

    def hits(self, card, pf, pipe):
        return next(p["hits"] for p in self.domain(card, pf)["pipes"] if p["name"] == pipe)

    def reported(self, owner):
        """What the owner last said: path0, path1, frames, updates."""
        return [int(number) for number in re.findall(r"path0=(\d+) path1=(\d+) frames=(\d+) updates=(\d+)", owner.stdout)[-1]]

    def write_bw(self, card, *flags, timeout=120):
        with reserved_port() as port:
            words = ["ib_write_bw", "-s", 65536, "-m", 4096, "-p", port, "-x", 1, "-F", *flags]
            return card.run_pair([*words, "-d", SERVER_DEVICE], [*words, "-d", CLIENT_DEVICE, "127.0.0.1"], port, timeout=timeout)

    def expect_no_loss(self, card):
        counted = card.counters()["functions"]
        lost = {(device, name): counted[device][name] for device in (SERVER_DEVICE, CLIENT_DEVICE) for name in LOST}
        self.assertEqual({key: value for key, value in lost.items() if value}, {})

    # --- tests

    def test_traffic_runs_through_the_pipes_of_both_ends(self):
        with Card() as card:
            ingress, egress = self.own(card, "ingress"), self.own(card, "egress")
            self.write_bw(card, "-n", 2000)
            self.expect_no_loss(card)
            assigned = [self.hits(card, "mlx5_1", f"EGRESS_PATH{path}_REWRITE") for path in (0, 1)]
            self.assertEqual(sum(assigned), 2000 * 16)  # packets of 4 KiB
            share = assigned[0] / sum(assigned)
            self.assertLess(abs(share - 0.5), 5 * 0.5 / sum(assigned) ** 0.5, assigned)
            for owner in (ingress, egress):
                os.kill(owner.pid, signal.SIGTERM)
                self.assertTrue(owner.wait(10))
            self.assertEqual(self.reported(egress)[:2], assigned)
            self.assertEqual(self.reported(ingress)[:2], assigned)
            self.write_bw(card, "-n", 100)  # by default forwarding
            self.assertIn("default forwarding", self.flow(card, "dump"))

    def test_no_packet_is_lost_while_entries_change(self):
        with Card() as card:
            self.own(card, "ingress")
            egress = self.own(card, "egress", "churn")
            before = self.reported(egress)[3] if "updates" in egress.stdout else 0
            self.write_bw(card, "-n", 3000)
            self.expect_no_loss(card)
            wait_until(lambda: "updates" in egress.stdout and self.reported(egress)[3] > before + 1000, 30)
            path0, path1, _, updates = self.reported(egress)
            self.assertGreater(updates, 1000)
            self.assertEqual(path0 + path1, 3000 * 16)
            self.assertTrue(egress.running(), egress.report("owner"))

    @harness.costs(timeout=180)
    def test_traffic_goes_on_when_an_owner_is_killed_and_comes_back(self):
        with Card() as card:
            self.own(card, "ingress")
            egress = self.own(card, "egress")
            with reserved_port() as port:
                words = ["ib_write_bw", "-s", 65536, "-p", port, "-x", 1, "-F", "-D", 8]
                pair = card.start_pair(
                    [*words, "-d", SERVER_DEVICE], [*words, "-d", CLIENT_DEVICE, "127.0.0.1"], port
                )
                self.assertTrue(wait_until(lambda: self.hits(card, "mlx5_1", "EGRESS_CLASSIFY") > 1000, 20))
                egress.kill_group()
                self.assertTrue(wait_until(lambda: self.domain(card, "mlx5_1")["owner"] is None, 5))
                self.own(card, "egress")
                self.assertTrue(wait_until(lambda: self.hits(card, "mlx5_1", "EGRESS_CLASSIFY") > 1000, 20))
                pair.finish(60)

    def test_the_owner_sees_management_packets_while_they_pass(self):
        with Card() as card:
            self.own(card, "ingress")
            egress = self.own(card, "egress")
            words = ["ib_write_bw", "-R", "-n", 1000, "-p", 7471, "-F"]
            # Each sees its own device only, as in a network namespace: else they would meet within the first one.
            server = card.start(*words, "-d", SERVER_DEVICE, env={"RDMALAB_DEVICES": SERVER_DEVICE})
            self.assertTrue(wait_until(lambda: card.status()["cm"]["ports"] > 0, 20), server.report("server"))
            client = card.start(
                *words, "-d", CLIENT_DEVICE, IP_OF[SERVER_DEVICE], env={"RDMALAB_DEVICES": CLIENT_DEVICE}
            )
            harness.Pair(server, client).finish()
            # REQ and RTU of the client at least.
            self.assertTrue(wait_until(lambda: "frames=" in egress.stdout and self.reported(egress)[2] >= 2, 10), egress.stdout)

    def test_dump_trace_and_counters(self):
        with Card() as card:
            self.own(card, "ingress")
            self.own(card, "egress")
            text = self.flow(card, "dump", "mlx5_1")
            self.assertIn("owned by process", text)
            self.assertIn("EGRESS_CLASSIFY (HASH by RANDOM): 64 of 64 entries", text)
            self.assertIn("... and 56 more", text)
            self.assertNotIn("more (", self.flow(card, "dump", "mlx5_1", "--all"))
            self.assertTrue(self.flow(card, "dump", "--dot").startswith("digraph flow {"))
            environment = {**card.environment}
            words = ["flow", "trace", "mlx5_1", "--name", card.name, "--count", 2, "--match", "l4_type=roce_v2",
                     "--match", "parser_meta.port_id=2", "--timeout", 30]
            port_id = next(p["id"] for p in self.domain(card, "mlx5_1")["ports"] if p["name"] == "pf1sf0")
            words[words.index("parser_meta.port_id=2")] = f"parser_meta.port_id={port_id}"
            tracing = Program([harness.LAUNCHER, *words], environment)
            card.programs.append(tracing)
            self.write_bw(card, "-n", 100)
            self.assertTrue(tracing.wait(30), tracing.report("trace"))
            self.assertEqual(tracing.returncode(), 0, tracing.report("trace"))
            self.assertRegex(tracing.stdout, r"packet 1 from pf1sf0, \d+ bytes: 10\.0\.0\.2 > 10\.0\.0\.1 RC ")
            self.assertRegex(tracing.stdout, r"QP1_CHECK: miss, no entry has these values \(outer\.roce_v2\.bth\.dest_qp=")
            self.assertRegex(tracing.stdout, r"EGRESS_CLASSIFY: hit entry \d+ \| meta\.u32\[4\] 0x0 -> ")
            self.assertRegex(tracing.stdout, r"DELIVER_WIRE: hit entry \d+ -> port p1\n")
            self.assertRegex(self.flow(card, "counters", "mlx5_1"), r"EGRESS_PATH0_REWRITE +everything +\d")

    def test_a_second_owner_and_a_trace_without_pipes_are_refused(self):
        with Card() as card:
            done = card.rdmalab("flow", "trace", "mlx5_1", "--name", card.name, check=False)
            self.assertEqual(done.stderr, "rdmalab flow: no program owns the switch domain of mlx5_1: there are no pipes\n")
            first = self.own(card, "egress")
            environment = {**card.environment, "RDMALAB_CARD": card.name}
            second = Program([harness.tool("flow_owner"), "egress"], environment)
            self.assertTrue(second.wait(10))
            self.assertEqual(second.returncode(), 1)
            self.assertEqual(
                second.stderr,
                f"flow_owner: the switch domain of mlx5_1 is owned by process {first.pid} (flow_owner)\n",
            )


if __name__ == "__main__":
    harness.main()
