"""The scenarios that are shipped: each is right by the schema, can be planned, and moves data on a card."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import SOURCE
from perftest_kit import PROGRAM
from scenario_kit import Scenarios

FOLDER = os.path.join(SOURCE, "scenarios")
NAMES = sorted(name for name in os.listdir(FOLDER) if name.endswith(".json"))
# The examples' adapters, on a card.
DEVICES = {"mlx5_0": "mlx5_2", "mlx5_1": "mlx5_3", "mlx5_[0,1]": "mlx5_[2,3]"}


def load(name):
    with open(os.path.join(FOLDER, name)) as file:
        return json.load(file)


def shortened(value):
    """The same scenario with the devices of a card, and over in a moment."""
    if isinstance(value, list):
        return [shortened(each) for each in value]
    if not isinstance(value, dict):
        return value
    out = {key: shortened(each) for key, each in value.items()}
    if "deviceName" in out:
        out["deviceName"] = DEVICES[out["deviceName"]]
    if "duration" in out:
        out["duration"] = 0.3
    if "iterations" in out:
        out.update(iterations=20)
    if "ptiniFile" in out:
        out["ptiniFile"] = os.path.join(SOURCE, out["ptiniFile"])
    return out


class Examples(Scenarios):
    def test_there_are_some(self):
        self.assertGreaterEqual(len(NAMES), 7)

    def test_they_are_right_by_the_schema(self):
        import jsonschema

        with open(os.path.join(SOURCE, "src", "perftest", "scenario.schema.json")) as file:
            schema = json.load(file)
        jsonschema.Draft7Validator.check_schema(schema)
        for name in NAMES:
            with self.subTest(name=name):
                jsonschema.Draft7Validator(schema).validate(load(name))
        for wrong in ({"msgSise": 1}, {"testNodes": [{"hostName": "a"}]}, {"duration": True}, {"tests": []}):
            self.assertFalse(jsonschema.Draft7Validator(schema).is_valid(wrong), wrong)

    def test_they_can_be_planned(self):
        for name in NAMES:
            done = subprocess.run([PROGRAM, "--dry_run", "-f", os.path.join("scenarios", name)], cwd=SOURCE,
                                  capture_output=True, text=True, timeout=20)
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)


def add_cases():
    for name in NAMES:
        def runs(self, name=name):
            scenario = shortened(load(name))
            if not any("iterationSync" in test for test in [scenario, *scenario.get("tests", [])]):
                scenario.update(warmupTime=0.1)
            run = self.json_scenario(scenario)
            for each in run.report["connections"]:
                self.assertEqual((each["status"], each["error"]), ("ok", None))

        setattr(Examples, "test_" + name.removesuffix(".json").replace("-", "_") + "_runs", runs)


add_cases()

if __name__ == "__main__":
    harness.main()
