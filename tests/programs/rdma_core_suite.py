"""rdma-core's own test suite (Debian ships it with the rdma-core package), run unchanged on the card.

Bars: no failure and no error among the generic tests, every test of rdma_core_pass.txt passes, and at least 153 of the
170 generic ones do. The list may only grow: `rdma_core_suite.py --update` adds the tests that pass now.
"""

import collections
import glob
import gzip
import json
import os
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import Card, Failure

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = "/usr/share/doc/rdma-core/tests"
PASS_LIST = os.path.join(HERE, "rdma_core_pass.txt")
VENDOR_FILES = ("test_mlx5", "test_efa", "test_cuda")
GENERIC_TOTAL = 170
PASS_MIN = 153
SECONDS_PER_TEST = 40


def unpack(folder):
    """The suite as upstream has it: some files are compressed in the package."""
    target = os.path.join(folder, "tests")
    shutil.copytree(SOURCE, target)
    for path in glob.glob(os.path.join(target, "*.gz")):
        with gzip.open(path, "rb") as packed, open(path[:-3], "wb") as plain:
            shutil.copyfileobj(packed, plain)
        os.remove(path)


def is_generic(test):
    return not test.split(".")[1].startswith(VENDOR_FILES)


class Outcome(collections.namedtuple("Outcome", "outcome why")):
    pass


def read_events(path):
    """(all test ids, outcomes by id, the test that was running when the process ended or None)."""
    every, outcomes, running = [], {}, None
    with open(path) as file:
        for line in file:
            event = json.loads(line)
            if "all" in event:
                every = event["all"]
            elif "start" in event:
                running = event["start"]
            elif "finished" in event:
                running = None
            else:
                # An error in tearDown after a success counts as the error.
                outcomes[event["id"]] = Outcome(event["outcome"], event["why"])
    if running in outcomes:
        running = None
    return every, outcomes, running


def run_suite(card, seed=harness.SEED, limit=600):
    """Outcomes of all tests. A test that kills the process is recorded as a crash and the rest is run without it."""
    folder = tempfile.mkdtemp(dir=card.folder)
    unpack(folder)
    events = os.path.join(folder, "events")
    wanted = os.path.join(folder, "wanted")
    open(events, "w").close()
    while True:
        program = card.start(
            "/usr/bin/python3", os.path.join(HERE, "rdma_core_runner.py"), events, seed, SECONDS_PER_TEST, wanted,
            "--dev", harness.SERVER_DEVICE, "--gid", "1", cwd=folder,
            env={"PYTHONHASHSEED": str(seed), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        ended = program.wait(limit)
        program.kill_group()
        every, outcomes, running = read_events(events)
        if not every:
            raise Failure(f"the suite did not start\n{program.report('rdma-core tests')}")
        rest = [name for name in every if name not in outcomes and name != running]
        if running:
            why = f"the process ended: {program.returncode()}\n{program.stderr[-2000:]}" if ended else "it hangs"
            with open(events, "a") as file:
                file.write(json.dumps({"id": running, "outcome": "error", "why": why}) + "\n")
        if not rest:
            return read_events(events)[1]
        with open(wanted, "w") as file:
            file.write("\n".join(rest))


def counts(outcomes):
    return dict(collections.Counter(outcome.outcome for outcome in outcomes.values()))


def short(name):
    return name.removeprefix("tests.")


def read_pass_list():
    with open(PASS_LIST) as file:
        return [line.strip() for line in file if line.strip() and not line.startswith("#")]


class Suite(unittest.TestCase):
    @harness.costs(timeout=900)
    def test_generic_tests(self):
        with Card() as card:
            outcomes = run_suite(card)
            card.wait_idle()
        generic = {short(name): outcome for name, outcome in outcomes.items() if is_generic(name)}
        print(f"generic: {counts(generic)} of {len(generic)}; all: {counts(outcomes)} of {len(outcomes)}")
        self.assertEqual(len(generic), GENERIC_TOTAL)
        bad = {name: outcome for name, outcome in generic.items() if outcome.outcome in ("fail", "error")}
        text = "".join(f"{name}: {outcome.outcome}\n{harness.indent(outcome.why)}" for name, outcome in bad.items())
        self.assertFalse(bad, f"{len(bad)} generic tests fail:\n{text}")
        passed = {short(name) for name, outcome in outcomes.items() if outcome.outcome == "pass"}
        lost = sorted(set(read_pass_list()) - passed)
        self.assertFalse(lost, f"tests of rdma_core_pass.txt that do not pass: {lost}")
        self.assertGreaterEqual(len(passed & set(generic)), PASS_MIN)


def print_outcomes(outcomes):
    for name, outcome in sorted(outcomes.items()):
        if is_generic(name):
            last = outcome.why.strip().splitlines()[-1] if outcome.why.strip() else ""
            print(f"{outcome.outcome:6}{short(name)}  {last}")
    print("generic:", counts({name: outcome for name, outcome in outcomes.items() if is_generic(name)}))
    print("all:", counts(outcomes))


def update():
    with Card() as card:
        outcomes = run_suite(card)
    print_outcomes(outcomes)
    passed = {short(name) for name, outcome in outcomes.items() if outcome.outcome == "pass"}
    if os.path.exists(PASS_LIST):
        passed |= set(read_pass_list())
    with open(PASS_LIST, "w") as file:
        file.write("# Tests of rdma-core 44.0 that pass on the card. This list may only grow.\n")
        file.writelines(name + "\n" for name in sorted(passed))


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        update()
    else:
        harness.main()
