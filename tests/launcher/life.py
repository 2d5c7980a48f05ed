"""up and down: cards come quickly, live side by side, and go without a trace."""

import json
import os
import signal
import socket
import time

import launcher_kit
from harness import TIME_FACTOR, main
from launcher_kit import is_alive, wait_until


class Up(launcher_kit.LauncherTest):
    def test_up_returns_within_a_second_with_the_card_ready(self):
        seconds = []
        for _ in range(3):  # the machine may be busy with other tests; one undisturbed start proves it
            started = time.monotonic()
            self.expect_success("up")
            seconds.append(time.monotonic() - started)
            self.expect_success("status", "--json")
            self.expect_success("down")
        self.assertLess(min(seconds), 1 * TIME_FACTOR, seconds)

    def test_the_summary_says_what_there_is_and_how_to_use_it(self):
        output = self.up("--name", "lab")
        pid = self.card_pid("lab")
        self.assertEqual(
            output,
            f"card 'lab' is up (pid {pid}, topology loopback): mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_4\n"
            "use it with: rdmalab run --name lab -- ibv_devinfo\n",
        )

    def test_the_card_is_detached_from_terminal_and_session(self):
        self.up()
        pid = self.card_pid()
        self.assertEqual(os.getsid(pid), pid)
        self.assertEqual(os.readlink(f"/proc/{pid}/fd/0"), "/dev/null")
        for stream in (1, 2):
            self.assertEqual(os.readlink(f"/proc/{pid}/fd/{stream}"), os.path.join(self.runtime, "default.log"))

    def test_the_runtime_folder_is_private(self):
        self.up()
        self.assertEqual(os.stat(self.runtime).st_mode & 0o777, 0o700)

    def test_options_reach_the_card(self):
        path = os.path.join(self.folder, "two.toml")
        with open(path, "w") as file:
            file.write('seed = 3\n[[function]]\ndevice = "solo"\nkind = "pf"\n')
        self.up("--topology", path, "--seed", "99", "--computed-icrc")
        status = json.loads(self.expect_success("status", "--json"))
        self.assertEqual((status["topology"], status["seed"]), (path, 99))
        self.assertEqual([function["device"] for function in status["functions"]], ["solo"])
        with open(f"/proc/{self.card_pid()}/cmdline") as file:
            self.assertIn("--computed-icrc", file.read().split("\0"))

    def test_two_cards_side_by_side(self):
        self.up("--name", "one")
        self.up("--name", "two")
        pids = {name: json.loads(self.expect_success("status", "--name", name, "--json"))["pid"] for name in ("one", "two")}
        self.assertEqual(pids, {"one": self.card_pid("one"), "two": self.card_pid("two")})
        self.expect_success("down", "--name", "one")
        self.assertFalse(is_alive(pids["one"]))
        self.assertTrue(is_alive(pids["two"]))

    def test_a_stale_socket_is_replaced(self):
        os.mkdir(self.runtime, 0o700)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
            dead.bind(os.path.join(self.runtime, "default.sock"))
        self.up()
        self.expect_success("status")

    def test_foreground_stays_and_ends_the_card_on_a_signal(self):
        process = self.start("up", "--foreground")
        self.assertRegex(process.stdout.readline(), r"^card 'default' is up \(pid \d+, topology loopback\)")
        card = self.card_pid()
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(10 * TIME_FACTOR), 0)
        self.assertFalse(is_alive(card))
        self.assertEqual(self.files(), [])

    def test_foreground_ends_with_the_card(self):
        process = self.start("up", "--foreground")
        process.stdout.readline()
        self.expect_success("down")
        self.assertEqual(process.wait(10 * TIME_FACTOR), 0)


class Down(launcher_kit.LauncherTest):
    def test_down_leaves_no_process_and_no_file(self):
        self.expect_success("up")
        card = self.card_pid()
        self.assertEqual(self.expect_success("down"), "card 'default' is down\n")
        self.assertFalse(is_alive(card))
        self.assertEqual(self.files(), [])

    def test_down_all_ends_every_card(self):
        for name in ("one", "two", "three"):
            self.expect_success("up", "--name", name)
        output = self.expect_success("down", "--all")
        self.assertEqual(output, "card 'one' is down\ncard 'three' is down\ncard 'two' is down\n")
        self.assertEqual((self.cards(), self.files()), ([], []))
        self.assertEqual(self.expect_success("down", "--all"), "no card is up\n")

    def test_what_a_killed_card_left_is_removed(self):
        self.expect_success("up")
        card = self.card_pid()
        os.kill(card, signal.SIGKILL)
        wait_until(lambda: not is_alive(card), 5)
        self.assertIn("default.sock", self.files())
        self.assertEqual(
            self.expect_success("down"), "card 'default' was not up; removed the files it left behind\n"
        )
        self.assertEqual(self.files(), [])

    def test_a_card_that_does_not_answer_is_killed(self):
        self.expect_success("up")
        card = self.card_pid()
        os.kill(card, signal.SIGSTOP)
        output = self.expect_success("down", timeout=60)
        self.assertEqual(output, "card 'default' is down (it did not answer and was killed)\n")
        self.assertFalse(is_alive(card))
        self.assertEqual(self.files(), [])

    def test_down_ends_a_card_that_programs_still_use(self):
        self.expect_success("up")
        program = self.start("run", "--", "ibv_asyncwatch", "-d", "mlx5_2")
        self.assertTrue(wait_until(lambda: json.loads(self.expect_success("status", "--json"))["attached"], 10))
        self.expect_success("down")
        program.kill()
        self.assertEqual(self.files(), [])


class NoRights(launcher_kit.LauncherTest):
    def test_a_log_that_cannot_be_written_is_one_clear_error(self):
        os.mkdir(self.runtime, 0o700)
        os.mkdir(os.path.join(self.runtime, "default.log"))
        self.expect_failure(
            1, f"rdmalab up: cannot write the card's log {self.runtime}/default.log: Is a directory", "up"
        )

    def test_realtime_without_the_right_is_one_clear_error(self):
        words = ["prlimit", "--rtprio=0:0", launcher_kit.LAUNCHER, "up", "--realtime"]
        if os.geteuid() == 0:
            words = ["setpriv", "--bounding-set=-sys_nice", *words]
        done = self.command(words)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn("SCHED_FIFO", done.stderr)
        self.assertEqual(self.cards(), [])


if __name__ == "__main__":
    main()
