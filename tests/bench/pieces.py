"""Google Benchmark programs: nanoseconds from a plain run, instructions per iteration from callgrind.

Hardware counters are missing in many virtual machines, so instructions are counted by valgrind: the same benchmark is run
twice, shortly and for longer, and the difference of instructions is divided by the difference of iterations (the
library's log at --v=2 tells how many it made), so that start and set-up cancel out.
"""

import glob
import json
import os
import re
import shutil
import subprocess


class Piece:
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
    """{benchmark: ns of CPU time per iteration}, medians of three."""
    argv = [program, "--benchmark_format=json", "--benchmark_min_time=0.1", "--benchmark_repetitions=3"]
    report = json.loads(run(argv + ["--benchmark_report_aggregates_only=true"]).stdout)
    scale = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
    return {
        entry["run_name"]: entry["cpu_time"] * scale[entry["time_unit"]]
        for entry in report["benchmarks"]
        if entry["aggregate_name"] == "median"
    }


def counted(program, name, min_time):
    """(instructions, iterations) of one run under callgrind."""
    done = run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program,
         f"--benchmark_filter=^{re.escape(name)}$", f"--benchmark_min_time={min_time}", "--v=2"]
    )
    text = done.stdout + done.stderr
    iterations = sum(int(count) for count in re.findall(r"Running .* for (\d+)", text))
    return int(re.search(r"Collected : (\d+)", text).group(1)), iterations


def instructions(program, name):
    if shutil.which("valgrind") is None:
        return float("nan")
    few, few_iterations = counted(program, name, 0.000001)
    many, many_iterations = counted(program, name, 0.05)
    if many_iterations <= few_iterations:
        return float("nan")
    return (many - few) / (many_iterations - few_iterations)


def measure_pieces(folder, say):
    pieces = []
    for program in sorted(glob.glob(os.path.join(folder, "*_bench"))):
        room = os.path.basename(program).removesuffix("_bench")
        for name, ns in nanoseconds(program).items():
            pieces.append(Piece(room, name, ns, instructions(program, name)))
            say(f"{room} {name}: {pieces[-1].ns:.1f} ns, {pieces[-1].instructions:.0f} instructions")
    return pieces
