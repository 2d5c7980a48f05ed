"""Libraries above verbs: UCX (ucx_perftest), libfabric (fi_pingpong), OpenMPI over UCX."""

import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import CLIENT_DEVICE, PORT_OF, SERVER_DEVICE, Card, Failure, reserved_port

UCX_WARNINGS = {"UCX_LOG_LEVEL": "warn"}


def ucx_environment(transports, device):
    return {"UCX_TLS": transports, "UCX_NET_DEVICES": f"{device}:1", **UCX_WARNINGS}


class Ucx(unittest.TestCase):
    """(transports, test, message size, iterations); the bytes must have crossed the cable."""

    CASES = [
        ("rc", "tag_bw", 65536, 1000),
        ("rc", "tag_bw", 64, 2000),
        ("rc", "tag_lat", 8, 1000),
        ("rc", "ucp_put_bw", 65536, 1000),
        ("rc", "ucp_put_lat", 8, 1000),
        ("rc", "ucp_get", 65536, 500),
        ("rc", "ucp_fadd", 8, 500),
        ("rc", "ucp_cswap", 8, 500),
        ("rc", "stream_bw", 4096, 1000),
        ("rc", "ucp_am_bw", 4096, 1000),
        ("ud", "tag_bw", 4096, 1000),
        ("ud", "tag_lat", 8, 1000),
        ("ud", "ucp_put_bw", 4096, 500),
    ]

    def check(self, transports, test, size, iterations):
        with Card() as card, reserved_port() as port:
            before = card.counters()["ports"]
            argv = ["ucx_perftest", "-p", port]
            pair = card.run_pair(
                argv,
                [*argv, "127.0.0.1", "-t", test, "-s", size, "-n", iterations, "-w", 50, "-f", "-v"],
                port,
                env=(ucx_environment(transports, SERVER_DEVICE), ucx_environment(transports, CLIENT_DEVICE)),
            )
            row = re.search(r"^\s*(\d+),([\d.]+),([\d.]+),", pair.client.stdout, re.M)
            self.assertIsNotNone(row, pair.client.report("client"))
            self.assertEqual(int(row.group(1)), iterations)
            self.assertNotRegex(pair.client.output + pair.server.output, r"\b(ERROR|WARN)\b")
            after = card.counters()["ports"]
            source = SERVER_DEVICE if test in ("ucp_get", "ucp_fadd", "ucp_cswap") else CLIENT_DEVICE
            port_name = PORT_OF[source]
            self.assertGreaterEqual(
                after[port_name]["tx_bytes"] - before[port_name]["tx_bytes"], size * iterations, f"bytes out of {port_name}"
            )
            card.wait_idle()

    def test_info_lists_the_device_for_rc_and_ud(self):
        with Card() as card:
            output = card.run("ucx_info", "-d", env=UCX_WARNINGS).stdout
            for transport in ("rc_verbs", "ud_verbs"):
                self.assertRegex(output, rf"Transport: {transport}\n#\s+Device: mlx5_2:1")


def add_ucx(transports, test, size, iterations):
    def body(self):
        self.check(transports, test, size, iterations)

    setattr(Ucx, f"test_{transports}_{test}_{size}", body)


for case_ in Ucx.CASES:
    add_ucx(*case_)


class UctTransports(unittest.TestCase):
    """Every transport that UCX finds on a device, at its lowest level (UCT), with every test that it has the means for."""

    TESTS = {"am_short": [("am_lat", "short", 8)], "am_bcopy": [("am_bw", "bcopy", 4000)], "am_zcopy": [("am_bw", "zcopy", 4000)],
             "put_short": [("put_lat", "short", 8)], "put_zcopy": [("put_bw", "zcopy", 65536)],
             "get_zcopy": [("get", "zcopy", 65536)], "atomic_fadd": [("fadd", "short", 8), ("cswap", "short", 8)]}

    def transports(self, card):
        """{transport: the operations it has}, of the server's device."""
        found = {}
        output = card.run("ucx_info", "-d", env=UCX_WARNINGS).stdout
        for name, device, body in re.findall(r"Transport: (\w+)\n#\s+Device: (\S+)\n(.*?)(?=Transport:|\Z)", output, re.S):
            if device == f"{SERVER_DEVICE}:1":
                found[name] = set(re.findall(r"^#\s+(\w+): (?:<=|\d)", body, re.M))
        return found

    def run_one(self, card, transport, test, layout, size):
        with reserved_port() as port:
            argv = ["ucx_perftest", "-p", port, "-x", transport]
            what = ["-t", test, "-D", layout, "-s", size, "-n", 500, "-w", 10, "-f", "-v"]
            pair = card.run_pair(
                [*argv, "-d", f"{SERVER_DEVICE}:1"],
                [*argv, "-d", f"{CLIENT_DEVICE}:1", "127.0.0.1", *what],
                port,
                env=(UCX_WARNINGS, UCX_WARNINGS),
            )
            row = re.search(r"^\s*(\d+),[\d.]+,", pair.client.stdout, re.M)
            self.assertIsNotNone(row, pair.client.report("client"))
            self.assertEqual(int(row.group(1)), 500)
            self.assertNotRegex(pair.client.output + pair.server.output, r"\b(ERROR|WARN)\b")

    @harness.costs(timeout=180)
    def test_every_transport_moves_data(self):
        with Card() as card:
            transports = self.transports(card)
            self.assertLessEqual({"rc_verbs", "ud_verbs"}, set(transports))
            for transport, operations in transports.items():
                tests = [one for operation in sorted(operations) for one in self.TESTS.get(operation, [])]
                self.assertGreaterEqual(len(tests), 2, f"{transport} offers {operations}")
                for test, layout, size in tests:
                    with self.subTest(transport=transport, test=test, layout=layout):
                        self.run_one(card, transport, test, layout, size)
            card.wait_idle()


class Fabric(unittest.TestCase):
    ITERATIONS = 100

    def check(self, endpoint, suffix, sizes):
        """`sizes` is how many message sizes a run has: a datagram is not longer than the MTU."""
        with Card() as card, reserved_port() as port:
            argv = ["fi_pingpong", "-p", "verbs", "-e", endpoint, "-I", self.ITERATIONS, "-c"]
            pair = card.run_pair(
                [*argv, "-d", SERVER_DEVICE + suffix, "-B", port],
                [*argv, "-d", CLIENT_DEVICE + suffix, "-P", port, "127.0.0.1"],
                port,
                # RDMA CM would connect two devices of one host by a loopback of the target's.
                env=({"RDMALAB_DEVICES": SERVER_DEVICE}, {"RDMALAB_DEVICES": CLIENT_DEVICE}),
            )
            for program in (pair.server, pair.client):
                rows = re.findall(r"^(\d+[km]?)\s+(\d+)\s+=\2", program.stdout, re.M)
                self.assertGreaterEqual(len(rows), sizes, program.report("fi_pingpong"))
                self.assertEqual({iterations for _, iterations in rows}, {str(self.ITERATIONS)})
            card.wait_idle()

    def test_msg(self):
        self.check("msg", "", 5)

    def test_dgram(self):
        self.check("dgram", "-dgram", 4)


def run_mpi(card, transports, devices):
    """mpirun with one rank per device; the bytes that each rank received and checked."""
    # Without `--mca pml ucx` OpenMPI would take shared memory and no byte would reach the card.
    argv = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    argv += ["--mca", "pml", "ucx", "--mca", "osc", "ucx"]
    for index, device in enumerate(devices):
        argv += [":"] if index else []
        argv += ["-np", 1]
        for name, value in ucx_environment(transports, device).items():
            argv += ["-x", f"{name}={value}"]
        for name in ("LD_LIBRARY_PATH", "RDMALAB_RUNTIME_DIR"):
            argv += ["-x", name]
        argv += [harness.tool("mpi_ring")]
    program = card.run(*argv, timeout=60)
    said = re.search(r"2 ranks, (\d+) bytes each, all correct", program.stdout)
    if not said or re.search(r"\b(ERROR|WARN)\b", program.output):
        raise Failure(program.report("mpirun"))
    return int(said.group(1))


class Mpi(unittest.TestCase):
    def check(self, transports, devices):
        with Card() as card:
            before = card.counters()["ports"]["p1"]["tx_bytes"]
            moved = run_mpi(card, transports, devices)
            grown = card.counters()["ports"]["p1"]["tx_bytes"] - before
            if len(set(devices)) > 1:
                self.assertGreaterEqual(grown, moved, "bytes out of p1")
            card.wait_idle()

    def test_two_ranks_on_two_devices(self):
        self.check("rc", [SERVER_DEVICE, CLIENT_DEVICE])

    def test_two_ranks_on_one_device(self):
        self.check("rc", [SERVER_DEVICE, SERVER_DEVICE])

    def test_two_ranks_over_ud(self):
        self.check("ud", [SERVER_DEVICE, CLIENT_DEVICE])


if __name__ == "__main__":
    harness.main()
