"""What the tests of scenarios share: a card whose devices are the hosts' adapters, and one call that runs a scenario on it.

Hosts are played by this machine (`--control local`), or really started by mpirun on it (`--control mpi`); the front-end,
the agents, the workers and the traffic are the same."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import Card, Failure
from perftest_kit import PROGRAM, check_schema

# Four endpoints that all reach each other: two hosts with two devices each would be railed pairs of these.
DEVICES = ["mlx5_2", "mlx5_3", "mlx5_4"]
QUICK = ["-D", 0.3, "-w", 0.1, "--end_margin", 0.1]


def nodes(*pairs):
    return [{"hostName": host, "deviceName": device} for host, device in pairs]


class ScenarioRun:
    def __init__(self, program):
        self.program = program

    @property
    def report(self):
        try:
            report = json.loads(self.program.stdout)
        except ValueError as error:
            raise Failure(f"stdout is not JSON: {error}\n{self.program.report('scenario')}")
        check_schema(report)
        return report

    @property
    def pairs(self):
        """(source, destination) of every connection, as host:device."""
        return [tuple(f"{each[end]['hostName']}:{each[end]['deviceName']}" for end in ("source", "destination"))
                for each in self.report["connections"]]


class Scenarios(unittest.TestCase):
    """One card for all tests of a class."""

    control = "local"

    @classmethod
    def setUpClass(cls):
        cls.card = Card()
        cls.card.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.card.__exit__(None, None, None)

    def start(self, *words, env=None):
        return self.card.start(PROGRAM, "--control", self.control, *words, env=env)

    def run_scenario(self, *words, expect=0, timeout=90, env=None, json_output=True):
        words = [*words, "--print_json_results"] if json_output else words
        program = self.start(*words, env=env)
        if not program.wait(timeout):
            report = program.report("hangs")
            program.kill_group()
            raise Failure(f"did not end within {timeout} s\n{report}")
        if program.returncode() != expect:
            raise Failure(f"expected exit {expect}\n{program.report('scenario')}")
        return ScenarioRun(program)

    def pattern(self, pattern, *words, hosts="a,b,c", device="mlx5_2", quick=QUICK, **options):
        return self.run_scenario("-n", hosts, "-d", device, "--traffic_pattern", pattern, *quick, *words, **options)

    def json_scenario(self, scenario, *words, **options):
        return self.run_scenario("-f", json.dumps(scenario), *words, **options)

    def assert_all_moved(self, run, count):
        connections = run.report["connections"]
        self.assertEqual(len(connections), count)
        for each in connections:
            self.assertEqual((each["status"], each["error"]), ("ok", None))
            if "bwResults" in each:
                self.assertGreater(each["bwResults"]["iterations"], 0, each["source"])
                self.assertGreater(each["bwResults"]["bwGbSec"], 0)
            else:
                self.assertGreater(each["latResults"]["samples"], 0)
        return connections
