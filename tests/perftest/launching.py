"""Servers that the client starts: directly, by a command, over a real sshd; and running ones that it finds."""

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import CLIENT_DEVICE, SERVER_DEVICE, Card, Program, reserved_port, wait_until
from perftest_kit import PROGRAM, bench, check_schema

SHORT = ["-i", "50", "-w", "0"]


def sshd_path():
    return shutil.which("sshd") or (os.path.exists("/usr/sbin/sshd") and "/usr/sbin/sshd") or None


def servers_of(card):
    return [pid for pid in card.processes() if harness.process_name(pid) == "rdma_perftest"]


class Launched(unittest.TestCase):
    def client(self, card, port, *words, expect=0, env=None):
        return card.run(PROGRAM, "-d", CLIENT_DEVICE, "--port", port, *words, *SHORT, expect=expect, env=env, timeout=60)

    def check_gone(self, card):
        self.assertTrue(wait_until(lambda: not servers_of(card), 10), "a launched server has outlived its client")

    def test_on_this_host_the_server_is_started_directly(self):
        with Card() as card, reserved_port() as port:
            client = self.client(card, port, "-n", "localhost", "--server_device", SERVER_DEVICE)
            self.assertIn(SERVER_DEVICE, client.stdout)
            self.check_gone(card)

    def test_without_a_server_device_it_is_the_clients(self):
        with Card() as card, reserved_port() as port:
            client = self.client(card, port, "-n", "localhost")
            self.assertEqual(client.stdout.count(f":{CLIENT_DEVICE}, GID"), 2, client.stdout)

    def test_one_line_is_a_first_run_on_a_machine_that_has_nothing(self):
        with Card() as card, reserved_port() as port:
            card.run(PROGRAM, "-n", "localhost", "--port", port, "-D", 0.2, "-w", 0.1, timeout=60)

    def test_a_command_leads_to_where_the_server_is_to_be(self):
        with Card() as card, reserved_port() as port:
            client = self.client(card, port, "-n", "127.0.0.1", "--launch_server", "exec:env THE_SERVER=1 nice -n 1",
                                 "--server_device", SERVER_DEVICE)
            self.assertIn(SERVER_DEVICE, client.stdout)
            self.check_gone(card)

    def test_a_command_may_enter_a_network_namespace(self):
        if os.geteuid() != 0:
            self.skipTest("needs root for a network namespace")
        name = f"rdmaperf{os.getpid()}"
        link = f"v{os.getpid() % 100000}"
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True)
        if made.returncode != 0:
            self.skipTest("no network namespaces here")
        try:
            for words in (f"link add {link}a type veth peer name {link}b", f"link set {link}b netns {name}",
                          f"addr add 198.18.0.1/30 dev {link}a", f"link set {link}a up",
                          f"-n {name} addr add 198.18.0.2/30 dev {link}b", f"-n {name} link set {link}b up"):
                if subprocess.run(["ip", *words.split()], capture_output=True).returncode != 0:
                    self.skipTest("no veth pairs here")
            with Card() as card:
                enter = f"exec:nsenter --net=/run/netns/{name}"
                client = self.client(card, 18555, "-n", "198.18.0.2", "--launch_server", enter, "--server_device",
                                     SERVER_DEVICE)
                self.assertIn(SERVER_DEVICE, client.stdout)
                self.check_gone(card)
        finally:
            subprocess.run(["ip", "link", "del", f"{link}a"], capture_output=True)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def test_a_command_that_fails_is_shown_with_what_it_said(self):
        with Card() as card, reserved_port() as port:
            client = self.client(card, port, "-n", "127.0.0.1", "--launch_server", "exec:echo no such container; false",
                                 expect=1)
            self.assertIn("while launching the server", client.stderr)
            self.assertIn("no such container", client.stderr)

    def test_a_server_program_that_is_not_there(self):
        with Card() as card, reserved_port() as port:
            client = self.client(card, port, "-n", "127.0.0.1", "--server_exe", "/nowhere/rdma_perftest", expect=1)
            self.assertIn("/nowhere/rdma_perftest", client.stderr)

    def test_a_killed_client_takes_its_server_with_it(self):
        with Card() as card, reserved_port() as port:
            client = card.start(PROGRAM, "-n", "localhost", "-d", CLIENT_DEVICE, "--port", port, "--run_infinitely")
            self.assertTrue(wait_until(lambda: "Running traffic" in client.stdout, 20), client.report("client"))
            client.kill_group()
            self.check_gone(card)


class Running(unittest.TestCase):
    """A server that runs already is found and used."""

    def test_one_after_another_and_at_once(self):
        with bench() as made:
            for _ in range(3):
                made.client(*SHORT)
            clients = [made.start(*SHORT, "-s", 1024) for _ in range(4)]
            for client in clients:
                self.assertTrue(client.wait(60), client.report("client"))
                self.assertEqual(client.returncode(), 0, client.report("client"))
            self.assertTrue(made.server.running())

    def test_it_is_reused_without_being_told(self):
        with bench() as made:
            for _ in range(2):
                made.card.run(PROGRAM, "-d", CLIENT_DEVICE, "-n", "localhost", "--port", made.port, *SHORT)
            reports = wait_until(lambda: made.server.stdout.count("BW:") == 2, 5)
            self.assertTrue(reports, made.server.report("server"))

    def test_a_server_that_is_a_little_late_is_waited_for(self):
        with Card() as card, reserved_port() as port:
            client = card.start(PROGRAM, "-d", CLIENT_DEVICE, "-n", "localhost", "--port", port, "--launch_server",
                                "disable", *SHORT)
            wait_until(lambda: False, 1)
            server = card.start(PROGRAM, "--port", port, "-d", SERVER_DEVICE)
            self.assertTrue(client.wait(30), client.report("client"))
            self.assertEqual(client.returncode(), 0, client.report("client"))
            server.kill_group()

    def test_the_server_writes_its_own_report(self):
        import json

        with harness.Card() as card, reserved_port() as port:
            path = os.path.join(card.folder, "server.json")
            server = card.start(PROGRAM, "--port", port, "-d", SERVER_DEVICE, "-j", path)
            card.run(PROGRAM, "-d", CLIENT_DEVICE, "-n", "localhost", "--port", port, *SHORT)
            self.assertTrue(wait_until(lambda: os.path.exists(path), 5))
            with open(path) as file:
                check_schema(json.load(file))
            server.kill_group()


@unittest.skipUnless(sshd_path(), "openssh-server is not installed")
class OverSsh(unittest.TestCase):
    """A real sshd on this machine, with keys and configuration of its own."""

    @contextlib.contextmanager
    def sshd(self, folder, shell_noise=""):
        with reserved_port() as port:
            for name in ("host", "user"):
                subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}"], check=True)
            shutil.copy(f"{folder}/user.pub", f"{folder}/authorized")
            os.makedirs("/run/sshd", exist_ok=True)
            with open(f"{folder}/sshd_config", "w") as file:
                file.write(f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
                           f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nPermitUserEnvironment no\n")
            with open(f"{folder}/ssh_config", "w") as file:
                file.write(f"Host *\nPort {port}\nIdentityFile {folder}/user\nStrictHostKeyChecking no\n"
                           f"UserKnownHostsFile /dev/null\nLogLevel ERROR\n")
            daemon = Program([sshd_path(), "-D", "-e", "-f", f"{folder}/sshd_config"])
            if not wait_until(lambda: harness.is_listening(port), 10):
                raise harness.Failure(daemon.report("sshd"))
            try:
                yield {"RDMA_PERFTEST_SSH": f"ssh -F {folder}/ssh_config"}
            finally:
                daemon.kill_group()

    def wrapper(self, card, noise=""):
        """What is `rdma_perftest` on the far side: a login has no environment of ours."""
        path = os.path.join(card.folder, "far_perftest")
        with open(path, "w") as file:
            file.write("#!/bin/sh\n" + noise)
            for name, value in card.environment.items():
                file.write(f"export {name}='{value}'\n")
            file.write(f'exec {harness.LAUNCHER} run --name {card.name} -- {PROGRAM} "$@"\n')
        os.chmod(path, 0o755)
        return path

    def test_the_server_is_launched_over_ssh(self):
        user = pwd.getpwuid(os.getuid()).pw_name
        with Card() as card, self.sshd(card.folder) as env, reserved_port() as port:
            exe = self.wrapper(card, noise="echo a login script that talks; echo 'and complains' >&2\n")
            client = card.run(PROGRAM, "-d", CLIENT_DEVICE, "-n", "127.0.0.1", "--launch_server", "ssh", "--server_exe", exe,
                              "--server_username", user, "--server_device", SERVER_DEVICE, "--port", port, *SHORT, env=env,
                              timeout=60)
            self.assertIn(SERVER_DEVICE, client.stdout)
            self.assertTrue(wait_until(lambda: not servers_of(card), 10), "the server has outlived its client")

    def test_a_killed_client_takes_its_server_over_ssh_with_it(self):
        with Card() as card, self.sshd(card.folder) as env, reserved_port() as port:
            exe = self.wrapper(card)
            client = card.start(PROGRAM, "-d", CLIENT_DEVICE, "-n", "127.0.0.1", "--launch_server", "ssh", "--server_exe",
                                exe, "--port", port, "--run_infinitely", env=env)
            self.assertTrue(wait_until(lambda: "Running traffic" in client.stdout, 30), client.report("client"))
            client.kill_group()
            self.assertTrue(wait_until(lambda: not servers_of(card), 12), "the server has outlived its client")

    def test_a_refused_login_is_shown(self):
        with Card() as card, self.sshd(card.folder) as env, reserved_port() as port:
            os.remove(f"{card.folder}/authorized")
            client = card.run(PROGRAM, "-d", CLIENT_DEVICE, "-n", "127.0.0.1", "--launch_server", "ssh", "--port", port,
                              *SHORT, env=env, expect=1, timeout=60)
            self.assertIn("while launching the server", client.stderr)
            self.assertIn("Permission denied", client.stderr)


if __name__ == "__main__":
    harness.main()
