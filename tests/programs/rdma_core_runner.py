"""Runs rdma-core's own tests inside one process: started by rdma_core_suite.py in a folder that holds `tests/`.

Each test starts from the same random state, derived from the seed and its name, so its flags and sizes do not depend on
which tests ran before. One JSON line per event goes to the file named first: {"start": id}, {"id", "outcome", "why"}.

    rdma_core_runner.py EVENTS SEED SECONDS_PER_TEST TEST_IDS_FILE [arguments of run_tests.py]
"""

import json
import os
import random
import signal
import sys
import traceback
import unittest


class Overdue(BaseException):
    pass


class Recorder(unittest.TestResult):
    def __init__(self, events, seed, limit):
        super().__init__()
        self.events = events
        self.seed = seed
        self.limit = limit

    def record(self, **event):
        self.events.write(json.dumps(event) + "\n")
        self.events.flush()

    def startTest(self, test):
        super().startTest(test)
        self.outcome = None
        self.record(start=test.id())
        random.seed(f"{self.seed}/{test.id()}")
        signal.alarm(self.limit)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)

    def addSuccess(self, test):
        self.record(id=test.id(), outcome="pass", why="")

    def addSkip(self, test, reason):
        self.record(id=test.id(), outcome="skip", why=reason)

    def addFailure(self, test, error):
        self.record(id=test.id(), outcome="fail", why="".join(traceback.format_exception(*error)))

    def addError(self, test, error):
        self.record(id=test.id(), outcome="error", why="".join(traceback.format_exception(*error)))

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addFailure(test, error)


def overdue(_signal, _frame):
    raise Overdue("the test took too long")


def flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


def main():
    events, seed, limit, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    sys.argv[1:] = sys.argv[5:]
    sys.path.insert(0, os.path.join(os.getcwd(), "tests"))
    sys.path.insert(0, os.getcwd())
    from args_parser import parser

    parser.parse_args()
    signal.signal(signal.SIGALRM, overdue)
    suite = unittest.defaultTestLoader.discover("tests", top_level_dir=os.getcwd())
    tests = {test.id(): test for test in flatten(suite)}
    if not wanted or not os.path.exists(wanted):
        ids = sorted(tests)
    else:
        with open(wanted) as file:
            ids = [line.strip() for line in file if line.strip() in tests]
    with open(events, "a") as file:
        recorder = Recorder(file, seed, limit)
        if not os.path.exists(wanted):
            recorder.record(all=ids)
        for name in ids:
            try:
                unittest.TestSuite([tests[name]]).run(recorder)
            except Overdue:
                recorder.record(id=name, outcome="error", why="the test took too long")
        recorder.record(finished=True)


main()
