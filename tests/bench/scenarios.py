"""What orchestration costs: how far apart many processes start, how long a run takes beside its traffic, and one
all-to-all beside the same pairs one after another."""

import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import BUILD, Failure

PROGRAM = os.path.join(BUILD, "bin", "rdma_perftest")
DEVICES = ["mlx5_2", "mlx5_3", "mlx5_4"]
SECONDS = 0.5
TIMES = {"duration": SECONDS, "warmupTime": 0, "endMargin": 0}
SKEW_MAX_S = 0.020
WALL_MAX_S = 10


def run(card, scenario):
    """Report and wall time."""
    begun = time.monotonic()
    program = card.run(PROGRAM, "--control", "local", "--print_json_results", "-f", json.dumps(scenario), timeout=120)
    wall = time.monotonic() - begun
    report = json.loads(program.stdout)
    if report["status"] != "pass":
        raise Failure(program.report("scenario"))
    return report, wall


def hosts(count):
    return [{"hostName": f"h{i:02}", "deviceName": DEVICES[i % len(DEVICES)]} for i in range(count)]


def many(processes):
    # Counted: where there are fewer cores than processes, none of them is left without its turn.
    return {"testNodes": hosts(16), "trafficPattern": "RING", "numProcesses": processes, "msgSize": 64,
            "iterations": 100, "warmupTime": 0, "endMargin": 0}


def skew(processes):
    return lambda card: run(card, many(processes))[0]["synchronization"]["startSkewUsec"] * 1e-6


def wall(processes):
    return lambda card: run(card, many(processes))[1]


def all_to_all(card):
    return run(card, {"testNodes": hosts(3), "trafficPattern": "ALL_TO_ALL", **TIMES})[1]


def pair_by_pair(card):
    ends = hosts(3)
    return sum(run(card, {"testNodes": [a, b], "trafficPattern": "ONE_TO_ONE", **TIMES})[1]
               for a in ends for b in ends if a is not b)


MEASUREMENTS = {
    "skew_64": skew(4),
    "skew_256": skew(16),
    "wall_64": wall(4),
    "wall_256": wall(16),
    "all_to_all": all_to_all,
    "pair_by_pair": pair_by_pair,
}


def lines(median):
    """Arguments of the table's lines."""
    if "skew_64" not in median:
        return []
    out = []
    for processes in (64, 256):
        out.append((f"{processes} processes of 16 hosts: first to last start", f"{median[f'skew_{processes}'] * 1e3:.2f} ms",
                    f"{SKEW_MAX_S * 1e3:.0f} ms", median[f"skew_{processes}"] / SKEW_MAX_S, "<=", 1))
        out.append((f"{processes} processes of 16 hosts: whole run of 100 iterations", f"{median[f'wall_{processes}']:.2f} s",
                    f"{WALL_MAX_S} s", median[f"wall_{processes}"] / WALL_MAX_S, "<=", 1))
    out.append((f"all-to-all of 3 endpoints, {SECONDS} s, against its 6 pairs one by one", f"{median['all_to_all']:.2f} s",
                f"{median['pair_by_pair']:.2f} s", median["all_to_all"] / median["pair_by_pair"], "<=", 0.5))
    return out
