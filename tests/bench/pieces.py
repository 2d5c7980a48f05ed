"""Google Benchmark programs: nanoseconds from a plain run, instructions per iteration from callgrind.

Hardware counters are missing in many virtual machines, so instructions are counted by valgrind. The library calls a benchmark
several times with more and more iterations, and each call sets up anew; so what a program costs is its start, a set-up
per call and a step per iteration. The start is measured alone, and two runs of different length (the library's log at
--v=2 tells calls and iterations) give set-up and step.
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


def callgrind(program, *words):
    """(instructions, what was printed)."""
    done = run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, *words])
    text = done.stdout + done.stderr
    return int(re.search(r"Collected : (\d+)", text).group(1)), text


def counted(program, name, min_time):
    """(instructions, calls, iterations) of one run."""
    filter_word = f"--benchmark_filter=^{re.escape(name)}$"
    total, text = callgrind(program, filter_word, f"--benchmark_min_time={min_time}", "--v=2")
    iterations = [int(count) for count in re.findall(r"Running .* for (\d+)", text)]
    return total, len(iterations), sum(iterations)


def instructions(program, name, start):
    """Per iteration. start + calls * setup + iterations * step = total, for two runs."""
    few, few_calls, few_iterations = counted(program, name, 0.000001)
    many, many_calls, many_iterations = counted(program, name, 0.05)
    divisor = many_iterations * few_calls - few_iterations * many_calls
    if divisor <= 0:
        return float("nan")  # the shortest run was long enough
    return ((many - start) * few_calls - (few - start) * many_calls) / divisor


def measure_pieces(folder, say):
    pieces = []
    for program in sorted(glob.glob(os.path.join(folder, "*_bench"))):
        room = os.path.basename(program).removesuffix("_bench")
        start = callgrind(program, "--benchmark_list_tests")[0] if shutil.which("valgrind") else None
        for name, (ns, items) in nanoseconds(program).items():
            count = instructions(program, name, start) if start else float("nan")
            pieces.append(Piece(room, name, ns / items, count / items))
            say(f"{room} {name}: {pieces[-1].ns:.1f} ns, {pieces[-1].instructions:.0f} instructions")
    return pieces
