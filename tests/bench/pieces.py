"""Google Benchmark programs: nanoseconds from a plain run, instructions per iteration from callgrind.

Hardware counters are missing in many virtual machines, so instructions are counted by valgrind. The library calls a benchmark
several times with more and more iterations, and each call sets up anew. Of two runs with as many calls (the library's log
at --v=2 tells calls and iterations) the difference is that of the iterations alone.
"""

import glob
import json
import os
import re
import shutil
import subprocess


class Piece:
    """Costs of one item: an iteration, unless the benchmark says that it does several."""

    def __init__(self, program, name, ns, instructions):
        self.program = program
        self.name = name
        self.ns = ns
        self.instructions = instructions


def run(argv, timeout=300):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError(f"{argv}: exit {done.returncode}\n{done.stderr}")
    return done


def nanoseconds(program):
    """{benchmark: (ns of CPU time per iteration, items per iteration)}, medians of three."""
    argv = [program, "--benchmark_format=json", "--benchmark_min_time=0.1", "--benchmark_repetitions=3"]
    report = json.loads(run(argv + ["--benchmark_report_aggregates_only=true"]).stdout)
    scale = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
    found = {}
    for entry in report["benchmarks"]:
        if entry["aggregate_name"] == "median":
            ns = entry["cpu_time"] * scale[entry["time_unit"]]
            items = round(entry.get("items_per_second", 0) * ns * 1e-9)
            found[entry["run_name"]] = (ns, max(items, 1))
    return found


def counted(program, name, min_time):
    """(instructions, calls, iterations) of one run."""
    words = [f"--benchmark_filter=^{re.escape(name)}$", f"--benchmark_min_time={min_time}", "--v=2"]
    done = run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, *words])
    text = done.stdout + done.stderr
    iterations = [int(count) for count in re.findall(r"Running .* for (\d+)", text)]
    return int(re.search(r"Collected : (\d+)", text).group(1)), len(iterations), sum(iterations)


def instructions(program, name):
    """Per iteration; NaN when it is less than the set-up varies, as where there are system calls only."""
    seen = {}  # calls: (instructions, iterations)
    for min_time in (0.1, 0.2, 0.4, 0.8, 1.6):
        total, calls, iterations = counted(program, name, min_time)
        if calls in seen and iterations > 1.2 * seen[calls][1]:
            count = (total - seen[calls][0]) / (iterations - seen[calls][1])
            return count if count > 0 else float("nan")
        seen.setdefault(calls, (total, iterations))
    return float("nan")


def measure_pieces(folder, say):
    pieces = []
    for program in sorted(glob.glob(os.path.join(folder, "*_bench"))):
        room = os.path.basename(program).removesuffix("_bench")
        counts = shutil.which("valgrind") is not None
        for name, (ns, items) in nanoseconds(program).items():
            count = instructions(program, name) if counts else float("nan")
            pieces.append(Piece(room, name, ns / items, count / items))
            say(f"{room} {name}: {pieces[-1].ns:.1f} ns, {pieces[-1].instructions:.0f} instructions")
    return pieces
