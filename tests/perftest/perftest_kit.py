"""What the tests of rdma_perftest share: a card, a server on it, clients, reports checked against the schema."""

import contextlib
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import BUILD, CLIENT_DEVICE, SERVER_DEVICE, SOURCE, Card, Failure, reserved_port, wait_until

PROGRAM = os.path.join(BUILD, "bin", "rdma_perftest")
with open(os.path.join(SOURCE, "src", "perftest", "report.schema.json")) as schema_file:
    SCHEMA = json.load(schema_file)


def check_schema(report):
    import jsonschema

    jsonschema.Draft7Validator(SCHEMA).validate(report)


class Run:
    """A client that has ended: its program and its report."""

    def __init__(self, program, server):
        self.program = program
        self.server = server

    @property
    def report(self):
        try:
            report = json.loads(self.program.stdout)
        except ValueError as error:
            raise Failure(f"stdout is not JSON: {error}\n{self.program.report('client')}")
        check_schema(report)
        return report

    def connection(self, index=0):
        connections = self.report["connections"]
        if len(connections) <= index:
            raise Failure(self.program.report("no such connection in the report of"))
        return connections[index]


class Bench:
    """A card with a server that waits; `client` runs against it."""

    def __init__(self, card, port, *server_words, env=None):
        self.card = card
        self.port = port
        self.server = card.start(PROGRAM, "--port", port, "-d", SERVER_DEVICE, *server_words, env=env)
        listening = wait_until(lambda: harness.is_listening(port) or not self.server.running(), 20)
        if not listening or not self.server.running():
            raise Failure(self.server.report("the server never listened"))

    def start(self, *words, env=None):
        return self.card.start(PROGRAM, "--port", self.port, "-n", "127.0.0.1", "-d", CLIENT_DEVICE,
                               "--launch_server", "disable", *words, env=env)

    def client(self, *words, expect=0, timeout=60, env=None, json_output=True):
        words = ["--print_json_results", *words] if json_output else words
        program = self.start(*words, env=env)
        if not program.wait(timeout):
            report = program.report("hangs") + self.server.report("server")
            program.kill_group()
            raise Failure(f"did not end within {timeout} s\n{report}")
        if program.returncode() != expect:
            raise Failure(f"expected exit {expect}\n{program.report('client')}{self.server.report('server')}")
        return Run(program, self.server)


@contextlib.contextmanager
def bench(*server_words, env=None, **card_words):
    with Card(**card_words) as card, reserved_port() as port:
        made = Bench(card, port, *server_words, env=env)
        yield made
        made.server.kill_group()


class SharedBench(unittest.TestCase):
    """One card and one server for all tests of a class: that a server serves many clients is tested by the way."""

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.bench = cls.stack.enter_context(bench())

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def run_client(self, *words, **options):
        return self.bench.client(*words, **options)
