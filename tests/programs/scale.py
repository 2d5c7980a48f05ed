"""Many at once: pairs, processes, QPs, and object churn without growth of the card."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
import perftest
from harness import CLIENT_DEVICE, NEIGHBOUR_DEVICE, SERVER_DEVICE, Card, reserved_port
from perftest import Case


class Scale(unittest.TestCase):
    def run_many(self, card, jobs, timeout):
        """`jobs`: (case, (server device, client device)); all servers first, then all clients, all at once."""
        ports = [reserved_port() for _ in jobs]
        pairs = []
        try:
            for (case, devices), holder in zip(jobs, ports):
                port = holder.__enter__()
                client = [*case.argv(devices[1], port), "127.0.0.1"]
                pairs.append(card.start_pair(case.argv(devices[0], port), client, port))
            for (case, _), pair in zip(jobs, pairs):
                pair.finish(timeout)
                perftest.check_rows(case, pair.client.stdout)
        finally:
            for holder in ports[: len(pairs)]:
                holder.__exit__(None, None, None)
        card.wait_idle()

    def test_two_servers_and_two_clients_at_once(self):
        with Card() as card:
            write = Case("write", "bw", "RC", ["-n", 2000])
            send = Case("send", "bw", "RC", ["-n", 2000])
            self.run_many(card, [(write, (SERVER_DEVICE, CLIENT_DEVICE)), (send, (NEIGHBOUR_DEVICE, CLIENT_DEVICE))], 60)
            perftest.clean_transport(card)

    @harness.costs(timeout=180)
    def test_sixteen_processes_on_one_device(self):
        with Card() as card:
            kinds = [Case("write", "bw", "RC"), Case("send", "bw", "RC"), Case("read", "bw", "RC"), Case("send", "bw", "UD")]
            self.run_many(card, [(kinds[i % 4], (SERVER_DEVICE, SERVER_DEVICE)) for i in range(8)], 120)

    def test_a_thousand_qps_in_one_process(self):
        with Card() as card:
            card.run(harness.tool("verbs_scale"), "qps", 1000, timeout=60)
            card.wait_idle()

    def churn(self, mode, warm_up, cycles):
        """The card's descriptors must be the same before and after; its memory may have settled by the warm-up, and
        must not grow with the cycles from then on (1 MiB of slack for the allocator)."""
        with Card() as card:
            card.run(harness.tool("verbs_scale"), mode, warm_up, timeout=60)
            card.wait_idle()
            before = (harness.open_descriptors(card.pid), harness.resident_kib(card.pid))
            card.run(harness.tool("verbs_scale"), mode, cycles, timeout=200)
            card.wait_idle()
            # The connection of the last `rdmalab status` may still be open for a moment.
            harness.wait_until(lambda: harness.open_descriptors(card.pid) <= before[0], 5)
            after = (harness.open_descriptors(card.pid), harness.resident_kib(card.pid))
            self.assertLessEqual(after[0], before[0], "descriptors of the card")
            self.assertLessEqual(after[1], before[1] + 1024, "resident KiB of the card")

    @harness.costs(timeout=300, processors=2)
    def test_five_thousand_create_destroy_cycles(self):
        self.churn("churn", 500, 5000)

    def test_a_thousand_open_close_cycles(self):
        self.churn("contexts", 200, 1000)


if __name__ == "__main__":
    harness.main()
