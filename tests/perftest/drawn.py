"""Random option sets over the card: legal ones complete with exact counts and a valid report; illegal ones are refused by
name. RDMALAB_SEED draws others; a failure shows the words."""

import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import costs
from perftest_kit import SharedBench

SIZES = [0, 1, 7, 8, 64, 255, 256, 257, 1000, 1024, 4096, 5000, 65536, 100_000, 1 << 20, 8 << 20]
VERBS = {"RC": ["write", "read", "send", "write_imm", "send_imm", "atomic_fa", "atomic_cs"],
         "UC": ["write", "send", "write_imm", "send_imm"], "UD": ["send", "send_imm"]}
RECEIVED = {"send", "send_imm", "write_imm"}


class Drawn(SharedBench):
    def legal_words(self, draw):
        transport = draw.choice(["RC", "RC", "RC", "UC", "UD"])
        verb = draw.choice(VERBS[transport])
        metric = draw.choice(["bw", "bw", "bw", "lat"])
        sizes = [size for size in SIZES if transport != "UD" or size <= 1024]
        size = 8 if verb.startswith("atomic") else draw.choice(sizes)
        if metric == "lat" and verb == "write":
            size = max(size, 1)
        processes = draw.choice([1, 1, 1, 2])
        qps = 1 if metric == "lat" else draw.choice([1, 1, 2, 5])
        iterations = draw.randrange(1, 20 if size >= 1 << 20 else 300)
        both = metric == "bw" and verb != "read" and draw.random() < 0.25
        words = ["-c", transport, "-v", verb, "-s", size, "-m", metric, "-N", processes, "-q", qps, "-i", iterations, "-w", 0,
                 *(["--end_margin", 0] if metric == "bw" else []), *(["-b"] if both else [])]
        depth = draw.choice([1, 2, 16, 128, 300])
        words += ["--tx_depth", depth, "--rx_depth", draw.choice([1, 3, 64, 512])]
        if metric == "bw":
            words += ["--post_list", draw.randrange(1, min(depth, 32) + 1)]
            words += draw.choice([[], ["--cq_mod", draw.randrange(1, 65)]])
        words += draw.choice([[], ["--inline_size", draw.choice([0, 8, 200])]])
        return words, (transport, verb, metric, processes, qps, iterations, both)

    def check_legal(self, words, facts):
        transport, verb, metric, processes, qps, iterations, both = facts
        report = self.run_client(*words, timeout=90).report
        self.assertEqual(len(report["connections"]), 2 if both else 1)
        expected = processes * qps * iterations
        for connection in report["connections"]:
            if metric == "lat":
                results = connection["latResults"]
                self.assertEqual(results["samples"] + results.get("lost", 0), expected)
                continue
            self.assertEqual(connection["bwResults"]["iterations"], expected)
            rows = connection["resultsPerProcess"]
            self.assertEqual(sum(row["iterationsPosted"] for row in rows if row["role"] == "requestor"), expected)
            if not both:
                received = sum(row["messagesReceived"] for row in rows if row["role"] == "responder")
                self.assertLessEqual(received, expected)
                if transport == "RC":
                    self.assertEqual(received, expected if verb in RECEIVED else 0)

    def legal_round(self, part):
        draw = random.Random(harness.SEED * 1000 + part)
        for number in range(12):
            words, facts = self.legal_words(draw)
            with self.subTest(part=part, number=number, words=" ".join(map(str, words))):
                self.check_legal(words, facts)

    @costs(timeout=300)
    def test_legal_option_sets_one(self):
        self.legal_round(1)

    @costs(timeout=300)
    def test_legal_option_sets_two(self):
        self.legal_round(2)

    @costs(timeout=300)
    def test_legal_option_sets_three(self):
        self.legal_round(3)

    def test_illegal_option_sets(self):
        draw = random.Random(harness.SEED)
        faults = [["-b", "-v", "read"], ["-c", "UC", "-v", "atomic_fa"], ["-c", "UD", "-v", "write"], ["-m", "lat", "-R", 1],
                  ["-v", "write", "--validate", "-w", 0], ["-D", 3, "-i", 7], ["-m", "lat", "-v", "write", "-s", 0],
                  ["-v", "atomic_cs", "-s", 16], ["--operations", "write:8", "-s", 8], ["-q", 0], ["--tx_depth", 65537],
                  ["-m", "lat", "--bw_threshold", 5], ["--lat_mode", "one_way"], ["-m", "lat", "-q", 3]]
        harmless = [[], ["--qp_timeout", 18], ["--traffic_class", 104], ["-S", 3], ["--start_psn", 77]]
        for fault in faults:
            words = draw.choice(harmless) + fault
            with self.subTest(words=words):
                run = self.run_client(*words, expect=1)
                self.assertIn("--", run.program.stderr)
                self.assertNotIn("Traceback", run.program.stderr)


if __name__ == "__main__":
    harness.main()
