"""`rdmalab demo`, the path steering experiment in real time. The tutorial's runs with every test; the variants, which
virtual time covers as well (src/steer/simulation_test.cc), on request: ctest -C soak -L soak."""

import json
import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "launcher"))
import launcher_kit
from harness import TIME_FACTOR, costs, main
from launcher_kit import wait_until

LIMIT_S = 280
# A card, flow_steer, pcc, two receivers and two senders.
PROCESSES = 7


class Experiment(launcher_kit.LauncherTest):
    def run_variant(self, variant):
        record = os.path.join(self.folder, "record.json")
        logs = os.path.join(self.folder, "logs")
        done = self.rdmalab("demo", "--variant", variant, "--json", record, "--logs", logs, timeout=LIMIT_S)
        output = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, output)
        self.assertIn("\nverdict: PASS", output)
        with open(record) as file:
            record = json.load(file)
        self.assertTrue(record["passed"])
        self.assertEqual([one["name"] for one in record["criteria"] if not one["passed"]], [])
        self.assertEqual((self.cards(), self.files()), ([], []))
        return output, record

    @costs(processors=2, timeout=300)
    def test_the_tutorials_experiment(self):
        output, record = self.run_variant("tutorial")
        self.assertGreaterEqual(len(record["criteria"]), 12)
        moments = re.findall(r"(?m)^ *(\d+\.\d) s  share (\d+):(\d+)  pending \d+  paths [\d.]+ [\d.]+ Gb/s  CE ", output)
        self.assertGreater(len(moments), 30, output)
        for _, path0, path1 in moments:
            self.assertEqual(int(path0) + int(path1), 64)

    def test_ctrl_c_leaves_nothing_running(self):
        process = self.start("demo")
        family = lambda: launcher_kit.harness.descendants_of(process.pid)
        self.assertTrue(wait_until(lambda: len(family()) >= PROCESSES, 60), "everything is started")
        started = family()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20 * TIME_FACTOR), 128 + 2)
        self.assertIn("verdict: FAIL: interrupted", process.stderr.read())
        self.assertFalse(any(map(launcher_kit.is_alive, started)))
        self.assertEqual(self.files(), [])

    def test_a_variant_that_does_not_exist(self):
        done = self.rdmalab("demo", "--variant", "sideways")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, "'sideways' is none of tutorial, swapped, ")


def add_variant(name):
    def test(self):
        self.run_variant(name)

    word = name.replace("-", "_").replace(".", "_")
    setattr(Experiment, f"test_variant_{word}", costs(label="soak", processors=2, timeout=300)(test))


for name in ("swapped", "equal", "clean", "changed", "compat-2.9", "four-paths", "loss", "restart-pcc", "restart-flow-steer"):
    add_variant(name)


if __name__ == "__main__":
    main()
