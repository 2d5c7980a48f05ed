"""Flow rules and raw packet QPs: each clause of ibv_create_flow(3) by name, the errors that depend on the card and on
rights, what is left over, and Debian's programs for raw packets."""

import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import CLIENT_DEVICE, SERVER_DEVICE, Card, costs

PROGRAM = harness.tool("verbs_flow")
CLAUSES = """
a_rule_steers_what_it_describes frames_of_all_sizes_arrive_whole a_lower_number_wins
among_equals_the_one_that_fixes_more_wins_in_any_order equal_rules_each_get_the_frame
dont_trap_lets_lower_priorities_have_it_too any_bit_may_be_masked defaults_take_what_no_rule_took
a_sniffer_gets_copies_of_all egress_rules_drop_what_is_sent own_frames_come_back_only_when_asked_for
tags_come_with_the_completion drop_keeps_a_frame_from_everybody checksums_are_made_and_checked counters_count
every_type_of_specification_is_looked_at
what_is_wrong_is_einval a_rule_that_is_gone_is_einval a_ud_qp_gets_the_datagrams_that_a_rule_describes
""".split()


def mac_of(card, device):
    """As digits."""
    gid = card.run("cat", f"/sys/class/infiniband/{device}/ports/1/gids/0").stdout.strip().replace(":", "")
    return f"{int(gid[16:18], 16) ^ 2:02x}{gid[18:22]}{gid[26:32]}"


class Clauses(unittest.TestCase):
    """One test for each clause, of the same name."""

    def prove(self, clause):
        with Card() as card:
            card.run(PROGRAM, clause, timeout=60)
            card.wait_idle()
            self.assertEqual([function["flow_rules"] for function in card.status()["functions"]], [0] * 5)


for clause in CLAUSES:
    setattr(Clauses, f"test_{clause}", lambda self, clause=clause: self.prove(clause))


class Rules(unittest.TestCase):
    def test_every_clause_of_the_program_is_run(self):
        with Card() as card:
            listed = card.run(PROGRAM, "--list").stdout.split()
            self.assertEqual(sorted(listed), sorted([*CLAUSES, "a_hundred_thousand_rules_come_and_go"]))

    def test_receive_queues_share_what_a_hash_spreads(self):
        with Card() as card:
            card.run(harness.tool("verbs_rss"), timeout=60)
            card.wait_idle()

    @costs(timeout=240)
    def test_a_hundred_thousand_rules_leave_nothing(self):
        with Card() as card:
            card.run(PROGRAM, "a_rule_steers_what_it_describes")
            before = harness.resident_kib(card.status()["pid"])
            card.run(PROGRAM, "a_hundred_thousand_rules_come_and_go", timeout=200)
            card.wait_idle()
            self.assertLess(harness.resident_kib(card.status()["pid"]) - before, 4096)

    def test_a_device_without_flow_steering_answers_enxio(self):
        with Card() as card:
            text = open(os.path.join(harness.SOURCE, "topologies", "loopback.toml")).read()
        text = text.replace('device = "mlx5_2"', 'device = "mlx5_2"\nflow_steering = false', 1)
        path = os.path.join("/tmp", f"rdmalab-no-rules-{os.getpid()}.toml")
        with open(path, "w") as file:
            file.write(text)
        self.addCleanup(os.remove, path)
        with Card(topology=path) as card:
            self.assertEqual(int(card.run(PROGRAM, "error", "mlx5_2").stdout), errno.ENXIO)
            self.assertEqual(int(card.run(PROGRAM, "error", "mlx5_3").stdout), 0)

    def test_without_cap_net_raw_a_rule_is_eperm(self):
        with Card() as card:
            argv = ["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw", PROGRAM, "error", SERVER_DEVICE]
            self.assertEqual(int(card.run(*argv).stdout), errno.EPERM)
            self.assertEqual(int(card.run(PROGRAM, "error", SERVER_DEVICE).stdout), 0)


def compiled(test, source, flags=()):
    """The C program built as its documentation says."""
    folder = tempfile.mkdtemp()
    test.addCleanup(shutil.rmtree, folder)
    program = os.path.join(folder, "program")
    argv = ["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", *flags, "-x", "c", "-", "-o", program, "-libverbs"]
    done = subprocess.run(argv, input=source, capture_output=True, text=True)
    if done.returncode != 0:
        raise harness.Failure(f"cc: {done.stderr}")
    return program


def page_example():
    """The program in the manual page, unescaped (groff_man(7): \\e is a backslash)."""
    with open(os.path.join(harness.SOURCE, "man", "ibv_create_flow.3")) as file:
        page = file.read()
    return re.search(r"\.Bd -literal\n(#include.*?)\n\.Ed", page, re.S).group(1).replace("\\e", "\\")


def wait_ready(program):
    harness.wait_until(lambda: "ready" in program.stdout or not program.running(), 20)
    if not program.running():
        raise harness.Failure(program.report("a receiver"))


class Documents(unittest.TestCase):
    def test_the_example_of_the_page_runs(self):
        program = compiled(self, page_example())
        with Card() as card:
            receiver = card.start(program, SERVER_DEVICE)
            wait_ready(receiver)
            card.run(PROGRAM, "send", CLIENT_DEVICE, mac_of(card, SERVER_DEVICE), 7470, 1)
            card.run(PROGRAM, "send", CLIENT_DEVICE, mac_of(card, SERVER_DEVICE), 7471, 1)
            self.assertTrue(receiver.wait(30), receiver.report("example"))
            self.assertEqual((receiver.returncode(), receiver.stdout), (0, "ready\nsuccess, 106 bytes\n"))
            card.wait_idle()

    def test_the_pages_render_without_complaint(self):
        for page in ("ibv_create_flow.3", "ibv_destroy_flow.3"):
            argv = ["mandoc", "-Tlint", "-Wwarning", os.path.join("man", page)]
            text = open(os.path.join(harness.SOURCE, "man", page)).read()
            if text.startswith(".so"):
                self.assertEqual(text, ".so man3/ibv_create_flow.3\n")
                continue
            done = subprocess.run(argv, capture_output=True, text=True, cwd=harness.SOURCE)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_the_sniffer_shows_and_counts_by_priority(self):
        path = os.path.join(harness.SOURCE, "examples", "udp_sniffer", "udp_sniffer.c")
        with open(path) as file:
            program = compiled(self, file.read())
        with Card() as card:
            sniffer = card.start(program, SERVER_DEVICE, "--take", 9001, "--port", 9002, "--count", 6)
            wait_ready(sniffer)
            for port, count in ((9001, 2), (9002, 3), (9003, 1)):
                card.run(PROGRAM, "send", CLIENT_DEVICE, mac_of(card, SERVER_DEVICE), port, count)
            self.assertTrue(sniffer.wait(30), sniffer.report("udp_sniffer"))
            expected = ["ready"]
            for name, port, count in (("taken", 9001, 2), ("port ", 9002, 3), ("other", 9003, 1)):
                expected += [f"{name} 10.0.0.1:5000 > 10.0.0.2:{port} 106 bytes"] * count
            expected += ["taken: 2 packets, 212 bytes", "port: 3 packets, 318 bytes", "all: 4 packets, 424 bytes"]
            self.assertEqual(sniffer.stdout.splitlines(), expected)
            card.wait_idle()


def colons(mac):
    return re.sub(r"(..)(?!$)", r"\1:", mac)


def raw_ethernet_pair(card, program, *words, client_words=()):
    """Both ends of a program for raw Ethernet. They do not talk: the server must be ready, with its rule, first."""
    source, target = (colons(mac_of(card, device)) for device in (CLIENT_DEVICE, SERVER_DEVICE))
    server = card.start(program, *words, "--server", "-d", SERVER_DEVICE, "-B", target, "-E", source)
    harness.wait_until(
        lambda: any(function["flow_rules"] for function in card.status()["functions"]) or not server.running(), 10
    )
    client = card.start(
        program, *words, *client_words, "--client", "-d", CLIENT_DEVICE, "-B", source, "-E", target
    )
    for one in (client, server):
        if not one.wait(60) or one.returncode() != 0:
            raise harness.Failure(client.report(f"{program}, client") + server.report(f"{program}, server"))
    return server, client


class Programs(unittest.TestCase):
    """Debian's perftest, unmodified."""

    def test_raw_ethernet_bw(self):
        # Nobody tells the sender to wait, so there is a receive for each frame.
        with Card() as card:
            words = ["-J", "10.0.0.1", "-j", "10.0.0.2", "-K", 7000, "-k", 5000, "-n", 5000, "-r", 8192, "-s", 1024, "-F"]
            for one in raw_ethernet_pair(card, "raw_ethernet_bw", *words):
                self.assertRegex(one.stdout, r"(?m)^ 1024 +5000 ")
            card.wait_idle()

    def test_raw_ethernet_lat(self):
        with Card() as card:
            for one in raw_ethernet_pair(card, "raw_ethernet_lat", "-n", 1000, "-s", 1024, "-F"):
                self.assertRegex(one.stdout, r"(?m)^ 1024 +1000 ")
            card.wait_idle()

    def test_ib_send_bw_to_a_multicast_group(self):
        # The group's GID is IPv6, so the sender's must be.
        with Card() as card, harness.reserved_port() as port:
            argv = ["ib_send_bw", "-c", "UD", "-g", "-x", harness.GID_IPV6, "-p", port, "-n", 500, "-s", 1024, "-F"]
            pair = card.run_pair([*argv, "-d", SERVER_DEVICE], [*argv, "-d", CLIENT_DEVICE, "127.0.0.1"], port)
            for program in (pair.server, pair.client):
                self.assertRegex(program.stdout, r"(?m)^ 1024 +500 ", program.report("ib_send_bw"))
            card.wait_idle()

    def test_raw_ethernet_burst_lat(self):
        # It polls 16 completions into a list that is as long as a burst, and waits for more of them than it asks for
        # unless each is signaled (-Q 1). The rate is in kbit/s.
        with Card() as card:
            words = ["-n", 400, "-s", 1024, "-F", "-Q", 1, "-t", 512, "--burst_size", 100]
            words += ["--rate_limit", 400000, "--rate_units", "M", "--rate_limit_type", "PP"]
            _, client = raw_ethernet_pair(card, "raw_ethernet_burst_lat", *words)
            self.assertRegex(client.stdout, r"(?m)^ 1024 +400 ")
            card.wait_idle()

    def test_raw_ethernet_fs_rate(self):
        with Card() as card:
            source, target = (colons(mac_of(card, device)) for device in (CLIENT_DEVICE, SERVER_DEVICE))
            words = ["-J", "10.0.0.1", "-j", "10.0.0.2", "-K", 7000, "-k", 5000]
            done = card.run(
                "raw_ethernet_fs_rate", "--server", "-d", SERVER_DEVICE, "-B", target, "-E", source, *words, timeout=60
            )
            self.assertRegex(done.stdout, r"flow per sec\]\s+\d+ ")
            card.wait_idle()


if __name__ == "__main__":
    harness.main()
