"""How tests end otherwise: Ctrl-C on either side, peers that die or fall silent at any step, strangers on the port."""

import contextlib
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import Failure, wait_until
from perftest_kit import SharedBench, bench, check_schema

LIMIT_S = 10  # within which the other side must have ended


def message(kind, body, version=1):
    text = json.dumps(body).encode()
    return struct.pack(">4sHHII", b"RPFT", version, kind, len(text), 0) + text


HELLO, TEST, ACCEPT, RESOURCES, CONNECTED, CLOCK, START, STARTED = range(1, 9)
HELLO_BODY = {"program": "rdma_perftest", "version": "0.1.0", "host": "fake"}


def is_running_traffic(program):
    return "Running traffic" in program.stdout


class Interrupts(unittest.TestCase):
    def test_ctrl_c_at_the_client_ends_an_infinite_run_with_reports_on_both_sides(self):
        with bench() as made:
            path = os.path.join(made.card.folder, "report.json")
            client = made.start("--run_infinitely", "-w", 0.1, "-v", "send", "-s", 1024, "-j", path)
            self.assertTrue(wait_until(lambda: is_running_traffic(client), 20), client.report("client"))
            time.sleep(0.5)
            os.kill(client.find("rdma_perftest"), signal.SIGINT)
            self.assertTrue(client.wait(LIMIT_S), client.report("client"))
            self.assertEqual(client.returncode(), 0, client.report("client"))
            self.assertIn("[Gbit/sec]", client.stdout)
            self.assertTrue(wait_until(lambda: "[Gbit/sec]" in made.server.stdout, 5), made.server.report("server"))
            with open(path) as file:
                report = json.load(file)
            check_schema(report)
            self.assertTrue(report["scenario"]["runInfinitely"])
            self.assertGreater(report["connections"][0]["bwResults"]["iterations"], 0)

    def test_ctrl_c_at_the_server_ends_the_run_with_reports_on_both_sides(self):
        for words in (["-v", "write"], ["-v", "send", "-b"], ["-m", "lat", "-v", "send"]):
            with self.subTest(words=words), bench() as made:
                client = made.start("--run_infinitely", "-w", 0.1, "-s", 1024, *words)
                self.assertTrue(wait_until(lambda: is_running_traffic(client), 20), client.report("client"))
                time.sleep(0.5)
                os.kill(made.server.find("rdma_perftest"), signal.SIGINT)
                self.assertTrue(client.wait(LIMIT_S), client.report("client"))
                self.assertEqual(client.returncode(), 0, client.report("client"))
                self.assertTrue(made.server.wait(LIMIT_S))
                self.assertEqual(made.server.returncode(), 0, made.server.report("server"))
                unit = "[usec]" if "lat" in words else "[Gbit/sec]"
                self.assertIn(unit, client.stdout)
                self.assertIn(unit, made.server.stdout)

    def test_ctrl_c_in_a_bounded_run_reports_what_was_measured_and_exits_1(self):
        with bench() as made:
            client = made.start("-D", 60, "-w", 0.1, "-s", 1024)
            self.assertTrue(wait_until(lambda: is_running_traffic(client), 20), client.report("client"))
            time.sleep(0.5)
            os.kill(client.find("rdma_perftest"), signal.SIGINT)
            self.assertTrue(client.wait(LIMIT_S), client.report("client"))
            self.assertEqual(client.returncode(), 1)
            self.assertIn("Interrupted", client.stdout)
            self.assertIn("[Gbit/sec]", client.stdout)

    def test_a_server_without_clients_ends_at_once(self):
        with bench() as made:
            os.kill(made.server.find("rdma_perftest"), signal.SIGINT)
            self.assertTrue(made.server.wait(3))
            self.assertEqual(made.server.returncode(), 0)


class Deaths(unittest.TestCase):
    """kill -9 and kill -STOP of each process while traffic runs."""

    def client_of(self, made, *words):
        client = made.start("-D", 60, "-w", 0.1, *words)
        self.assertTrue(wait_until(lambda: is_running_traffic(client), 20), client.report("client"))
        time.sleep(0.3)
        return client

    def main_of(self, program):
        found = program.find("rdma_perftest")
        if found is None:
            raise Failure(program.report("no rdma_perftest in"))
        return found

    def worker_of(self, program):
        below = [pid for pid in harness.descendants_of(self.main_of(program))
                 if harness.process_name(pid) == "rdma_perftest"]
        # The last one down the line: of a server, the session lies between.
        return below[-1]

    def expect_end(self, program, said):
        self.assertTrue(program.wait(LIMIT_S), program.report("still there"))
        self.assertEqual(program.returncode(), 1, program.report("client"))
        self.assertIn(said, program.stderr)

    def test_the_client_notices_a_killed_server(self):
        for words in (["-v", "write", "-s", 1024], ["-m", "lat", "-v", "write", "-s", 8], ["-c", "UD", "-v", "send"]):
            with self.subTest(words=words), bench() as made:
                client = self.client_of(made, *words)
                made.server.kill_group()
                for pid in harness.processes_of(made.card.runtime):
                    if harness.process_name(pid) == "rdma_perftest" and pid not in client.descendants() + [client.pid]:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                self.expect_end(client, "while running traffic")

    def test_the_client_notices_a_stopped_server(self):
        with bench() as made:
            client = self.client_of(made, "-v", "send", "-s", 1024)
            stopped = [pid for pid in harness.processes_of(made.card.runtime)
                       if harness.process_name(pid) == "rdma_perftest" and pid not in client.descendants() + [client.pid]]
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            self.expect_end(client, "")
            self.assertIn("127.0.0.1", client.stderr)
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def test_the_client_says_that_its_worker_was_killed(self):
        with bench() as made:
            client = self.client_of(made, "-v", "write", "-s", 1024)
            os.kill(self.worker_of(client), signal.SIGKILL)
            self.expect_end(client, "process 0 was killed by signal 9 while running traffic")

    def test_the_server_notices_a_killed_client_and_serves_the_next(self):
        with bench() as made:
            client = self.client_of(made, "-v", "send", "-s", 1024, "-b")
            client.kill_group()
            self.assertTrue(wait_until(lambda: "client 127.0.0.1" in made.server.stderr, LIMIT_S),
                            made.server.report("server"))
            self.assertIn("while running traffic", made.server.stderr)
            made.client("-i", 10, "-w", 0)

    def test_the_end_of_a_client_is_the_cause_though_traffic_fails_before_it(self):
        with bench() as made:
            client = self.client_of(made, "-v", "send", "-s", 1024, "-b")
            worker, main = self.worker_of(client), self.main_of(client)
            self.assertNotEqual(worker, main)
            os.kill(main, signal.SIGSTOP)
            os.kill(worker, signal.SIGKILL)
            time.sleep(0.4)
            client.kill_group()
            self.assertTrue(wait_until(lambda: "client 127.0.0.1" in made.server.stderr, LIMIT_S),
                            made.server.report("server"))
            self.assertIn("while running traffic", made.server.stderr)


class Strangers(SharedBench):
    """What may come to a control port. After each, the server still serves."""

    def exchange(self, data, wait=True):
        with socket.create_connection(("127.0.0.1", self.bench.port), timeout=LIMIT_S) as connection:
            connection.sendall(data)
            answer = b""
            with contextlib.suppress(OSError):
                while wait:
                    part = connection.recv(65536)
                    if not part:
                        break
                    answer += part
            return answer

    def after(self):
        self.run_client("-i", 10, "-w", 0)

    def test_a_port_scanner_does_not_use_up_the_server(self):
        for _ in range(20):
            socket.create_connection(("127.0.0.1", self.bench.port)).close()
        self.after()

    def test_nonsense_is_refused(self):
        for data in (b"GET / HTTP/1.0\r\n\r\n", b"\0" * 4096, message(TEST, {}), message(HELLO, []),
                     b"RPFT" + b"\xff" * 12, message(HELLO, {"program": "other"})):
            self.exchange(data)
        self.after()

    def test_silence_ends_within_the_limit(self):
        started = time.monotonic()
        self.exchange(b"RPFT")
        self.assertLess(time.monotonic() - started, LIMIT_S * harness.TIME_FACTOR)
        self.after()

    def test_a_client_of_another_version_is_told_both(self):
        answer = self.exchange(message(HELLO, {**HELLO_BODY, "version": "9.9"}, version=7))
        self.assertIn(b"rdma_perftest", answer)
        self.assertTrue(wait_until(lambda: "wire protocol 7 (version 9.9)" in self.bench.server.stderr, 5),
                        self.bench.server.report("server"))

    def test_a_hostile_client_is_refused_at_every_step(self):
        scenario = self.run_client("-i", 10, "-w", 0).report["scenario"]
        tests = [{}, {"scenario": 5}, {"scenario": {**scenario, "qps": 10**9}}, {"scenario": {**scenario, "x": 1}},
                 {"scenario": scenario, "cores": "x"}, {"scenario": scenario, "serverDevice": "none"},
                 {"scenario": {**scenario, "numProcesses": -1}}]
        for test in tests:
            with self.subTest(test=str(test)[:60]):
                answer = self.exchange(message(HELLO, HELLO_BODY) + message(TEST, test))
                self.assertIn(b'"text"', answer)
        for resources in ({}, {"processes": []}, {"processes": [{}]}, {"processes": [{"qpns": "x"}]}):
            with self.subTest(resources=str(resources)):
                data = message(HELLO, HELLO_BODY) + message(TEST, {"scenario": scenario}) + message(RESOURCES, resources)
                self.assertIn(b'"text"', self.exchange(data))
        self.after()


class FakeServer:
    """Plays a server up to a step, then does as told."""

    def __init__(self, steps, version=1, end="close"):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.steps, self.version, self.end = steps, version, end
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        connection, _ = self.listener.accept()
        with contextlib.suppress(OSError):
            if self.steps:
                connection.recv(65536)
            for kind, body in self.steps:
                connection.sendall(message(kind, body, self.version))
                time.sleep(0.2)
            if self.end == "close":
                connection.close()
            elif self.end == "babble":
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        self.connection = connection


class FakeServers(unittest.TestCase):
    def check(self, fake, said):
        with harness.Card() as card:
            started = time.monotonic()
            client = card.start(os.path.join(harness.BUILD, "bin", "rdma_perftest"), "-n", "127.0.0.1", "--port", fake.port,
                                "-d", harness.CLIENT_DEVICE, "-i", 10)
            self.assertTrue(client.wait(LIMIT_S + 2), client.report("client"))
            self.assertEqual(client.returncode(), 1)
            self.assertIn(said, client.stderr)
            self.assertLess(time.monotonic() - started, (LIMIT_S + 2) * harness.TIME_FACTOR)

    def test_a_server_that_is_none_is_named_so(self):
        self.check(FakeServer([], end="babble"), "127.0.0.1, while greeting: not rdma_perftest")

    def test_a_server_of_another_version_is_refused_naming_both(self):
        self.check(FakeServer([(HELLO, {**HELLO_BODY, "version": "9.9"})], version=3),
                   "speaks wire protocol 3 (version 9.9), this is protocol 1 (version")

    def test_a_server_that_says_nothing(self):
        self.check(FakeServer([], end="silence"), "while greeting")

    def test_a_server_that_goes_after_its_greeting(self):
        self.check(FakeServer([(HELLO, HELLO_BODY)]), "while waiting for it to accept the test")

    def test_a_server_that_falls_silent_after_its_greeting(self):
        self.check(FakeServer([(HELLO, HELLO_BODY)], end="silence"), "silent for 8 s while waiting for it to accept")

    def test_a_server_that_goes_after_accepting(self):
        self.check(FakeServer([(HELLO, HELLO_BODY), (ACCEPT, {"host": "x"})]), "while")

    def test_a_server_with_broken_resources(self):
        steps = [(HELLO, HELLO_BODY), (ACCEPT, {"host": "x"}), (RESOURCES, {"processes": [{"gid": None}]})]
        self.check(FakeServer(steps, end="silence"), "link layers differ")


if __name__ == "__main__":
    harness.main()
