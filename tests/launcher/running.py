"""run: the program's environment, its device files, its end, and the end of an embedded card."""

import json
import os
import signal
import subprocess
import time
import unittest

import launcher_kit
from harness import BUILD, TIME_FACTOR, die_with_parent, main
from launcher_kit import LAUNCHER, is_alive, wait_until


class Environment(launcher_kit.LauncherTest):
    def variables(self, *words):
        lines = self.expect_success("run", *words, "--", "env").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def test_the_libraries_come_first(self):
        self.environment["LD_LIBRARY_PATH"] = "/opt/mine"
        self.up()
        self.assertEqual(self.variables()["LD_LIBRARY_PATH"], os.path.join(BUILD, "lib/rdma") + ":/opt/mine")

    def test_an_empty_library_path_adds_nothing(self):
        self.environment.pop("LD_LIBRARY_PATH", None)
        self.up()
        self.assertEqual(self.variables()["LD_LIBRARY_PATH"], os.path.join(BUILD, "lib/rdma"))

    def test_the_card_is_named(self):
        self.up("--name", "lab")
        found = self.variables("--name", "lab")
        self.assertEqual(found["RDMALAB_CARD"], "lab")
        self.assertEqual(found["RDMALAB_SOCKET"], os.path.join(self.runtime, "lab.sock"))

    def test_inside_run_the_launcher_talks_to_the_same_card(self):
        self.up("--name", "lab")
        output = self.expect_success("run", "--name", "lab", "--", LAUNCHER, "status", "--json")
        self.assertEqual(json.loads(output)["name"], "lab")

    def test_run_inside_run_uses_the_same_card(self):
        self.up("--name", "lab")
        output = self.expect_success("run", "--name", "lab", "--", LAUNCHER, "run", "--", "ibv_devices")
        self.assertIn("mlx5_2", output)


class Program(launcher_kit.LauncherTest):
    """What the program does passes through, with a card that is up and with an embedded one alike."""

    def both(self):
        yield "embedded"
        self.up()
        yield "up"

    def test_exit_status_is_passed_on(self):
        for kind in self.both():
            with self.subTest(kind):
                self.assertEqual(self.rdmalab("run", "--", "sh", "-c", "exit 42").returncode, 42)

    def test_death_by_a_signal_is_passed_on(self):
        # An embedded card leaves the launcher in between, which exits with 128 + n; else it is the program that dies.
        self.assertEqual(self.rdmalab("run", "--", "sh", "-c", "kill -TERM $$").returncode, 128 + 15)
        self.up()
        self.assertEqual(self.rdmalab("run", "--", "sh", "-c", "kill -TERM $$").returncode, -15)

    def test_a_program_that_is_not_there(self):
        for kind in self.both():
            with self.subTest(kind):
                self.expect_failure(
                    127,
                    "rdmalab run: cannot run 'no-such-program': No such file or directory",
                    "run", "--", "no-such-program",
                )

    def test_a_file_that_is_no_program(self):
        for kind in self.both():
            with self.subTest(kind):
                self.expect_failure(
                    126, "rdmalab run: cannot run '/etc/passwd': Permission denied", "run", "--", "/etc/passwd"
                )

    def test_standard_streams_pass_through(self):
        for kind in self.both():
            with self.subTest(kind):
                done = self.rdmalab("run", "--", "sh", "-c", "cat; echo err >&2", stdin=None, input="through\n")
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "through\n", "err\n"))

    def test_words_of_the_program_are_not_ours(self):
        self.up()
        words = ["--help", "--name", "x", "--", "-v", "a b", ""]
        output = self.expect_success("run", "--", "printf", "<%s>", *words)
        self.assertEqual(output, "".join(f"<{word}>" for word in words))

    def test_the_mark_may_be_left_out_before_a_program_without_options(self):
        self.up()
        self.assertIn("mlx5_3", self.expect_success("run", "ibv_devices"))

    def test_signals_for_the_launcher_reach_the_program(self):
        script = "trap 'echo caught; exit 7' INT TERM; echo ready; while :; do sleep 0.05; done"
        for kind in self.both():
            for number in (signal.SIGINT, signal.SIGTERM):
                with self.subTest(f"{kind} {number}"):
                    process = self.start("run", "--", "sh", "-c", script)
                    self.assertEqual(process.stdout.readline(), "ready\n")
                    process.send_signal(number)
                    self.assertEqual(process.wait(10 * TIME_FACTOR), 7)
                    self.assertEqual(process.stdout.read(), "caught\n")

    def test_ctrl_c_at_a_terminal_reaches_the_program_once(self):
        script = "import signal, sys, time\nn = []\nsignal.signal(2, lambda *_: n.append(1))\nprint('ready', flush=True)\n" \
                 "end = time.monotonic() + 1\nwhile time.monotonic() < end: time.sleep(0.05)\nprint(len(n))"
        leader, follower = os.openpty()
        with open(follower, "r+b", buffering=0) as terminal:
            process = subprocess.Popen(
                [LAUNCHER, "run", "--", "/usr/bin/python3", "-c", script],
                env=self.environment, stdin=terminal, stdout=subprocess.PIPE, text=True,
                start_new_session=True, preexec_fn=take_terminal,
            )
        self.assertEqual(process.stdout.readline(), "ready\n")
        os.write(leader, b"\x03")
        self.assertEqual(process.communicate(timeout=20 * TIME_FACTOR)[0], "1\n")
        self.assertEqual(process.returncode, 0)
        os.close(leader)

    def test_with_a_card_that_is_up_the_launcher_becomes_the_program(self):
        self.up()
        process = self.start("run", "--", "sleep", "100")
        self.assertTrue(wait_until(lambda: launcher_kit.process_name(process.pid) == "sleep", 10))
        process.kill()


def take_terminal():
    import fcntl
    import termios

    die_with_parent()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class EmbeddedCard(launcher_kit.LauncherTest):
    def test_it_lives_as_long_as_the_program(self):
        output = self.expect_success("run", "--", LAUNCHER, "status", "--json")
        self.assertRegex(json.loads(output)["name"], r"^run-\d+$")
        self.assertEqual((self.cards(), self.files()), ([], []))

    def test_a_topology_asks_for_one_even_when_a_card_is_up(self):
        self.up()
        output = self.expect_success("run", "--topology", "impaired", "--seed", "5", "--", LAUNCHER, "status", "--json")
        status = json.loads(output)
        self.assertEqual((status["topology"], status["seed"]), ("impaired", 5))
        self.assertNotEqual(status["pid"], self.card_pid())

    def test_a_card_that_was_named_is_not_replaced_by_one(self):
        expected = "rdmalab run: no card named 'lab' is up; start one with: rdmalab up --name lab\n"
        for words, environment in ((["--name", "lab"], {}), ([], {"RDMALAB_CARD": "lab"})):
            self.environment.update(environment)
            done = self.rdmalab("run", *words, "--", "true")
            self.assertEqual((done.returncode, done.stderr), (2, expected))
        self.environment["RDMALAB_CARD"] = "../lab"
        self.assertRegex(self.rdmalab("run", "--", "true").stderr, "^rdmalab run: card name '../lab': expected")

    def test_two_at_once_do_not_meet(self):
        first = self.start("run", "--", "sh", "-c", "echo $RDMALAB_CARD; exec sleep 100")
        second = self.start("run", "--", "sh", "-c", "echo $RDMALAB_CARD; exec sleep 100")
        names = {first.stdout.readline(), second.stdout.readline()}
        self.assertEqual(len(names), 2)
        self.assertEqual(len(self.cards()), 2)
        for process in (first, second):
            process.terminate()
            process.wait(10 * TIME_FACTOR)

    def test_kill_9_of_the_launcher_ends_card_and_program(self):
        process = self.start("run", "--", "sleep", "1000")
        self.assertTrue(wait_until(self.cards, 10))
        children = lambda: [pid for pid in launcher_kit.harness.descendants_of(process.pid)]
        self.assertTrue(wait_until(lambda: "sleep" in map(launcher_kit.process_name, children()), 10))
        family = children()
        self.assertEqual(len(family), 2)
        process.kill()
        self.assertTrue(wait_until(lambda: not any(map(is_alive, family)), 5), "card or program outlived the launcher")
        self.assertTrue(wait_until(lambda: not [f for f in self.files() if f.endswith(".sock")], 5))

    def test_kill_9_of_the_program_ends_the_card(self):
        process = self.start("run", "--", "sh", "-c", "echo $$; exec sleep 1000")
        os.kill(int(process.stdout.readline()), signal.SIGKILL)
        self.assertEqual(process.wait(10 * TIME_FACTOR), 128 + 9)
        self.assertEqual((self.cards(), self.files()), ([], []))

    def test_a_terminal_signal_does_not_reach_the_card_before_the_program_is_done(self):
        script = "trap 'ibv_devices; exit 0' INT; echo ready; while :; do sleep 0.05; done"
        process = self.start("run", "--", "sh", "-c", script, start_new_session=True)
        self.assertEqual(process.stdout.readline(), "ready\n")
        os.killpg(process.pid, signal.SIGINT)
        output = process.communicate(timeout=20 * TIME_FACTOR)[0]
        self.assertEqual(process.returncode, 0)
        self.assertIn("mlx5_2", output)


@unittest.skipUnless(launcher_kit.may_use_namespaces(), "this machine permits no namespaces")
class DeviceFiles(launcher_kit.LauncherTest):
    def setUp(self):
        super().setUp()
        self.up()

    def inside(self, script):
        return self.expect_success("run", "-v", "--", "sh", "-ec", script)

    def test_sysfs_shows_the_devices(self):
        self.assertEqual(self.inside("ls /sys/class/infiniband"), "mlx5_0\nmlx5_1\nmlx5_2\nmlx5_3\nmlx5_4\n")
        port = "/sys/class/infiniband/mlx5_2/ports/1"
        for path, content in {
            f"{port}/state": "4: ACTIVE",
            f"{port}/phys_state": "5: LinkUp",
            f"{port}/rate": "100 Gb/sec (4X EDR)",
            f"{port}/link_layer": "Ethernet",
            f"{port}/lid": "0x0",
            f"{port}/gids/1": "0000:0000:0000:0000:0000:ffff:0a00:0001",
            f"{port}/gid_attrs/types/1": "RoCE v2",
            f"{port}/gid_attrs/types/0": "RoCE v2",
            f"{port}/pkeys/0": "0xffff",
            "/sys/class/infiniband/mlx5_2/node_type": "1: CA",
            "/sys/class/infiniband_verbs/uverbs2/ibdev": "mlx5_2",
            "/sys/class/infiniband_verbs/abi_version": "6",
        }.items():
            self.assertEqual(self.inside(f"cat {path}"), content + "\n", path)

    def test_sysfs_agrees_with_the_verbs(self):
        guid = self.inside("cat /sys/class/infiniband/mlx5_2/node_guid").replace(":", "").strip()
        self.assertIn(guid, self.inside("ibv_devices"))
        gid = self.inside("cat /sys/class/infiniband/mlx5_2/ports/1/gids/0").strip()
        self.assertEqual(self.inside("/usr/bin/python3 -c 'import pyverbs.device as d; "
                                     "print(d.Context(name=\"mlx5_2\").query_gid(1, 0))'").strip(), gid)

    def test_uverbs_are_character_devices_that_can_be_opened(self):
        output = self.inside('for n in 0 1 2 3 4; do stat -c %F /dev/infiniband/uverbs$n; : <> /dev/infiniband/uverbs$n; done')
        self.assertEqual(output, "character special file\n" * 5)

    def test_a_device_has_a_network_interface(self):
        self.assertEqual(self.inside("ls /sys/class/infiniband/mlx5_2/device/net"), "lo\n")
        self.assertIn("127.0.0.1", self.inside("ip -j addr show $(ls /sys/class/infiniband/mlx5_2/device/net)"))
        self.assertEqual(self.inside("cat /sys/class/infiniband/mlx5_2/device/net/lo/ifindex"), "1\n")

    def test_everything_else_stays(self):
        script = "ls /sys/class/net /sys/class/tty | sort; cat /sys/class/net/lo/mtu; ls /dev/shm >/dev/null; : </dev/null"
        outside = self.command(["sh", "-ec", script])
        self.assertEqual(self.inside(script), outside.stdout)
        listing = "ls -A /dev | grep -v infiniband | sort"
        self.assertEqual(self.inside(listing), self.command(["sh", "-ec", listing]).stdout)
        self.assertEqual(self.inside("head -c 4 /dev/zero | wc -c"), "4\n")

    def test_the_program_is_the_same_user(self):
        self.assertEqual(self.inside("id -u; id -g"), f"{os.getuid()}\n{os.getgid()}\n")

    def test_nothing_of_it_is_visible_outside(self):
        process = self.start("run", "--", "sh", "-c", "ls /sys/class/infiniband; exec sleep 100")
        self.assertEqual(process.stdout.readline(), "mlx5_0\n")
        with open("/proc/mounts") as file:
            self.assertNotIn("rdmalab", file.read())
        process.kill()

    def test_ibstatus_reads_it(self):
        output = self.inside("ibstatus mlx5_2")
        self.assertIn("state:\t\t 4: ACTIVE", output)
        self.assertIn("link_layer:\t Ethernet", output)

    def test_run_starts_quickly(self):
        seconds = []
        for _ in range(5):
            started = time.monotonic()
            self.inside("true")
            seconds.append(time.monotonic() - started)
        self.assertLess(min(seconds), 0.3 * TIME_FACTOR, seconds)


@unittest.skipUnless(os.geteuid() == 0, "needs root to become somebody else")
class OrdinaryUser(launcher_kit.LauncherTest):
    """The same without any privilege: a user that owns nothing but its runtime folder."""

    def setUp(self):
        super().setUp()
        # The user must be able to reach the programs; a build folder below /root is closed to it.
        uid = launcher_kit.ORDINARY_UID
        probe = self.as_user("test", "-x", LAUNCHER)
        if probe.returncode != 0:
            self.skipTest(f"{BUILD} cannot be read by other users")
        os.chmod(self.folder, 0o755)
        os.mkdir(self.runtime, 0o700)
        os.chown(self.runtime, uid, uid)

    def as_user(self, *words, **options):
        uid = launcher_kit.ORDINARY_UID
        change = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all"]
        return self.command([*change, *words], **options)

    def launch(self, *words):
        done = self.as_user(LAUNCHER, *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""), f"{words}\n{done.stdout}")
        return done.stdout

    def up_as_user(self):
        self.launch("up")
        self.addCleanup(self.as_user, LAUNCHER, "down")

    def test_up_run_status_down(self):
        self.up_as_user()
        self.assertIn("mlx5_4", self.launch("run", "--", "ibv_devices"))
        self.launch("status")
        self.launch("counters")
        self.launch("link", "cable0", "--loss", "1%")
        self.launch("down")
        self.assertEqual(self.files(), [])

    def test_an_embedded_card(self):
        self.assertIn("mlx5_4", self.launch("run", "--", "ibv_devices"))
        self.assertEqual((self.cards(), self.files()), ([], []))

    def test_the_user_keeps_its_ids(self):
        self.up_as_user()
        uid = launcher_kit.ORDINARY_UID
        self.assertEqual(self.launch("run", "--", "sh", "-c", "id -u; id -g"), f"{uid}\n{uid}\n")

    def test_device_files_or_one_clear_line(self):
        self.up_as_user()
        done = self.as_user(LAUNCHER, "run", "-v", "--", "sh", "-c", "stat -c %F /dev/infiniband/uverbs2")
        if done.returncode == 0:
            self.assertEqual((done.stdout, done.stderr), ("character special file\n", ""))
        else:
            self.assertRegex(done.stderr, "^rdmalab run: no device files for the program: make a user namespace")

    def test_traffic_between_two_programs(self):
        self.up_as_user()
        port = str(30000 + os.getpid() % 20000)
        pong = "ibv_rc_pingpong -g 1 -n 100 -p " + port
        script = f"{LAUNCHER} run -- {pong} -d mlx5_2 & sleep 0.5; {LAUNCHER} run -- {pong} -d mlx5_3 127.0.0.1; wait $!"
        done = self.as_user("bash", "-ec", script, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("100 iters in"), 2, done.stdout)

    def test_the_demo(self):
        done = self.as_user(LAUNCHER, "demo", "--card", "--seconds", "1", timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("\nverdict: PASS", done.stdout)
        self.assertEqual((self.cards(), self.files()), ([], []))

    def test_a_card_of_somebody_else_is_out_of_reach(self):
        self.up_as_user()
        self.environment["RDMALAB_RUNTIME_DIR"] = self.runtime
        stranger = ["setpriv", "--reuid=54322", "--regid=54322", "--clear-groups", "--inh-caps=-all"]
        done = self.command([*stranger, LAUNCHER, "status"])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stderr, "^rdmalab status: cannot reach the card 'default' .*: Permission denied\n$")


if __name__ == "__main__":
    main()
