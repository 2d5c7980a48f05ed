"""What is on the wire: captures of every family of programs, decoded by tshark without a complaint, every ICRC checked
by code of our own (tests/roce.py), and the header fields as the address handle says."""

import contextlib
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import data
import harness
import middleware
import perftest
import pingpong
import roce
from harness import CLIENT_DEVICE, SERVER_DEVICE, Card, Failure, reserved_port, wait_until
from perftest import Case

WARNING = 0x600000  # severity of tshark's expert information
# RoCEv2 sends a UDP checksum of zero over IPv6 too, which tshark accepts only when it is told to (RFC 6936).
TSHARK_OPTIONS = ["-o", "ip.check_checksum:TRUE", "-o", "udp.ignore_ipv6_zero_checksum:TRUE"]
# Our payload is random: tshark must not take it for another protocol and complain about that.
TSHARK_OPTIONS += ["--disable-protocol", "infiniband.eoib"]
for guess in ("eth_over_ib", "fc_infiniband", "sdp_infiniband", "iser_infiniband", "lnet_ib", "rpcrdma_infiniband",
              "smb_direct_infiniband", "smcr_infiniband"):
    TSHARK_OPTIONS += ["--disable-heuristic", guess]


@contextlib.contextmanager
def capture(card, at):
    """A capture around the body of `with`; gives the file's path."""
    path = os.path.join(card.folder, f"{at}.pcapng")
    program = harness.Program(
        [harness.LAUNCHER, "pcap", "--name", card.name, "--at", at, path], card.environment, cwd=card.folder
    )
    card.programs.append(program)
    wait_until(
        lambda: not program.running() or at in [capture["at"] for capture in card.status()["captures"]], 5
    )
    if not program.running():
        raise Failure(program.report("rdmalab pcap"))
    yield path
    os.killpg(program.pid, signal.SIGINT)
    if not program.wait(5) or program.returncode() != 0:
        raise Failure(program.report("rdmalab pcap after SIGINT"))


def ask_tshark(path):
    """(opcodes of all InfiniBand frames, complaints): a complaint is a malformed packet or expert information of level
    warning and up."""
    argv = ["tshark", "-n", "-r", path, *TSHARK_OPTIONS, "-T", "fields", "-E", "separator=|", "-E", "occurrence=l"]
    for field in ("frame.number", "infiniband.bth.opcode", "_ws.malformed", "_ws.expert.severity", "_ws.expert.message"):
        argv += ["-e", field]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise Failure(f"tshark: {done.stderr}")
    opcodes, complaints = [], []
    for line in done.stdout.splitlines():
        number, opcode, malformed, severity, message = line.split("|", 4)
        opcodes += [int(opcode)] if opcode else []
        if malformed or int(severity or 0) >= WARNING:
            complaints.append(f"frame {number}: {malformed} {message}")
    return opcodes, complaints


def check_capture(path):
    """Every frame is RoCEv2 and right; returns them dissected."""
    packets = roce.read_pcapng(path)
    if not packets:
        raise Failure("nothing was captured")
    frames = []
    for number, raw in enumerate(packets, 1):
        frame = roce.dissect(raw)
        if frame is None:
            raise Failure(f"frame {number} is not RoCEv2: {raw[:64].hex()}")
        if roce.icrc(frame) != raw[-4:]:
            raise Failure(f"frame {number}: ICRC {raw[-4:].hex()}, expected {roce.icrc(frame).hex()}: {raw[:80].hex()}")
        if not roce.ipv4_checksum_right(frame):
            raise Failure(f"frame {number}: IPv4 header checksum")
        if frame.source_port < 0xC000:
            raise Failure(f"frame {number}: UDP source port {frame.source_port} is outside 49152 to 65535")
        frames.append(frame)
    opcodes, complaints = ask_tshark(path)
    if complaints:
        raise Failure("tshark complains:\n" + "\n".join(complaints[:10]))
    if opcodes != [frame.opcode for frame in frames]:
        raise Failure("tshark and our own reader disagree about the opcodes")
    return frames


def run_program(card, *argv, env=(None, None), devices=(SERVER_DEVICE, CLIENT_DEVICE), port_flags=("-p", "-p")):
    """A pair that takes -d DEVICE and a port flag."""
    with reserved_port() as port:
        return card.run_pair(
            [*argv, "-d", devices[0], port_flags[0], port], [*argv, "-d", devices[1], port_flags[1], port, "127.0.0.1"],
            port, env=env,
        )


class Frames(unittest.TestCase):
    def captured(self, run, expected, at="p0"):
        """Runs a program under a capture; the opcodes `expected` must be among the frames."""
        with Card() as card:
            with capture(card, at) as path:
                run(card)
            frames = check_capture(path)
            seen = {frame.opcode for frame in frames}
            self.assertLessEqual(expected, seen, f"opcodes seen: {sorted(seen)}")
            return frames

    def test_the_representor_and_both_ports_see_the_same_frames(self):
        with Card() as card:
            with capture(card, "p0") as port0, capture(card, "p1") as port1, capture(card, "pf0sf0") as representor:
                perftest.run_case(card, Case("write", "bw", "RC", ["-n", 50]))
            lists = [sorted(roce.read_pcapng(path)) for path in (port0, port1, representor)]
            self.assertEqual(lists[0], lists[1])
            self.assertEqual(lists[0], lists[2])
            check_capture(representor)

    def test_reversed_copy_of_the_address_handle_is_used_by_acks(self):
        frames = self.captured(
            lambda card: data.move(card, "write", "--messages", 20, "--traffic-class", 0x68, "--hop-limit", 33),
            {roce.RC_ACK},
        )
        self.assertEqual({frame.traffic_class >> 2 for frame in frames}, {0x68 >> 2})
        self.assertEqual({frame.hop_limit for frame in frames}, {33})

    def test_data_is_ecn_capable(self):
        frames = self.captured(lambda card: data.move(card, "write", "--messages", 20, "--sizes", 8000), {0x06, 0x08})
        requests = [frame for frame in frames if frame.opcode != roce.RC_ACK]
        self.assertTrue({frame.traffic_class & 3 for frame in requests} <= {1, 2}, "ECT(0) or ECT(1)")

    def test_one_qp_keeps_its_source_port(self):
        frames = self.captured(
            lambda card: data.move(card, "write", "--messages", 50, "--sizes", 8000), {0x06, roce.RC_ACK}
        )
        ports = {}
        for frame in frames:
            ports.setdefault(frame.qpn, set()).add(frame.source_port)
        for qpn, used in ports.items():
            self.assertEqual(len(used), 1, f"source ports towards QP {qpn}: {used}")

    def test_marked_data_makes_notifications(self):
        """Every ECN-capable frame of one direction is marked CE on the cable; the receiver notifies, at most once per QP
        in the interval, and the sender counts."""
        with Card() as card:
            card.link("--direction", "b-to-a", "--ce", "100%")
            with capture(card, "p0") as path:
                data.move(card, "write", "--messages", 200, "--sizes", 65536)
            functions = card.counters()["functions"]
            server, client = functions[SERVER_DEVICE], functions[CLIENT_DEVICE]
            self.assertGreater(server["np_ecn_marked_roce_packets"], 200)
            self.assertGreater(server["np_cnp_sent"], 0)
            self.assertLess(server["np_cnp_sent"], server["np_ecn_marked_roce_packets"])
            self.assertEqual(client["rp_cnp_handled"], server["np_cnp_sent"])
            frames = check_capture(path)
            self.assertEqual(sum(frame.opcode == roce.CNP for frame in frames), server["np_cnp_sent"])
            marked = sum(frame.traffic_class & 3 == 3 for frame in frames)
            self.assertEqual(marked, server["np_ecn_marked_roce_packets"])

    def test_perftest_traffic_class(self):
        with Card() as card:
            with capture(card, "p0") as path:
                run_program(card, *"ib_write_bw -x 1 -F -n 50 --tclass 104".split())
            self.assertEqual({frame.traffic_class >> 2 for frame in check_capture(path)}, {104 >> 2})


def address_handle_test(transport, gid):
    label = 0xABCDE

    def test(self):
        verb = "send" if transport == "UD" else "write"
        frames = self.captured(
            lambda card: data.move(
                card, verb, "--sizes", 1000, "--messages", 30, "--gid", gid, "--traffic-class", 0xB8, "--hop-limit", 7,
                "--flow-label", label, transport=transport,
            ),
            set(),
        )
        self.assertEqual({frame.version for frame in frames}, {4 if gid == harness.GID_IPV4 else 6})
        self.assertEqual({frame.traffic_class >> 2 for frame in frames}, {0xB8 >> 2})
        self.assertEqual({frame.hop_limit for frame in frames}, {7})
        self.assertEqual({frame.source_port for frame in frames}, {roce.udp_source_port_of(label)})
        if gid == harness.GID_IPV6:
            self.assertEqual({frame.flow_label for frame in frames}, {label})

    return test


for transport_ in ("RC", "UC", "UD"):
    for gid_, name_ in ((harness.GID_IPV4, "ipv4"), (harness.GID_IPV6, "ipv6")):
        setattr(Frames, f"test_address_handle_{transport_.lower()}_{name_}", address_handle_test(transport_, gid_))

RC_SEND, RC_WRITE, RC_READ = {0x00, 0x01, 0x02, roce.RC_ACK}, {0x06, 0x07, 0x08, roce.RC_ACK}, {0x0C, 0x0D, 0x0E, 0x0F}
UC_SEND, UC_WRITE, UD_SEND = {0x20, 0x21, 0x22}, {0x26, 0x27, 0x28}, {0x64}


def ucx(transports, test):
    def run(card):
        env = tuple(middleware.ucx_environment(transports, device) for device in (SERVER_DEVICE, CLIENT_DEVICE))
        with reserved_port() as port:
            argv = ["ucx_perftest", "-p", port]
            client = [*argv, "127.0.0.1", "-t", test, "-s", 8192, "-n", 100, "-w", 10]
            card.run_pair(argv, client, port, env=env)

    return run


def fabric(card):
    run_program(
        card, *"fi_pingpong -p verbs -e dgram -I 20".split(), port_flags=("-B", "-P"),
        devices=(SERVER_DEVICE + "-dgram", CLIENT_DEVICE + "-dgram"),
    )


def mpi(card):
    middleware.run_mpi(card, "rc", [SERVER_DEVICE, CLIENT_DEVICE])


def perftest_case(verb, metric, transport, gid):
    return lambda card: perftest.run_case(card, Case(verb, metric, transport, ["-n", 50], gid=gid))


def pingpong_case(transport, gid):
    return lambda card: pingpong.run_pingpong(card, transport, ["-c"], 50, gid)


def data_case(verb, transport="RC"):
    sizes = [0, 1, 1024, 2049] if transport != "UD" else [0, 1, 1023]
    return lambda card: data.move(card, verb, "--sizes", data.comma(sizes), "--messages", 40, transport=transport)


FAMILIES = {
    "write_bw": (perftest_case("write", "bw", "RC", 1), RC_WRITE),
    "write_bw_uc": (perftest_case("write", "bw", "UC", 1), UC_WRITE),
    "write_bw_ipv6": (perftest_case("write", "bw", "RC", 0), RC_WRITE),
    "write_lat": (perftest_case("write", "lat", "RC", 1), {0x0A, roce.RC_ACK}),
    "read_bw": (perftest_case("read", "bw", "RC", 1), RC_READ),
    "read_lat": (perftest_case("read", "lat", "RC", 0), {0x0C, 0x10}),
    "send_bw": (perftest_case("send", "bw", "RC", 1), RC_SEND),
    "send_bw_uc": (perftest_case("send", "bw", "UC", 1), UC_SEND),
    "send_bw_ud": (perftest_case("send", "bw", "UD", 1), UD_SEND),
    "send_bw_ud_ipv6": (perftest_case("send", "bw", "UD", 0), UD_SEND),
    "send_lat": (perftest_case("send", "lat", "RC", 1), {0x04, roce.RC_ACK}),
    "atomic_bw": (perftest_case("atomic", "bw", "RC", 1), {0x14, roce.RC_ATOMIC_ACK}),
    "atomic_lat": (perftest_case("atomic", "lat", "RC", 1), {0x14, roce.RC_ATOMIC_ACK}),
    "rc_pingpong": (pingpong_case("rc", 1), RC_SEND),
    "uc_pingpong": (pingpong_case("uc", 0), UC_SEND),
    "ud_pingpong": (pingpong_case("ud", 1), UD_SEND),
    "srq_pingpong": (pingpong_case("srq", 1), RC_SEND),
    "write_imm": (data_case("write_imm"), {0x06, 0x09, 0x0B}),
    "send_imm": (data_case("send_imm"), {0x00, 0x03, 0x05}),
    "send_imm_ud": (data_case("send_imm", "UD"), {0x65}),
    "write_imm_uc": (data_case("write_imm", "UC"), {0x26, 0x29, 0x2B}),
    "compare_swap": (data_case("compare_swap"), {0x13, roce.RC_ATOMIC_ACK}),
    "ucx_rc_tag": (ucx("rc", "tag_bw"), {roce.RC_ACK}),
    "ucx_rc_get": (ucx("rc", "ucp_get"), {roce.RC_READ_REQUEST}),
    "ucx_rc_put": (ucx("rc", "ucp_put_bw"), {roce.RC_ACK}),
    "ucx_ud_tag": (ucx("ud", "tag_bw"), UD_SEND),
    "mpi": (mpi, {roce.RC_ACK}),
    "fi_pingpong_dgram": (fabric, UD_SEND),
}


def add(name, run, expected):
    def test(self):
        self.captured(run, expected)

    setattr(Frames, f"test_{name}", test)


for name_, (run_, expected_) in FAMILIES.items():
    add(name_, run_, expected_)

if __name__ == "__main__":
    harness.main()
