"""demo --card: two unmodified ib_write_bw at once, a verdict, and nothing left over."""

import re
import signal

import launcher_kit
from harness import TIME_FACTOR, costs, main
from launcher_kit import wait_until


class CardDemo(launcher_kit.LauncherTest):
    @costs(processors=2)
    def test_it_passes_and_shows_results_and_counters(self):
        output = self.expect_success("demo", "--card", "--seconds", "2", timeout=60)
        rows = re.findall(r"(?m)^  mlx5_3  (mlx5_[24]) +([\d,]+) +([\d,]+) +(\d+\.\d+)$", output)
        self.assertEqual([row[0] for row in rows], ["mlx5_2", "mlx5_4"], output)
        for _, messages, size, rate in rows:
            self.assertEqual(int(size.replace(",", "")), int(messages.replace(",", "")) * 65536)
            self.assertGreater(float(rate), 0)
        self.assertRegex(output, r"(?m)^  p1 +[\d,]{5,} +[\d,]{11,} ")
        self.assertTrue(output.endswith("no errors)\n"), output)
        self.assertIn("\nverdict: PASS", output)
        self.assertEqual((self.cards(), self.files()), ([], []))

    def test_ctrl_c_leaves_nothing_running(self):
        process = self.start("demo", "--card", "--seconds", "60")
        family = lambda: launcher_kit.harness.descendants_of(process.pid)
        self.assertTrue(wait_until(lambda: len(family()) == 5, 20), "card, two servers, two clients")
        started = family()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20 * TIME_FACTOR), 128 + 2)
        self.assertIn("verdict: FAIL: interrupted", process.stderr.read())
        self.assertFalse(any(map(launcher_kit.is_alive, started)))
        self.assertEqual(self.files(), [])

    def test_kill_9_leaves_nothing_running(self):
        process = self.start("demo", "--card", "--seconds", "60")
        family = lambda: launcher_kit.harness.descendants_of(process.pid)
        self.assertTrue(wait_until(lambda: len(family()) == 5, 20))
        started = family()
        process.kill()
        self.assertTrue(wait_until(lambda: not any(map(launcher_kit.is_alive, started)), 5))

    def test_a_program_that_is_missing_is_a_clear_failure(self):
        self.environment["PATH"] = self.folder
        done = self.rdmalab("demo", "--card")
        self.assertEqual(done.returncode, 1)
        self.assertIn("verdict: FAIL: the server ended early (mlx5_3 -> mlx5_2)", done.stderr)
        self.assertIn("cannot run 'ib_write_bw': No such file or directory", done.stderr)
        self.assertEqual((self.cards(), self.files()), ([], []))


if __name__ == "__main__":
    main()
