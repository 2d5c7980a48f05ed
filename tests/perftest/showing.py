"""What users see: the report's text, live lines, progress on a terminal and elsewhere, JSON on stdout and in files."""

import json
import os
import pty
import re
import select
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from perftest_kit import PROGRAM, SharedBench, check_schema

SHORT = ["-i", "50", "-w", "0"]


class Text(SharedBench):
    def text(self, *words):
        return self.run_client(*words, json_output=False).program.stdout

    def test_bandwidth_rows_end_at_column_46(self):
        text = self.text("-s", 1024, *SHORT)
        for label, unit in (("BW:", "[Gbit/sec]"), ("Message Rate:", "[Mpps]"), ("Duration:", "[sec]")):
            line = next(line for line in text.splitlines() if line.startswith(label))
            self.assertRegex(line, r"^.{45}\d " + re.escape(unit) + "$")

    def test_latency_rows_and_the_definition(self):
        text = self.text("-m", "lat", "-v", "send", "-s", 8, *SHORT)
        for label in ("Min:", "Max:", "Mean:", "Median:", "Stdev:", "99%:", "99.9%:"):
            line = next(line for line in text.splitlines() if line.startswith(label))
            self.assertRegex(line, r"^.{45}\d \[usec\]$")
        self.assertIn("half of the round trip", text)

    def test_the_gids_of_both_sides_are_shown(self):
        text = self.text(*SHORT)
        self.assertIn("mlx5_3, GID 1 RoCE v2 10.0.0.2", text)
        self.assertIn("mlx5_2, GID 1 RoCE v2 10.0.0.1", text)

    def test_a_file_gets_plain_lines_and_no_redrawing(self):
        text = self.text("-D", 0.3, "-w", 0.1)
        self.assertNotIn("\r", text)
        self.assertNotIn("\x1b", text)
        self.assertEqual([line for line in text.splitlines() if line.startswith(("Prep", "Running", "Final"))],
                         ["Preparing RDMA resources", "Running traffic (0.4 seconds)", "Finalizing"])

    def test_live_lines_come_while_it_runs(self):
        run = self.run_client("-D", 1, "-w", 0.1, "-R", 0.2)
        lines = [line for line in run.program.stderr.splitlines() if "[Gbit/sec]" in line]
        self.assertGreaterEqual(len(lines), 2)
        intervals = run.connection()["intervals"]
        self.assertEqual(intervals["count"], len(lines))
        self.assertLessEqual(intervals["minGbSec"], intervals["avgGbSec"])
        self.assertLessEqual(intervals["avgGbSec"], intervals["maxGbSec"])

    def test_live_lines_of_both_directions(self):
        text = self.text("-b", "-D", 2, "-w", 0.1, "-R", 0.5)
        self.assertRegex(text, r"s -> BW: ")
        self.assertRegex(text, r"s <- BW: ")

    def test_the_histogram_in_text(self):
        text = self.text("-q", 3, "-H", "-D", 0.3, "-w", 0.1)
        self.assertIn("--------------------- QP WORK DISTRIBUTION ---------------------\n", text)
        rows = re.findall(r"^Qp num (\d):  (\u2588+) +(\d+\.\d\d) Gbit/sec  \|  Relative deviation: (-?\d+\.\d)%$", text, re.M)
        self.assertEqual([row[0] for row in rows], ["0", "1", "2"])
        self.assertEqual(max(len(row[1]) for row in rows), 40)


class JsonOutput(SharedBench):
    def test_stdout_is_the_report_and_nothing_else(self):
        report = self.run_client(*SHORT).report
        self.assertEqual(report["versionInfo"]["jsonOutputSchema"], "1.4.0")
        self.assertEqual((report["status"], report["exitCode"]), ("pass", 0))
        self.assertEqual(len(report["connections"]), 1)

    def test_a_file_is_the_same_report(self):
        path = os.path.join(self.bench.card.folder, "out.json")
        run = self.run_client(*SHORT, "-j", path)
        with open(path) as file:
            self.assertEqual(json.load(file), run.report)

    def test_a_file_without_a_name_is_named_by_the_time(self):
        run = self.run_client(*SHORT, "-j", json_output=False)
        name = re.search(r"JSON report: \./(perftest_results_\d{8}T\d{6}Z\.json)", run.program.stdout).group(1)
        with open(os.path.join(self.bench.card.folder, name)) as file:
            check_schema(json.load(file))

    def test_a_file_that_cannot_be_written_is_exit_1_with_the_results_shown(self):
        run = self.run_client(*SHORT, "-j", "/nonexistent/x.json", json_output=False, expect=1)
        self.assertIn("/nonexistent/x.json", run.program.stderr)
        self.assertIn("BW:", run.program.stdout)

    def test_a_failure_is_a_report_too(self):
        run = self.run_client("-g", 200, *SHORT, expect=1)
        self.assertEqual(run.report["status"], "error")
        self.assertIn("--gid_index 200", run.report["error"])

    def test_the_scenario_is_what_was_run(self):
        scenario = self.run_client("-v", "send", "-s", "4k", "-q", 2, "-i", 20, "-w", 0).report["scenario"]
        self.assertEqual((scenario["verb"], scenario["msgSize"], scenario["qps"], scenario["iterations"]),
                         ("send", 4096, 2, 20))


class Terminal(SharedBench):
    def on_terminal(self, *words, env=None):
        """Runs a client on a pseudo terminal; everything it printed."""
        command = self.bench.card.command(PROGRAM, "--port", self.bench.port, "-n", "127.0.0.1", "-d", "mlx5_3", *words)
        pid, fd = pty.fork()
        if pid == 0:
            os.environ.update({**self.bench.card.environment, "TERM": "xterm", **(env or {})})
            os.execv(command[0], command)
        out, deadline = b"", time.monotonic() + 60
        while time.monotonic() < deadline:
            if not select.select([fd], [], [], 1)[0]:
                continue
            try:
                part = os.read(fd, 65536)
            except OSError:
                break
            if not part:
                break
            out += part
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0, out.decode())
        return out.decode()

    def test_a_terminal_gets_a_bar_that_reaches_its_end(self):
        text = self.on_terminal("-D", 1, "-w", 0.5)
        self.assertRegex(text, r"\rs?\x1b?\[?K?Preparing RDMA resources [|/\\-] \(0s\)")
        self.assertRegex(text, r"Running traffic \[=*>? *\] \d+% \(\d/2s, ~\ds remaining\)")
        self.assertRegex(text, r"Running traffic \[={40}\] 100% \(1\.5 seconds\)\r?\n")
        self.assertRegex(text, r"Finalizing [|/\\-] \(0s\)")

    def test_non_interactive_means_plain(self):
        text = self.on_terminal("-D", 0.3, "-w", 0.1, "--non_interactive")
        self.assertNotIn("\x1b", text)
        self.assertNotIn("[=", text)


if __name__ == "__main__":
    harness.main()
