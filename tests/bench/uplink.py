"""Two hosts of a lab, joined by veth and a switch: RDMA over the uplinks of their cards against TCP over the same wire."""

import json
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"))

import perftest_output
from harness import Failure
from lab_kit import REASON, TestLab

MIB = 1 << 20
TARGET = 1.0


def write_bandwidth(lab):
    words = ["ib_write_bw", "-F", "-s", "65536", "-n", "20000", "-N", "-c", "RC"]
    _, client = lab.pair(words, [*words, "node01"], timeout=120)
    rows = perftest_output.rows(client.stdout)
    if len(rows) != 1:
        raise Failure(client.report("no result in"))
    return rows[0]["average"] * MIB


def tcp_bandwidth(lab):
    _, client = lab.pair(["iperf3", "-s", "-1"], ["iperf3", "-c", "node01", "-t", "3", "-J"])
    return json.loads(client.stdout)["end"]["sum_received"]["bits_per_second"] / 8


def measure_uplink(rounds, say):
    """{name: samples}; empty where no lab can be."""
    if REASON is not None:
        say(f"uplink: left out, {REASON}")
        return {}
    samples = {"uplink_write_bw": [], "uplink_iperf3": []}
    with TestLab(2) as lab:
        for number in range(rounds):
            for name, function in (("uplink_write_bw", write_bandwidth), ("uplink_iperf3", tcp_bandwidth)):
                samples[name].append(function(lab))
                say(f"round {number + 1} of {rounds}: {name} {samples[name][-1]:.4g}")
    return samples


def lines(samples):
    """Rows of the table: title, measured, reference, ratio, relation, target."""
    if not samples:
        return []
    value, reference = (statistics.median(samples[name]) for name in ("uplink_write_bw", "uplink_iperf3"))
    title = "`ib_write_bw` RC 64 KiB between two lab hosts against iperf3 TCP over the same veth"
    return [(title, f"{value / 1e9:.2f} GB/s", f"{reference / 1e9:.2f} GB/s", value / reference, ">=", TARGET)]
