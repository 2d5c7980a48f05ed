"""rdma_perftest beside Debian's ib_* tools, on one card, alternately: bandwidth and message rate, median latency, and
instructions per operation.

A ratio is of medians over the rounds. Instructions are counted by valgrind on the client (in both the difference of a longer
and a shorter run, divided by the difference of iterations), so that start, set-up and reports cancel out.
"""

import json
import os
import re
import statistics
import subprocess

import harness
import perftest_output
from harness import CLIENT_DEVICE, SERVER_DEVICE, Failure, reserved_port

PROGRAM = os.path.join(harness.BUILD, "bin", "rdma_perftest")
SIZES = [8, 4096, 65536, 1 << 20]
VERBS = ["write", "read", "send"]
SECONDS = 2
MIB = 1 << 20


def theirs(card, tool, *words):
    with reserved_port() as port:
        words = [tool, "-p", port, "-x", 1, "-F", "-c", "RC", *words]
        pair = card.run_pair([*words, "-d", SERVER_DEVICE], [*words, "-d", CLIENT_DEVICE, "127.0.0.1"], port, timeout=60)
    rows = perftest_output.rows(pair.client.stdout)
    if len(rows) != 1:
        raise Failure(pair.client.report("no result in"))
    return rows[0]


def ours(card, *words):
    with reserved_port() as port:
        client = card.run(PROGRAM, "-n", "localhost", "--port", port, "-d", CLIENT_DEVICE, "--server_device", SERVER_DEVICE,
                          "--print_json_results", *words, timeout=60)
    return json.loads(client.stdout)["connections"][0]


def iterations_for(size):
    return max(2000, min(300_000, (4 << 30) // max(size, 4096)))


def their_bandwidth(card, verb, size):
    return theirs(card, f"ib_{verb}_bw", "-s", size, "-n", iterations_for(size), "-N")["average"] * MIB


def our_bandwidth(card, verb, size):
    results = ours(card, "-v", verb, "-s", size, "-i", iterations_for(size), "-w", 0.2)["bwResults"]
    return results["bwGbSec"] / 8 * 1e9


def their_latency(card, verb):
    # ib_write_lat spins on its memory and never yields: where cores are few an exchange costs it a time slice.
    iterations = 300 if verb == "write" else 10000
    return theirs(card, f"ib_{verb}_lat", "-s", 8, "-n", iterations)["typical"]


def our_latency(card, verb):
    return ours(card, "-m", "lat", "-v", verb, "-s", 8, "-i", 10000, "-w", 0.2)["latResults"]["medianUsec"]


def counted(card, command):
    """Instructions of the client and all its processes."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--trace-children=yes", *command]
    program = card.start(*valgrind)
    if not program.wait(120) or program.returncode() != 0:
        raise Failure(program.report("under valgrind"))
    return sum(int(count) for count in re.findall(r"Collected : (\d+)", program.output))


def our_instructions(card, size, iterations):
    with reserved_port() as port:
        server = card.start(PROGRAM, "--port", port, "-d", SERVER_DEVICE)
        harness.wait_until(lambda: harness.is_listening(port), 10)
        words = [PROGRAM, "-n", "127.0.0.1", "--port", port, "-d", CLIENT_DEVICE, "--launch_server", "disable", "-s", size,
                 "-w", 0, "-i", iterations, "--non_interactive"]
        count = counted(card, words)
        server.kill_group()
    return count


def their_instructions(card, size, iterations):
    with reserved_port() as port:
        words = ["ib_write_bw", "-p", port, "-x", 1, "-F", "-c", "RC", "-s", size, "-n", iterations, "-N"]
        server = card.start(*words, "-d", SERVER_DEVICE)
        harness.wait_until(lambda: harness.is_listening(port), 10)
        count = counted(card, [*words, "-d", CLIENT_DEVICE, "127.0.0.1"])
        server.wait(10)
    return count


def per_operation(measure, card, size):
    few, many = 20_000, 120_000
    return (measure(card, size, many) - measure(card, size, few)) / (many - few)


def measure_side_by_side(card, rounds, say):
    """Rows of (title, ours, theirs, ratio, relation, target)."""
    samples = {}

    def sample(key, function, *words):
        samples.setdefault(key, []).append(function(card, *words))

    for number in range(rounds):
        for verb in VERBS:
            for size in SIZES:
                sample(("bw", verb, size, "theirs"), their_bandwidth, verb, size)
                sample(("bw", verb, size, "ours"), our_bandwidth, verb, size)
            sample(("lat", verb, 8, "theirs"), their_latency, verb)
            sample(("lat", verb, 8, "ours"), our_latency, verb)
        say(f"round {number + 1} of {rounds}: side by side with ib_*")
    median = {key: statistics.median(values) for key, values in samples.items()}
    rows = []
    for kind, verb, size, side in median:
        if side != "ours":
            continue
        mine, other = median[kind, verb, size, "ours"], median[kind, verb, size, "theirs"]
        if kind == "bw":
            title = f"`rdma_perftest` {verb} {size} B against `ib_{verb}_bw`"
            rows.append((title, f"{mine / 1e9:.3f} GB/s, {mine / size / 1e6:.3f} M/s", f"{other / 1e9:.3f} GB/s",
                         mine / other, ">=", 1.0))
        else:
            title = f"`rdma_perftest` {verb} {size} B, median latency, against `ib_{verb}_lat`"
            rows.append((title, f"{mine:.2f} µs", f"{other:.2f} µs", mine / other, "<=", 1.05))
    if subprocess.run(["valgrind", "--version"], capture_output=True).returncode == 0:
        mine, other = (per_operation(each, card, 8) for each in (our_instructions, their_instructions))
        say("instructions counted")
        rows.append(("`rdma_perftest` write 8 B, instructions per operation of the client, against `ib_write_bw`",
                     f"{mine:.0f}", f"{other:.0f}", mine / other, "<=", 1.0))
    return rows
