"""`rdma_perftest report`: the page of a report, as a browser shows it, and what may be wrong with its input."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from perftest_kit import PROGRAM, SharedBench, check_schema

BROWSER = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync", "--virtual-time-budget=20000", "--window-size=1200,4000"]


def page_of(*words, text=None, expect=0):
    done = subprocess.run([PROGRAM, "report", *words], input=text, capture_output=True, text=True, timeout=60)
    if done.returncode != expect:
        raise AssertionError(f"exit {done.returncode}, expected {expect}\n{done.stdout[:2000]}\n{done.stderr}")
    return done


def as_shown(path, *words):
    """The page's elements after its scripts have run; fails when a script did."""
    with tempfile.TemporaryDirectory() as profile:
        argv = [*BROWSER, f"--user-data-dir={profile}", "--enable-logging=stderr", *words, "--dump-dom", f"file://{path}"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    complaints = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    if complaints or 'data-ready="true"' not in done.stdout:
        raise AssertionError("\n".join([*complaints, done.stdout[-3000:]]))
    # What the browser did with the scripts is of interest, not their text.
    return re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)


def texts(shown):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", shown))


def connection(number, source, destination, **changes):
    made = {"connectionId": number, "testName": "Test 1", "status": "ok", "error": None,
            "source": {"hostName": source, "deviceName": "mlx5_2"},
            "destination": {"hostName": destination, "deviceName": "mlx5_3"},
            "testConfig": {"resourceConfig": {"operations": [{"verb": "write", "msgSize": 65536}]}},
            "bwResults": {"bwGbSec": 10.0 + number, "msgRateMpps": 0.02, "durationSec": 1, "iterations": 20000},
            "resultsPerProcess": []}
    return {**made, **changes}


def report(connections, **changes):
    return {"versionInfo": {"jsonOutputSchema": "1.4.0", "toolVersion": "0.1.0"}, "scenario": {"msgSize": 65536},
            "startTime": "2026-01-01T00:00:00Z", "status": "pass", "exitCode": 0, "interrupted": False,
            "connections": connections, "aggregatedResults": {}, **changes}


class Shown(SharedBench):
    """Reports of real runs."""

    def show(self, *words):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        source = os.path.join(folder, "results.json")
        self.run_client("-j", source, *words, json_output=False)
        with open(source) as file:
            content = json.load(file)
        check_schema(content)
        self.assertIn("wrote", page_of(source).stdout)
        return content, as_shown(os.path.join(folder, "results.html"))

    def test_a_bandwidth_run_with_intervals_and_queue_pairs(self):
        content, shown = self.show("-s", 65536, "-q", 4, "-H", "-D", 1, "-w", 0.1, "-R", 0.2)
        result = content["connections"][0]["bwResults"]
        self.assertGreaterEqual(len(content["connections"][0]["intervals"]["samples"]), 2)
        for part in ("matrix", "summary", "time", "queue-pairs", "connections", "configuration"):
            self.assertIn(f'id="{part}"', shown)
        self.assertEqual(shown.count('data-drawn="true"'), 3)
        self.assertGreaterEqual(shown.count("<canvas"), 3)
        self.assertIn(f"{result['bwGbSec']:.2f}", texts(shown))
        self.assertIn("passed", texts(shown))

    def test_a_latency_run(self):
        content, shown = self.show("-m", "lat", "-v", "send", "-s", 8, "-i", 500, "-w", 0)
        self.assertIn(f"{content['connections'][0]['latResults']['medianUsec']:.2f}", texts(shown))
        self.assertIn('id="distributions"', shown)

    def test_both_directions(self):
        _, shown = self.show("-s", 4096, "-b", "-i", 200, "-w", 0)
        self.assertIn("Bandwidth of the connections", texts(shown))


class Made(unittest.TestCase):
    """Reports that are written by hand, for what one pair cannot have."""

    def show(self, content, *words):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path = os.path.join(folder, "page.html")
        page_of("-", "-o", path, text=json.dumps(content))
        return as_shown(path, *words)

    def test_failed_and_slow_connections_are_named(self):
        slow = {"threshold": {"type": "bw", "value": 50, "passed": False}}
        broken = {"status": "failed", "error": "node02: link down", "bwResults": None}
        shown = texts(self.show(report([connection(0, "node01", "node02", **broken), connection(1, "node02", "node01", **slow),
                                        connection(2, "node01", "node03")], status="fail", exitCode=2)))
        for text in ("fail (exit 2)", "failed: node01:mlx5_2 → node02:mlx5_3", "node02: link down", "threshold missed",
                     "missed the threshold"):
            self.assertIn(text, shown)

    def test_large_runs_show_the_best_and_the_worst(self):
        hosts = [f"node{i:02}" for i in range(20)]
        pairs = [(a, b) for a in hosts for b in hosts if a != b]
        shown = self.show(report([connection(i, *pair) for i, pair in enumerate(pairs)]))
        seen = texts(shown)
        self.assertIn("Best 10", seen)
        self.assertIn("Worst 10", seen)
        self.assertIn("Show all 380 rows", seen)
        self.assertIn(f"{10 + 379:.2f}", seen)

    def test_several_tests_have_a_matrix_each(self):
        mice = {"testName": "mice", "bwResults": None,
                "latResults": {"minUsec": 1, "medianUsec": 2, "meanUsec": 2.5, "p99Usec": 9, "p999Usec": 12, "maxUsec": 40}}
        both = [connection(0, "node01", "node02", testName="elephant"), connection(1, "node01", "node02", **mice)]
        shown = self.show(report(both))
        self.assertEqual(shown.count('data-shows="connection matrix in'), 2)
        self.assertIn("elephant: write 65,536 B", texts(shown))

    def test_a_run_without_a_connection(self):
        shown = texts(self.show(report([], status="error", exitCode=1, error="no RDMA device found")))
        self.assertIn("no RDMA device found", shown)
        self.assertIn("error (exit 1)", shown)

    def test_names_are_texts_not_elements(self):
        shown = self.show(report([connection(0, "<b>node</b>", "</script><i>x</i>")]))
        self.assertNotIn("<b>node</b>", shown)
        self.assertNotIn("<i>x</i>", shown)

    def test_readers_who_like_it_dark(self):
        self.show(report([connection(0, "node01", "node02")]), "--force-dark-mode", "--enable-features=WebContentsForceDark")


class BadInput(unittest.TestCase):
    def refused(self, *words, text=None):
        done = page_of(*words, text=text, expect=1)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        return done.stderr

    def test_what_is_wrong_with_the_words_is_said(self):
        self.assertIn("expected the file of a report", self.refused())
        self.assertIn("--color: unknown flag", self.refused("--color"))
        self.assertIn("expected one report, found a.json and b.json", self.refused("a.json", "b.json"))
        self.assertIn("-o: expected a file", self.refused("a.json", "-o"))

    def test_what_is_wrong_with_the_report_is_said(self):
        self.assertIn("cannot read /nonexistent.json: No such file", self.refused("/nonexistent.json"))
        self.assertIn("cannot read /tmp: Is a directory", self.refused("/tmp"))
        self.assertIn("the standard input: expected JSON", self.refused("-", text="{"))
        self.assertIn("found array", self.refused("-", text="[]"))
        self.assertIn("versionInfo.jsonOutputSchema is missing", self.refused("-", text="{}"))
        old = {"versionInfo": {"jsonOutputSchema": "0.9"}, "connections": []}
        self.assertIn("expected 1.x, found 0.9", self.refused("-", text=json.dumps(old)))
        without = {**report([]), "connections": 3}
        self.assertIn("connections, a list, is missing", self.refused("-", text=json.dumps(without)))

    def test_a_page_that_cannot_be_written(self):
        content = json.dumps(report([]))
        self.assertIn("cannot write /nonexistent/x.html: No such", self.refused("-", "-o", "/nonexistent/x.html", text=content))
        with contextlib.suppress(FileNotFoundError):
            with open("/dev/full", "w") as full:
                words = [PROGRAM, "report", "-"]
                done = subprocess.run(words, input=content, stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("cannot write to the standard output: No space left", done.stderr)

    def test_help(self):
        self.assertIn("RESULTS.json", page_of("--help").stdout)


if __name__ == "__main__":
    harness.main()
