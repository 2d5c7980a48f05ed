"""How labs come and go, and what their hosts are to each other and to the machine."""

import os
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import LAUNCHER, Program, costs, is_alive, main, wait_until
from lab_kit import TestLab, needs_lab

ORDINARY_UID = 54321


def machine():
    """What a lab must not change."""
    with open("/etc/hosts") as hosts, open("/proc/self/mountinfo") as mounts:
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout
        return os.uname().nodename, hosts.read(), len(mounts.readlines()), re.findall(r"^\d+: (\S+):", links, re.M)


@needs_lab
class Hosts(unittest.TestCase):
    def test_have_names_interfaces_and_folders_of_their_own(self):
        before = machine()
        with TestLab(2) as lab:
            for number, name in enumerate(("node01", "node02"), 1):
                script = "hostname; ls /tmp; ls /dev/shm; ls /sys/class/net; ls /sys/class/infiniband; touch /tmp/mine; "
                script += "ps -e | wc -l"
                done = lab.run(name, "sh", "-c", script).stdout.split()
                self.assertEqual(done[:3], [name, "eth0", "lo"], "and /tmp and /dev/shm are empty")
                self.assertIn("mlx5_0", done)
                self.assertLess(int(done[-1]), 15)
                self.assertIn(f"10.88.0.{number}/24", lab.run(name, "ip", "address", "show", "dev", "eth0").stdout)
            self.assertEqual(machine(), before)
        self.assertFalse(os.path.exists("/tmp/mine"))
        self.assertEqual(machine(), before)

    def test_log_in_to_each_other(self):
        with TestLab(2) as lab:
            script = "ssh node02 'hostname; ls /sys/class/infiniband; which rdmalab'"
            done = lab.run("node01", "sh", "-c", script)
            self.assertEqual(done.stdout.split(), ["node02", "mlx5_0", LAUNCHER], done.stderr)

    def test_have_a_device_per_rail(self):
        with TestLab(2, "--rails", 2) as lab:
            done = lab.run("node02", "ibv_devices").stdout
            self.assertEqual(re.findall(r"mlx5_\d", done), ["mlx5_0", "mlx5_1"])
            self.assertEqual(lab.host("node02")["addresses"], ["10.88.0.2", "10.89.0.2"])
            for name in ("node01", "node01-1"):
                self.assertIn(" 0% packet loss", lab.run("node02", "ping", "-c1", "-W5", name).stdout)
            lab.rdmalab("link", "node01", "cut", "--rail", 1)
            self.assertEqual(lab.host("node01")["links"], ["up", "cut"])

    @costs(timeout=120, processors=2)
    def test_are_there_soon_also_sixteen(self):
        started = time.monotonic()
        with TestLab(16) as lab:
            self.assertLess(time.monotonic() - started, 40)
            self.assertEqual([host["state"] for host in lab.status()["hosts"]], ["up"] * 16)
            self.assertIn(" 0% packet loss", lab.run("node16", "ping", "-c1", "-W5", "node01").stdout)

    def test_let_the_machine_join(self):
        before = machine()
        with TestLab(1, "--join") as lab:
            # Another lab on this machine may have joined as well.
            self.assertIn("10.88.0.254", subprocess.run(["ip", "address"], capture_output=True, text=True).stdout)
            self.assertIn(" 0% packet loss", lab.run("node01", "ping", "-c1", "-W5", "10.88.0.254").stdout)
        wait_until(lambda: machine() == before, 5)
        self.assertEqual(machine(), before)


@needs_lab
class Exec(unittest.TestCase):
    def test_is_the_program(self):
        with TestLab(1) as lab:
            self.assertEqual(lab.run("node01", "sh", "-c", "exit 7", check=False).returncode, 7)
            self.assertEqual(lab.run("node01", "sh", "-c", "kill -9 $$", check=False).returncode, 137)
            missing = lab.run("node01", "no-such-program", check=False)
            self.assertEqual(missing.returncode, 127)
            self.assertEqual(missing.stderr, "rdmalab lab exec: cannot run 'no-such-program': No such file or directory\n")
            self.assertEqual(lab.run("node01", "pwd", cwd="/usr/lib").stdout, "/usr/lib\n")
            self.assertEqual(lab.run("node01", "sh", "-c", "echo $0 -- --x", "a").stdout, "a -- --x\n")
            self.assertEqual(lab.rdmalab("exec", "node01", "echo", "no", "mark").stdout, "no mark\n")

    def test_passes_signals_on_and_takes_the_program_along(self):
        with TestLab(1) as lab:
            for how in (signal.SIGTERM, signal.SIGKILL):
                program = lab.start("node01", "sleep", "1000")
                wait_until(lambda: program.find("sleep"), 10)
                sleeper = program.find("sleep")
                os.kill(program.pid, how)
                self.assertTrue(wait_until(lambda: not is_alive(sleeper), 10))

    def test_of_an_agent_is_a_line_of_a_shell(self):
        with TestLab(2) as lab:
            done = lab.rdmalab("agent", "node02", "A=1", ";", "export", "A;", "sh", "-c", "'echo $A --x; hostname'")
            self.assertEqual(done.stdout.split(), ["1", "--x", "node02"])
            self.assertEqual(lab.rdmalab("agent", "10.88.0.2", "hostname").stdout, "node02\n")


@needs_lab
class Faults(unittest.TestCase):
    def test_a_crash_ends_all_processes_of_a_host_and_of_no_other(self):
        with TestLab(2) as lab:
            programs = [lab.start(name, "sleep", "1000") for name in ("node01", "node02")]
            wait_until(lambda: all(program.find("sleep") for program in programs), 10)
            lab.rdmalab("crash", "node01")
            self.assertTrue(programs[0].wait(10))
            self.assertTrue(programs[1].running())
            self.assertEqual([host["state"] for host in lab.status()["hosts"]], ["crashed", "up"])
            refused = lab.run("node01", "true", check=False)
            self.assertEqual((refused.returncode, "node01 has crashed" in refused.stderr), (1, True))
            again = lab.rdmalab("crash", "node01", check=False)
            self.assertEqual((again.returncode, again.stderr), (2, "rdmalab lab crash: node01 has crashed already\n"))

    def test_a_link_that_is_down_is_noticed_and_one_that_is_cut_is_not(self):
        def port_state():
            return re.search(r"state:\s+(\w+)", lab.run("node02", "ibv_devinfo").stdout).group(1)

        def hears():
            return lab.run("node01", "ping", "-c1", "-W1", "node02", check=False).returncode == 0

        with TestLab(2) as lab:
            self.assertEqual((port_state(), hears()), ("PORT_ACTIVE", True))
            lab.rdmalab("link", "node02", "cut")
            self.assertEqual((port_state(), hears(), lab.host("node02")["links"]), ("PORT_ACTIVE", False, ["cut"]))
            lab.rdmalab("link", "node02", "up")
            self.assertTrue(wait_until(hears, 10))
            lab.rdmalab("link", "node02", "down")
            self.assertTrue(wait_until(lambda: port_state() == "PORT_DOWN", 10))
            self.assertEqual((hears(), lab.host("node02")["links"]), (False, ["down"]))
            lab.rdmalab("link", "node02", "up")
            self.assertTrue(wait_until(lambda: port_state() == "PORT_ACTIVE" and hears(), 10))

    def test_a_killed_keeper_takes_everything_along(self):
        with TestLab(3) as lab:
            sleeper = lab.start("node02", "sleep", "1000")
            wait_until(lambda: sleeper.find("sleep"), 10)
            os.kill(lab.processes[0], signal.SIGKILL)
            self.assertTrue(wait_until(lambda: not any(map(is_alive, lab.processes)), 10))
            self.assertTrue(sleeper.wait(10))
            done = lab.rdmalab("status", check=False)
            self.assertEqual(done.stderr, "rdmalab lab status: no lab is up; start one with: rdmalab lab up 4\n")
            lab.rdmalab("up", 1)
            lab.note_processes()
            self.assertEqual(lab.run("node01", "hostname").stdout, "node01\n")

    def test_a_killed_up_leaves_nothing(self):
        lab = TestLab(12)
        for delay in (0.02, 0.1, 0.25):
            program = Program(lab.words("up", 12), env=lab.environment)
            time.sleep(delay)
            program.kill_group()
            # What was on its way goes, or has become a lab.
            lab.rdmalab("down", timeout=120)
            self.assertEqual(os.listdir(lab.runtime), [])
        os.rmdir(lab.runtime)


@needs_lab
class Refusals(unittest.TestCase):
    def refuse(self, lab, status, text, *words):
        done = lab.rdmalab(*words, check=False)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertIn(text, done.stderr)

    def test_say_what_was_expected(self):
        with TestLab(2) as lab:
            self.refuse(lab, 2, "a lab is up already (node01 to node02); take it down first: rdmalab lab down", "up", 2)
            self.refuse(lab, 2, "no host 'node03'; expected one of node01 to node02; did you mean 'node01'?", "crash", "node03")
            self.refuse(lab, 2, "STATE: expected up, down or cut, found 'sideways'", "link", "node01", "sideways")
            self.refuse(lab, 2, "--rail: expected 0 to 0, found 1", "link", "node01", "cut", "--rail", 1)
            self.refuse(lab, 2, "expected a program after '--', found none", "exec", "node01", "--")
            for count in ("0", "251", "x"):
                self.refuse(lab, 2, "N: expected", "up", count)
            self.refuse(lab, 2, "unknown command 'upp'; did you mean 'up'?", "upp")

    def test_without_root(self):
        user = ["setpriv", f"--reuid={ORDINARY_UID}", f"--regid={ORDINARY_UID}", "--clear-groups", "--inh-caps=-all"]
        if subprocess.run([*user, "test", "-x", LAUNCHER]).returncode != 0:
            self.skipTest("the build folder cannot be read by other users")
        done = subprocess.run([*user, LAUNCHER, "lab", "up", "2"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", "rdmalab lab up: a lab needs root\n"))

    def test_of_a_host_name_its_error(self):
        lab = TestLab(2, "--mtu", 1280)
        try:
            environment = {**lab.environment, "PATH": "/nonexistent"}
            done = subprocess.run(lab.words("up", 2), env={**os.environ, **environment}, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("cannot run ssh-keygen; a lab needs openssh-client, or --no-ssh", done.stderr)
            self.assertEqual(os.listdir(lab.runtime), [])
        finally:
            os.rmdir(lab.runtime)


if __name__ == "__main__":
    main()
