"""status, counters, link and pcap on a running card."""

import json
import os
import signal
import subprocess
import time

import launcher_kit
from harness import TIME_FACTOR, main, reserved_port
from launcher_kit import LAUNCHER, wait_until

FAULT_KEYS = {
    "rate_bps", "delay_ns", "jitter_ns", "loss", "reorder", "duplicate", "corrupt", "ce", "verify_icrc",
}
NO_FAULTS = {
    "rate_bps": 0, "delay_ns": 0, "jitter_ns": 0, "loss": 0, "reorder": 0, "duplicate": 0, "corrupt": 0, "ce": 0,
    "verify_icrc": True,
}


class RunningCard(launcher_kit.LauncherTest):
    def setUp(self):
        super().setUp()
        self.up()

    def json(self, *words):
        return json.loads(self.expect_success(*words, "--json"))

    def traffic(self, iterations=200):
        """ibv_rc_pingpong over the cable: at least 2 * iterations frames of 4 KiB payload in each direction."""
        with reserved_port() as port:
            words = ["-g", "1", "-m", "4096", "-s", "4096", "-n", str(iterations), "-p", str(port)]
            server = self.start("run", "--", "ibv_rc_pingpong", "-d", "mlx5_2", *words)
            self.assertTrue(wait_until(lambda: launcher_kit.harness.is_listening(port), 10))
            client = self.rdmalab("run", "--", "ibv_rc_pingpong", "-d", "mlx5_3", *words, "127.0.0.1", timeout=60)
            self.assertEqual(client.returncode, 0, client.stdout + client.stderr)
            self.assertEqual(server.wait(20 * TIME_FACTOR), 0)


class Status(RunningCard):
    def test_json_has_all_members(self):
        status = self.json("status")
        self.assertLessEqual(
            {"name", "pid", "version", "seed", "topology", "uptime_s", "socket", "functions", "ports", "cables",
             "cm", "attached", "captures"},
            set(status),
        )
        self.assertEqual((status["name"], status["topology"]), ("default", "loopback"))
        self.assertEqual(status["socket"], os.path.join(self.runtime, "default.sock"))

    def test_functions_are_those_of_the_topology(self):
        functions = {function["device"]: function for function in self.json("status")["functions"]}
        self.assertEqual(list(functions), [f"mlx5_{n}" for n in range(5)])
        self.assertLessEqual({"device", "representor", "pci", "mac", "ips", "netns"}, set(functions["mlx5_2"]))
        self.assertEqual(
            [(f["representor"], f["ips"], f["pci"]) for f in functions.values()],
            [
                ("", [], "0000:03:00.0"),
                ("", [], "0000:03:00.1"),
                ("pf0sf0", ["10.0.0.1"], "0000:03:00.0"),
                ("pf1sf0", ["10.0.0.2"], "0000:03:00.1"),
                ("pf0sf4", ["10.0.0.11"], "0000:03:00.0"),
            ],
        )

    def test_text_shows_functions_cables_and_programs(self):
        text = self.expect_success("status")
        self.assertRegex(text, r"(?m)^card 'default': pid \d+, version [\d.]+, topology loopback, seed 1, up \d+ s$")
        self.assertRegex(text, r"(?m)^  mlx5_2 +sf +pf0sf0 +0000:03:00\.0 +02:[0-9a-f:]+ +10\.0\.0\.1 +ns0 +0 +0$")
        self.assertRegex(text, r"(?m)^  cable0 +p0 -> p1 +unlimited +0 +0 +0 +0 +0 +0 +0 +verified$")
        self.assertIn("\nprograms\n  no program is attached\n", text)

    def test_attached_programs_are_named(self):
        program = self.start("run", "--", "ibv_asyncwatch", "-d", "mlx5_3")
        self.assertTrue(wait_until(lambda: self.json("status")["attached"], 10))
        (attached,) = self.json("status")["attached"]
        self.assertEqual((attached["pid"], attached["uid"], attached["device"]), (program.pid, os.getuid(), "mlx5_3"))
        self.assertIn("ibv_asyncwatch", attached["command"])
        self.assertRegex(self.expect_success("status"), rf"(?m)^  {program.pid} .*mlx5_3 .*ibv_asyncwatch")
        program.kill()
        self.assertTrue(wait_until(lambda: not self.json("status")["attached"], 10))


class Counters(RunningCard):
    def test_json_has_all_groups(self):
        counters = self.json("counters")
        self.assertLessEqual({"time_ns", "ports", "functions", "cables"}, set(counters))
        self.assertEqual(set(counters["ports"]), {"p0", "p1"})
        self.assertEqual(set(counters["functions"]), {f"mlx5_{n}" for n in range(5)})

    def test_traffic_is_counted_at_every_place_it_passes(self):
        self.traffic(200)
        counters = self.json("counters")
        for direction in ("a_to_b", "b_to_a"):
            self.assertGreaterEqual(counters["cables"]["cable0"][direction]["bytes"], 200 * 4096)
        for port in ("p0", "p1"):
            self.assertGreaterEqual(counters["ports"][port]["tx_frames"], 200)
        for device in ("mlx5_2", "mlx5_3"):
            self.assertGreaterEqual(counters["functions"][device]["tx_bytes"], 200 * 4096)
        self.assertEqual(counters["functions"]["mlx5_4"]["tx_frames"], 0)
        text = self.expect_success("counters")
        self.assertRegex(text, r"(?m)^  p0 +[\d,]{3,} ")
        self.assertRegex(text, r"(?m)^  cable0 +a_to_b +[\d,]{3,} ")

    def test_watch_prints_rates_until_interrupted(self):
        process = self.start("counters", "--watch", "0.1")
        for _ in range(2):
            self.assertEqual(process.stdout.readline(), "card 'default', every 0.1 s\n")
            self.assertRegex(process.stdout.readline(), "^  port +tx Gb/s +rx Gb/s +tx frames/s +rx frames/s$")
            rows = [process.stdout.readline().split()[0] for _ in range(8)]
            self.assertEqual(rows, ["p0", "p1", "device", *[f"mlx5_{n}" for n in range(5)]])
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(10 * TIME_FACTOR), 0)

    def test_watch_in_json_prints_one_object_a_line(self):
        process = self.start("counters", "--json", "--watch", "50ms")
        times = [json.loads(process.stdout.readline())["time_ns"] for _ in range(3)]
        self.assertEqual(times, sorted(set(times)))
        process.terminate()
        self.assertEqual(process.wait(10 * TIME_FACTOR), 0)

    def test_watch_ends_when_the_card_goes(self):
        process = self.start("counters", "--watch", "0.05")
        process.stdout.readline()
        self.expect_success("down")
        self.assertEqual(process.wait(10 * TIME_FACTOR), 1)
        self.assertIn("rdmalab counters: the card 'default'", process.stderr.read())


class Link(RunningCard):
    def faults(self):
        (cable,) = self.json("link")
        return cable["a_to_b"], cable["b_to_a"]

    def test_a_cable_begins_without_faults(self):
        forward, backward = self.faults()
        self.assertEqual(set(forward), FAULT_KEYS)
        self.assertEqual((forward, backward), (NO_FAULTS, NO_FAULTS))

    def test_every_fault_can_be_set_in_both_directions(self):
        self.expect_success(
            "link", "cable0", "--rate", "25Gbit", "--delay", "10us", "--jitter", "1.5us", "--loss", "1%",
            "--reorder", "0.5%", "--duplicate", "0.25%", "--corrupt", "0.001", "--ce", "2%", "--verify-icrc", "false",
        )
        expected = {
            "rate_bps": 25 * 10**9, "delay_ns": 10_000, "jitter_ns": 1_500, "loss": 0.01, "reorder": 0.005,
            "duplicate": 0.0025, "corrupt": 0.001, "ce": 0.02, "verify_icrc": False,
        }
        for faults in self.faults():
            self.assertEqual({key: round(value, 9) for key, value in faults.items()}, expected)

    def test_one_direction_leaves_the_other_alone_and_absent_options_keep_their_value(self):
        self.expect_success("link", "cable0", "--direction", "a-to-b", "--loss", "3%")
        self.expect_success("link", "cable0", "--direction", "b-to-a", "--delay", "1ms")
        self.expect_success("link", "cable0", "--direction", "a-to-b", "--delay", "2ms")
        self.assertEqual(
            self.faults(), ({**NO_FAULTS, "loss": 0.03, "delay_ns": 2_000_000}, {**NO_FAULTS, "delay_ns": 1_000_000})
        )

    def test_clear_removes_what_was_set_and_keeps_what_is_set_with_it(self):
        self.expect_success("link", "cable0", "--loss", "3%", "--verify-icrc", "off", "--rate", "1Gbit")
        self.expect_success("link", "cable0", "--clear", "--delay", "5us")
        self.assertEqual(self.faults(), ({**NO_FAULTS, "delay_ns": 5_000},) * 2)

    def test_the_change_is_shown(self):
        text = self.expect_success("link", "cable0", "--direction", "b-to-a", "--loss", "1%", "--delay", "10us")
        self.assertRegex(text, r"(?m)^  cable0 +p1 -> p0 +unlimited +10 us +0 +1 % +0 +0 +0 +0 +verified$")
        self.assertRegex(text, r"(?m)^  cable0 +p0 -> p1 +unlimited +0 +0 +0 ")

    def test_a_fault_acts_on_running_traffic(self):
        # ibv_rc_pingpong would not do: it ends without a handshake, and who loses the last acknowledgement fails.
        self.expect_success("link", "cable0", "--loss", "5%")
        with reserved_port() as port:
            words = ["-F", "-s", "4096", "-n", "1000", "-p", str(port)]
            server = self.start("run", "--", "ib_read_bw", "-d", "mlx5_2", *words)
            self.assertTrue(wait_until(lambda: launcher_kit.harness.is_listening(port), 10))
            client = self.rdmalab("run", "--", "ib_read_bw", "-d", "mlx5_3", *words, "127.0.0.1", timeout=60)
            self.assertEqual(client.returncode, 0, client.stdout + client.stderr)
            self.assertEqual(server.wait(20 * TIME_FACTOR), 0)
        lost = [way["lost"] for way in self.json("counters")["cables"]["cable0"].values()]
        self.assertGreater(min(lost), 0, lost)


class Pcap(RunningCard):
    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.folder, "frames.pcapng")

    def decode(self, path, *fields):
        words = [word for field in fields for word in ("-e", field)]
        done = self.command(["tshark", "-r", path, "-d", "udp.port==4791,infiniband", "-T", "fields", *words], timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line.split("\t") for line in done.stdout.splitlines()]

    def test_a_capture_until_ctrl_c(self):
        process = self.start("pcap", "--at", "p0", self.file)
        self.assertEqual(process.stderr.readline(), "capturing at p0 (Ctrl-C ends it)\n")
        self.traffic(50)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20 * TIME_FACTOR), 0)
        message = process.stderr.read()
        rows = self.decode(self.file, "ip.src", "_ws.malformed")
        self.assertEqual(message, f"{len(rows)} packets captured at p0\n")
        self.assertGreaterEqual(len(rows), 100)
        self.assertEqual({row[0] for row in rows}, {"10.0.0.1", "10.0.0.2"})
        self.assertEqual({row[1] for row in rows}, {""})

    def test_count_is_exact(self):
        process = self.start("pcap", "--at", "pf1sf0", "--count", "7", self.file)
        process.stderr.readline()
        self.traffic(50)
        self.assertEqual(process.wait(20 * TIME_FACTOR), 0)
        self.assertEqual(process.stderr.read(), "7 packets captured at pf1sf0\n")
        self.assertEqual(len(self.decode(self.file, "frame.number")), 7)

    def test_seconds_end_it(self):
        started = time.monotonic()
        done = self.rdmalab("pcap", "--at", "mlx5_2", "--seconds", "0.3", self.file)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.assertIn("0 packets captured at mlx5_2\n", done.stderr)
        self.assertGreaterEqual(time.monotonic() - started, 0.3)

    def test_standard_output_carries_the_same(self):
        with open(self.file, "wb") as sink:
            process = subprocess.Popen(
                [LAUNCHER, "pcap", "--at", "p1", "--count", "20", "-"],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            self.addCleanup(self.end, process)
            process.stderr.readline()
            self.traffic(50)
            sink.write(process.stdout.read())
        self.assertEqual(process.wait(20 * TIME_FACTOR), 0)
        self.assertEqual(len(self.decode(self.file, "frame.number")), 20)

    def test_a_capture_is_listed_while_it_runs(self):
        process = self.start("pcap", "--at", "p0", self.file)
        process.stderr.readline()
        (capture,) = self.json("status")["captures"]
        self.assertEqual((capture["at"], capture["file"]), ("p0", self.file))
        process.terminate()
        process.wait(10 * TIME_FACTOR)
        self.assertEqual(self.json("status")["captures"], [])

    def test_kill_9_ends_the_capture(self):
        process = self.start("pcap", "--at", "p0", self.file)
        process.stderr.readline()
        process.kill()
        process.wait()
        self.assertTrue(wait_until(lambda: not self.json("status")["captures"], 5))

    def test_a_full_disk_is_one_clear_error(self):
        with open("/dev/full", "wb") as full:
            process = subprocess.Popen(
                [LAUNCHER, "pcap", "--at", "p0", "-"],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True,
            )
            self.addCleanup(self.end, process)
            self.assertEqual(process.wait(20 * TIME_FACTOR), 1)
        self.assertIn("rdmalab pcap: cannot write the capture: No space left on device\n", process.stderr.read())

    def test_the_end_of_the_card_ends_it(self):
        process = self.start("pcap", "--at", "p0", self.file)
        process.stderr.readline()
        self.expect_success("down")
        self.assertEqual(process.wait(10 * TIME_FACTOR), 1)
        self.assertIn("rdmalab pcap: the card went away\n", process.stderr.read())


if __name__ == "__main__":
    main()
