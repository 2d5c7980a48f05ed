"""RDMA CM with unmodified programs: rdmacm-utils, rsockets, perftest -R, UCX and libfabric over our librdmacm.

A server is ready when it sleeps, or spins: CM ports are the card's, so no table of the kernel shows them. Clients come from the
other device by RDMALAB_DEVICES or by the address they bind to, so that what they say crosses the cable.
"""

import contextlib
import os
import re
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
import perftest_output
from harness import CLIENT_DEVICE, IP_OF, SERVER_DEVICE, Card, Failure, Pair, costs

SERVER_IP = IP_OF[SERVER_DEVICE]
CLIENT_IP = IP_OF[CLIENT_DEVICE]
ON_SERVER = {"RDMALAB_DEVICES": SERVER_DEVICE}
ON_CLIENT = {"RDMALAB_DEVICES": CLIENT_DEVICE}
PORT = 7471
RSPRELOAD = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"
LOOPS, SOAK_LOOPS = 20, 200


READ, POLL, SELECT, NANOSLEEP, FUTEX, EPOLL_WAIT, PSELECT, PPOLL, EPOLL_PWAIT = 0, 7, 23, 230, 202, 232, 270, 271, 281
WAITS = {POLL, SELECT, NANOSLEEP, FUTEX, EPOLL_WAIT, PSELECT, PPOLL, EPOLL_PWAIT}


def waiting_calls(pid):
    """What the threads of a process wait for; None when one of them runs, or waits for an answer of the card."""
    calls = []
    try:
        for task in sorted(os.listdir(f"/proc/{pid}/task")):
            with open(f"/proc/{pid}/task/{task}/syscall") as file:
                number, *arguments = file.read().split()
            if number == "running":
                return None
            waits_for_event = int(number) == READ and os.readlink(f"/proc/{pid}/fd/{int(arguments[0], 16)}").startswith("pipe:")
            if int(number) not in WAITS and not waits_for_event:
                return None
            with open(f"/proc/{pid}/task/{task}/status") as file:
                switches = re.findall(r"ctxt_switches:\s+(\d+)", file.read())
            calls.append((number, arguments[:1], switches))  # the same later on: it has slept all the time
    except (OSError, ValueError):
        return None
    return calls


def wait_until_waiting(program, name, spins, timeout=20):
    """Until the program called `name` has started and waits for its clients: asleep for a while, or, if it is one that
    spins, with more CPU time than its start takes."""
    settle_s, start_cpu_s = 0.03, 0.25
    seen, since = None, time.monotonic()

    def is_waiting():
        nonlocal seen, since
        pid = program.find(name)
        if pid is None:
            return not program.running()
        calls = waiting_calls(pid)
        if calls is None or calls != seen:
            seen, since = calls, time.monotonic()
        with contextlib.suppress(OSError):
            if spins and harness.cpu_seconds(pid) > start_cpu_s:
                return True
        is_asleep = seen is not None and time.monotonic() - since > settle_s
        return is_asleep and not harness.descendants_of(pid)  # nor does it wait for a helper

    if not harness.wait_until(is_waiting, timeout) or not program.running():
        report = program.report("server")
        program.kill_group()
        raise Failure(f"the server does not wait for clients\n{report}")


def start_server(card, argv, env=ON_SERVER, spins=False):
    server = card.start(*argv, env=env)
    wait_until_waiting(server, os.path.basename(str(argv[0])), spins)
    return server


def run_pair(card, server, client, server_env=ON_SERVER, client_env=ON_CLIENT, timeout=60, spins=False):
    serving = start_server(card, server, server_env, spins)
    return Pair(serving, card.start(*client, env=client_env)).finish(timeout)


def cable_bytes(card):
    return card.counters()["ports"]["p1"]["tx_bytes"]


class Rping(unittest.TestCase):
    COUNT = 1000

    def check(self, server_words, client_words, count=COUNT, crosses=True):
        with Card() as card:
            before = cable_bytes(card)
            pair = run_pair(
                card,
                ["rping", "-s", "-C", count, "-v", "-V", "-p", PORT, *server_words],
                ["rping", "-c", "-C", count, "-v", "-V", "-p", PORT, *client_words],
            )
            pings = re.findall(r"^ping data: rdma-ping-(\d+):", pair.client.stdout, re.M)
            self.assertEqual(pings, [str(i) for i in range(count)], pair.client.report("client"))
            self.assertEqual(len(re.findall(r"^server ping data: rdma-ping-", pair.server.stdout, re.M)), count)
            self.assertEqual(cable_bytes(card) > before, crosses)
            card.wait_idle()

    def test_over_the_cable(self):
        self.check(["-a", SERVER_IP], ["-a", SERVER_IP, "-I", CLIENT_IP])

    def test_from_a_wildcard_listener(self):
        self.check(["-a", "0.0.0.0"], ["-a", SERVER_IP], count=100)

    def test_with_qps_moved_by_the_program(self):
        self.check(["-q", "-a", SERVER_IP], ["-q", "-a", SERVER_IP, "-I", CLIENT_IP], count=100)

    def test_large_messages(self):
        self.check(["-S", 60000, "-a", SERVER_IP], ["-S", 60000, "-a", SERVER_IP, "-I", CLIENT_IP], count=20)

    def test_to_127_0_0_1(self):
        with Card() as card:
            words = ["-C", 100, "-V", "-v", "-a", "127.0.0.1"]
            pair = run_pair(card, ["rping", "-s", *words], ["rping", "-c", *words], None, None)
            self.assertEqual(pair.client.stdout.count("ping data:"), 100)
            self.assertEqual(cable_bytes(card), 0)
            card.wait_idle()

    def test_to_the_devices_own_address(self):
        with Card() as card:
            words = ["-C", 100, "-V", "-v", "-a", SERVER_IP]
            run_pair(card, ["rping", "-s", *words], ["rping", "-c", *words], None, None)
            self.assertEqual(cable_bytes(card), 0)
            card.wait_idle()

    def test_to_the_loopback_address_of_ipv6(self):
        with Card() as card:
            words = ["-C", 100, "-V", "-v", "-a", "::1"]
            run_pair(card, ["rping", "-s", *words], ["rping", "-c", *words], None, None)
            card.wait_idle()

    def test_a_persistent_server_serves_one_after_the_other(self):
        with Card() as card:
            start_server(card, ["rping", "-s", "-P", "-a", SERVER_IP])
            for _ in range(LOOPS):
                card.run("rping", "-c", "-C", 10, "-V", "-v", "-a", SERVER_IP, env=ON_CLIENT)

    def test_an_unknown_destination_is_explained(self):
        with Card() as card:
            client = card.run("rping", "-c", "-C", 1, "-a", "10.9.9.9", env=ON_CLIENT, expect=None)
            self.assertNotEqual(client.returncode(), 0)
            self.assertIn("10.9.9.9", client.stderr)

    def test_nobody_listening_is_refused(self):
        with Card() as card:
            client = card.run("rping", "-c", "-C", 1, "-a", SERVER_IP, env=ON_CLIENT, expect=None)
            self.assertNotEqual(client.returncode(), 0)
            card.wait_idle()


class Utilities(unittest.TestCase):
    def check(self, server, client, expected=r"return status 0", **kwargs):
        with Card() as card:
            pair = run_pair(card, server, client, **kwargs)
            for program in (pair.server, pair.client):
                self.assertRegex(program.output, expected, program.report("program"))
            card.wait_idle()
            return pair

    def test_udaddy(self):
        self.check(["udaddy", "-b", SERVER_IP], ["udaddy", "-s", SERVER_IP, "-b", CLIENT_IP])

    def test_udaddy_with_many_connections_and_messages(self):
        words = ["-c", 8, "-C", 100, "-S", 1000]
        self.check(["udaddy", *words], ["udaddy", "-s", SERVER_IP, *words])

    def test_udaddy_in_the_ipoib_port_space(self):
        self.check(["udaddy", "-p", "0x0002"], ["udaddy", "-s", SERVER_IP, "-p", "0x0002"])

    def test_ucmatose(self):
        self.check(["ucmatose", "-b", SERVER_IP], ["ucmatose", "-s", SERVER_IP, "-b", CLIENT_IP])

    def test_ucmatose_with_many_connections(self):
        words = ["-c", 50, "-C", 20, "-S", 5000]
        self.check(["ucmatose", *words], ["ucmatose", "-s", SERVER_IP, *words])

    def test_ucmatose_with_tos_and_ack_timeout(self):
        self.check(["ucmatose"], ["ucmatose", "-s", SERVER_IP, "-t", 40, "-a", 18])

    def test_ucmatose_that_migrates_its_ids(self):
        self.check(["ucmatose", "-m"], ["ucmatose", "-m", "-s", SERVER_IP])

    def test_ucmatose_in_the_ib_port_space(self):
        self.check(["ucmatose", "-P", "ib"], ["ucmatose", "-P", "ib", "-s", SERVER_IP])

    def test_ucmatose_with_gids(self):
        words = ["-f", "gid"]
        self.check(
            ["ucmatose", *words, "-P", "ib", "-b", f"::ffff:{SERVER_IP}"],
            ["ucmatose", *words, "-P", "ib", "-s", f"::ffff:{SERVER_IP}", "-b", f"::ffff:{CLIENT_IP}"],
        )

    def test_cmtime(self):
        with Card() as card:
            server = start_server(card, ["cmtime", "-c", 500])  # it never ends by itself
            client = card.run("cmtime", "-s", SERVER_IP, "-c", 500, env=ON_CLIENT)
            self.assertRegex(client.stdout, r"connect\s*:\s*[\d.]+", client.report("client"))
            server.kill_group()
            card.wait_idle()

    def test_rdma_client_and_server(self):
        self.check(
            ["rdma_server", "-s", SERVER_IP], ["rdma_client", "-s", SERVER_IP], expected=r"rdma_(client|server): end 0"
        )

    def test_rdma_client_and_server_on_the_default_address(self):
        self.check(["rdma_server"], ["rdma_client"], r"rdma_(client|server): end 0", server_env=None, client_env=None)

    def test_rdma_xclient_and_xserver_rc(self):
        self.check(
            ["rdma_xserver", "-c", "r"], ["rdma_xclient", "-c", "r", "-s", SERVER_IP], r"rdma_x?(client|server): end 0"
        )

    def test_rdma_xclient_and_xserver_xrc(self):
        with Card() as card:
            if "XRC" not in card.run("ibv_devinfo", "-v", "-d", SERVER_DEVICE).stdout:
                self.skipTest("the device does not offer XRC")
        self.check(
            ["rdma_xserver", "-c", "x"], ["rdma_xclient", "-c", "x", "-s", SERVER_IP], r"rdma_x?(client|server): end 0"
        )

    def test_mckey(self):
        group = ["-m", "239.1.2.3", "-C", 20]
        with Card() as card:
            receiver = start_server(card, ["mckey", *group, "-b", SERVER_IP], None)
            sender = card.start("mckey", "-s", *group, "-b", CLIENT_IP)
            pair = Pair(receiver, sender).finish(20)
            for program in (pair.server, pair.client):
                self.assertIn("return status 0", program.output)
            card.wait_idle()


class Misuse(unittest.TestCase):
    def test_what_makes_no_sense_is_refused_with_the_right_errno(self):
        with Card() as card:
            program = card.run(harness.tool("cm_misuse"), SERVER_IP, env=ON_SERVER)
            self.assertEqual(program.stdout, "all as expected\n")
            card.wait_idle()
            # Answers of what is over may have to be repeated for a second.
            self.assertTrue(harness.wait_until(lambda: not any(card.status()["cm"].values()), 10), card.status()["cm"])


class Rsockets(unittest.TestCase):
    def test_rcopy(self):
        with Card() as card:
            source, target = os.path.join(card.folder, "source"), os.path.join(card.folder, "target")
            with open(source, "wb") as file:
                file.write(os.urandom(8 << 20))
            start_server(card, ["rcopy"])
            card.run("rcopy", source, f"{SERVER_IP}:{target}", env=ON_CLIENT)
            with open(source, "rb") as one, open(target, "rb") as two:
                self.assertTrue(one.read() == two.read(), "the copy differs")

    def stream(self, *words, program="rstream", client_env=ON_CLIENT, address=SERVER_IP, timeout=90):
        with Card() as card:
            before = cable_bytes(card)
            pair = run_pair(
                card, [program, *words], [program, "-s", address, *words], client_env=client_env, timeout=timeout, spins=True
            )
            self.assertGreater(cable_bytes(card), before)
            self.assertNotRegex(pair.client.output + pair.server.output, r"(?i)data verification failed|error")
            card.wait_idle()
            return pair.client.stdout

    @costs(label="soak", timeout=1800)
    def test_rstream_series(self):
        output = self.stream("-S", "all", timeout=1700)
        self.assertGreaterEqual(len(re.findall(r"^\w+_(?:lat|bw)\s", output, re.M)), 20, output)

    def test_rstream_sizes(self):
        for size in (1, 64, 4096, 65536, 1 << 20):
            with self.subTest(size=size):
                self.stream("-I", 10, "-C", 5, "-S", size)

    def test_rstream_verified(self):
        self.stream("-T", "v", "-I", 100, "-C", 10, "-S", 5000)

    def test_rstream_async(self):
        self.stream("-T", "a", "-T", "v", "-I", 100, "-C", 10, "-S", 5000)

    def test_rstream_blocking(self):
        self.stream("-T", "b", "-T", "v", "-I", 100, "-C", 10, "-S", 5000)

    def test_rstream_nonblocking(self):
        self.stream("-T", "n", "-T", "v", "-I", 100, "-C", 10, "-S", 5000)

    def test_rstream_resolving_by_rdma_cm(self):
        self.stream("-T", "r", "-T", "v", "-I", 100, "-C", 10, "-S", 5000)

    def test_rstream_with_gids(self):
        self.stream("-f", "gid", "-T", "v", "-I", 20, "-C", 10, "-S", 5000, address=f"::ffff:{SERVER_IP}")

    def test_rstream_large_transfers(self):
        self.stream("-T", "v", "-I", 3, "-C", 2, "-S", 8 << 20)

    def test_rstream_small_buffers(self):
        self.stream("-B", 4096, "-T", "v", "-I", 20, "-C", 10, "-S", 10000)

    def test_rstream_many_small_messages(self):
        self.stream("-T", "v", "-I", 5, "-C", 5000, "-S", 3)

    def test_riostream(self):
        self.stream("-T", "v", "-I", 50, "-C", 10, "-S", 5000, program="riostream")

    def test_riostream_large_transfers(self):
        self.stream("-T", "v", "-I", 3, "-C", 2, "-S", 300000, program="riostream")

    def datagrams(self, *words):
        with Card() as card:
            start_server(card, ["udpong", *words, "-b", SERVER_IP], spins=True)
            client = card.run("udpong", *words, "-s", SERVER_IP, env=ON_CLIENT, timeout=60)
            return client.stdout

    def test_udpong(self):
        self.datagrams("-C", 200, "-S", 1000)

    def test_udpong_echo(self):
        self.datagrams("-C", 200, "-S", 1000, "-T", "e")

    def test_udpong_nonblocking(self):
        self.datagrams("-C", 200, "-S", 64, "-T", "n")

    def test_udpong_async(self):
        self.datagrams("-C", 200, "-S", 64, "-T", "a")

    def test_a_program_of_plain_sockets_runs_on_rspreload(self):
        size = 1 << 20
        with Card() as card:
            preload = {"LD_PRELOAD": RSPRELOAD}
            before = cable_bytes(card)
            words = [harness.tool("plain_sockets"), SERVER_IP, 7000]
            pair = run_pair(card, words, [*words, size], {**ON_SERVER, **preload}, {**ON_CLIENT, **preload})
            self.assertIn(f"{size} bytes echoed", pair.client.stdout)
            self.assertGreater(cable_bytes(card) - before, size)
            card.wait_idle()


# perftest itself refuses UC with -R ("UC is not supported in librdmacm").
PERFTEST = {"write": ["RC"], "read": ["RC"], "send": ["RC", "UD"], "atomic": ["RC"]}


def perftest_cases():
    """(title, tool, flags)"""
    for verb, transports in PERFTEST.items():
        for transport in transports:
            for metric in ("bw", "lat"):
                flags = {"plain": []}
                if metric == "bw":
                    flags |= {"b": ["-b"], "q16": ["-q", 16]}
                if verb != "write":
                    flags["e"] = ["-e"]
                if verb == "send" and (metric, transport) != ("lat", "UD"):
                    # There perftest posts a receive to the QP that has the SRQ, which no adapter takes.
                    flags["srq"] = ["--use-srq"]
                for title, words in flags.items():
                    yield f"{verb}_{metric}_{transport.lower()}_{title}", f"ib_{verb}_{metric}", ["-c", transport, *words]


class PerftestPairs(unittest.TestCase):
    ITERATIONS = 200

    def words(self, tool, flags, device):
        words = [tool, "-d", device, "-R", "-F", "-p", PORT, "-n", self.ITERATIONS, *flags]
        return words if "atomic" in tool else words + ["-s", 1024]

    def pair(self, card, tool, flags):
        return run_pair(
            card,
            self.words(tool, flags, SERVER_DEVICE),
            [*self.words(tool, flags, CLIENT_DEVICE), "--source_ip", CLIENT_IP, SERVER_IP],
        )

    def loop(self, count, cases):
        """Each time both sides must exit with 0."""
        with Card() as card:
            for number in range(count):
                _, tool, flags = cases[number % len(cases)]
                try:
                    self.pair(card, tool, flags)
                except Failure as failure:
                    raise Failure(f"run {number + 1} of {count}: {failure}")
            card.wait_idle()


class PerftestOverCm(PerftestPairs):
    def check(self, tool, flags):
        with Card() as card:
            before = cable_bytes(card)
            pair = self.pair(card, tool, flags)
            rows = perftest_output.rows(pair.client.stdout)
            self.assertEqual(len(rows), 1, pair.client.report("client"))
            self.assertGreater(rows[0]["average"], 0)
            self.assertRegex(pair.client.stdout, r"rdma_cm QPs\s*:\s*ON")
            self.assertGreater(cable_bytes(card), before)
            card.wait_idle()

    def test_perftest_itself_refuses_uc(self):
        with Card() as card:
            for tool in ("ib_write_bw", "ib_send_lat"):
                program = card.run(tool, "-c", "UC", "-R", "-d", SERVER_DEVICE, expect=1)
                self.assertIn("UC is not supported in librdmacm", program.output)

    def test_again_and_again(self):
        self.loop(LOOPS, list(perftest_cases()))


class PerftestSoak(PerftestPairs):
    """Every case 200 times in a row."""


def add_perftest(case):
    title, tool, flags = case

    @costs(label="soak", timeout=3600)
    def soak(self):
        self.loop(SOAK_LOOPS, [case])

    setattr(PerftestSoak, f"test_200_times_{title}", soak)
    setattr(PerftestOverCm, f"test_{title}", lambda self: self.check(tool, flags))


for each in perftest_cases():
    add_perftest(each)


class Libraries(unittest.TestCase):
    def test_fi_pingpong_rdm(self):
        self.fabric("rdm", ["-p", "verbs;ofi_rxm"])

    def test_fi_pingpong_msg(self):
        self.fabric("msg", ["-p", "verbs"])

    def fabric(self, endpoint, provider):
        with Card() as card, harness.reserved_port() as port:
            argv = ["fi_pingpong", *provider, "-e", endpoint, "-I", 100, "-c"]
            pair = card.run_pair(
                [*argv, "-d", SERVER_DEVICE, "-B", port],
                [*argv, "-d", CLIENT_DEVICE, "-P", port, "127.0.0.1"],
                port,
                env=(ON_SERVER, ON_CLIENT),
            )
            for program in (pair.server, pair.client):
                self.assertGreaterEqual(len(re.findall(r"^(\d+[km]?)\s+(\d+)\s+=\2", program.stdout, re.M)), 5)
            card.wait_idle()

    def test_ucx_connects_by_rdma_cm(self):
        """io_demo does; ucx_perftest has its workers' addresses exchanged over TCP and knows no other way."""
        ucx = {"UCX_TLS": "rc", "UCX_SOCKADDR_TLS_PRIORITY": "rdmacm", "UCX_LOG_LEVEL": "warn"}
        words = ["io_demo", "-d", "4096:65536", "-q", "-p", 1337]
        with Card() as card:
            before = cable_bytes(card)
            server = start_server(card, words, {**ucx, **ON_SERVER, "UCX_NET_DEVICES": "mlx5_2:1"}, True)
            client = card.run(
                *[*words, "-o", "read,write", "-i", 200, SERVER_IP],
                env={**ucx, **ON_CLIENT, "UCX_NET_DEVICES": "mlx5_3:1"},
            )
            self.assertIn("Client exit with status 'OK'", client.output)
            self.assertNotRegex(client.output + server.output, r"\b(ERROR|WARN)\b")
            self.assertGreater(cable_bytes(card) - before, 50 * 4096)


if __name__ == "__main__":
    harness.main()
