"""What is on the wire between two uplinks: looked at by tshark, which is not ours."""

import json
import os
import re
import shutil
import sys
import time
import unittest
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import BUILD, LAUNCHER, costs, main, wait_until
from lab_kit import TestLab, needs_lab

TOPOLOGY = """
[[port]]
name = "p0"
pf = "mlx5_0"
[[function]]
device = "mlx5_0"
kind = "pf"
[[uplink]]
port = "p0"
netdev = "eth0"
bursts = {bursts}
"""


def with_own_cards(lab, bursts):
    """Hosts without cards get one of a topology each."""
    path = os.path.join(lab.runtime, "topology.toml")
    with open(path, "w") as file:
        file.write(TOPOLOGY.format(bursts=str(bursts).lower()))
    for host in ("node01", "node02"):
        with open(path) as file:
            text = file.read()
        lab.run(host, "sh", "-c", f"cat > /run/topology.toml <<'END'\n{text}END\n{LAUNCHER} up --topology /run/topology.toml")
    os.unlink(path)


class Capture:
    """tshark at node02."""

    def __init__(self, lab):
        self.lab = lab
        self.program = lab.start("node02", "tshark", "-i", "eth0", "-w", "/run/frames.pcapng", "-q")
        wait_until(lambda: "Capturing" in self.program.stderr, 20)
        time.sleep(0.5)  # it says so a little early

    def end(self):
        time.sleep(1)
        self.lab.run("node02", "pkill", "-INT", "tshark")
        self.program.wait(20)

    def lines(self, filter, *fields):
        words = ["tshark", "-r", "/run/frames.pcapng", "-Y", filter, "-T", "fields"]
        for field in fields:
            words += ["-e", field]
        return self.lab.run("node02", *words).stdout.splitlines()


@needs_lab
@unittest.skipUnless(shutil.which("tshark"), "tshark is not installed")
class Frames(unittest.TestCase):
    @costs(timeout=120, processors=2)
    def test_are_whole_right_and_unanswered_by_the_kernel(self):
        run = ["env", f"LD_LIBRARY_PATH={BUILD}/lib/rdma"]
        with TestLab(2, "--no-cards", "--no-ssh") as lab:
            with_own_cards(lab, bursts=False)
            capture = Capture(lab)
            for words in (["ib_write_bw", "-F", "-n", "50", "-s", "20000"], ["ibv_ud_pingpong", "-g", "1", "-n", "20"]):
                lab.pair([*run, *words], [*run, *words, "node01"])
            lab.pair([*run, "rping", "-s", "-C", "3"], [*run, "rping", "-c", "-C", "3", "-a", "10.88.0.1"])
            capture.end()
            frames = capture.lines("infiniband", "frame.len", "infiniband.bth.opcode", "infiniband.invariant.crc")
            self.assertGreater(len(frames), 300)
            self.assertTrue(all(re.fullmatch(r"\d+\t\d+\t0x[0-9a-f]{8}", frame) for frame in frames))
            self.assertLessEqual(max(int(frame.split("\t")[0]) for frame in frames), 4200)
            opcodes = {int(frame.split("\t")[1]) for frame in frames}
            self.assertLessEqual({6, 7, 8, 17, 100}, opcodes, "write first, middle, last; acknowledge; UD send")
            self.assertEqual(capture.lines("udp.port == 4791 && !infiniband", "frame.number"), [], "all are decoded")
            self.assertEqual(capture.lines("icmp && !icmp.type == 8 && !icmp.type == 0", "frame.number"), [])
            self.assertEqual(capture.lines("ip.flags.mf == 1 || ip.frag_offset > 0", "frame.number"), [])
            self.check_icrc(lab)

    def check_icrc(self, lab):
        """Computed here, from the bytes, by the words of the standard."""
        words = ["tshark", "-r", "/run/frames.pcapng", "-Y", "udp.dstport == 4791 && ip", "-T", "json", "-x", "-c", "400"]
        frames = json.loads(lab.run("node02", *words).stdout)
        self.assertGreater(len(frames), 200)
        for frame in frames:
            packet = bytearray(bytes.fromhex(frame["_source"]["layers"]["frame_raw"][0])[14:])
            length = int.from_bytes(packet[2:4], "big")
            packet, icrc = packet[: length - 4], int.from_bytes(packet[length - 4 : length], "little")
            for index in (1, 8, 10, 11, 26, 27, 32):  # ToS, TTL, checksums, resv8a
                packet[index] = 0xFF
            self.assertEqual(zlib.crc32(b"\xff" * 8 + packet), icrc)

    @costs(timeout=120, processors=2)
    def test_cross_in_bursts_without_a_loss(self):
        with TestLab(2) as lab:
            words = ["ib_write_bw", "-F", "-n", "500", "-s", "1000000"]
            lab.pair(words, [*words, "node01"])
            sender, receiver = lab.counters("node02"), lab.counters("node01")
            self.assertGreater(sender["ports"]["p0"]["uplink_tx_bursts"], 1000)
            self.assertGreater(receiver["ports"]["p0"]["uplink_rx_bursts"], 1000)
            self.assertEqual(receiver["functions"]["mlx5_0"]["rx_icrc_errors"], 0)
            self.assertEqual(receiver["ports"]["p0"]["uplink_overruns"], 0)
            self.assertEqual(self.icmp_errors(lab), 0)

    def icmp_errors(self, lab):
        """What the kernel of the receiving host has said about port 4791."""
        with_errors = lab.run("node01", "cat", "/proc/net/snmp").stdout
        heads, values = re.findall(r"(?m)^Icmp: (.*)$", with_errors)
        return int(dict(zip(heads.split(), values.split()))["OutDestUnreachs"])


if __name__ == "__main__":
    main()
