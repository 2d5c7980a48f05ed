"""flow_steer and pcc: their lines, their ends, what they can be told, and what they refuse."""

import json
import os
import re
import signal
import subprocess
import time
import unittest
import urllib.request

import steering_kit
from harness import BUILD, SOURCE, TIME_FACTOR, costs, is_alive, main, reserved_port, wait_until
from steering_kit import INGRESS, IPS, PCC, SteeringCard, lines


class Ingress(unittest.TestCase):
    def test_its_lines_arrive_at_once_and_it_ends_in_order(self):
        with SteeringCard() as card:
            ingress = card.start_ingress("--path0-percent", 0.025, "--path1-percent", 0.05, "--interval", 0.2)
            self.assertEqual(
                ingress.stdout.splitlines()[:3],
                [
                    "Path0 CE sampling: intended all-traffic=0.025% selected-class=0.05%",
                    "Path1 CE sampling: intended all-traffic=0.05% selected-class=0.1%",
                    "steer started (role=ingress, path0=0.025% path1=0.05%)",
                ],
            )
            card.await_line(ingress, "ingress newly CE-marked: path0=0 (+0, 0/s) path1=0 (+0, 0/s)")
            card.await_line(ingress, "ingress throughput: path0=0.000 Gbps path1=0.000 Gbps total=0.000 Gbps")
            ingress.process.send_signal(signal.SIGINT)
            self.assertTrue(ingress.wait(10))
            self.assertEqual(ingress.returncode(), 0, ingress.report("flow_steer"))
            self.assertIn("summary: ingress path1: 0 packets", ingress.stdout)
            self.assertTrue(ingress.stdout.endswith("steer stopped: pipes removed\n"))

    def test_it_counts_and_marks_what_a_program_sends(self):
        with SteeringCard() as card:
            ingress = card.start_ingress("--path0-percent", 50, "--path1-percent", 0, "--interval", 0.2)
            card.start_traffic("mlx5_2", "mlx5_4")
            card.await_traffic("mlx5_2")
            card.await_traffic("mlx5_4")
            # Without a sender's program all comes by path 0, and every packet of its probe is marked.
            self.assertTrue(wait_until(lambda: self.marked(ingress)[0] > 1000, 20), ingress.report("flow_steer"))
            self.assertEqual(self.marked(ingress)[1], 0)
            card.tell(ingress, "path0-percent", "0")
            card.await_line(ingress, "Path0 CE sampling: intended all-traffic=0% selected-class=0%")
            time.sleep(0.5)
            before = self.marked(ingress)[0]
            card.await_traffic("mlx5_2")
            time.sleep(0.5)
            self.assertEqual(self.marked(ingress)[0], before)

    def marked(self, ingress):
        found = lines(ingress, "^ingress newly CE-marked: ")
        return [int(number) for number in re.findall(r"path\d=(\d+)", found[-1])] if found else [0, 0]

    def test_a_killed_one_takes_its_pipes_along_and_traffic_goes_on(self):
        with SteeringCard() as card:
            ingress = card.start_ingress("--path0-percent", 0.025, "--path1-percent", 0.05)
            _, clients = card.start_traffic("mlx5_2")
            card.await_traffic("mlx5_2")
            ingress.process.kill()
            ingress.wait(5)
            card.await_traffic("mlx5_2")
            again = card.start_ingress("--path0-percent", 0.025, "--path1-percent", 0.05)
            card.await_traffic("mlx5_2")
            self.assertTrue(again.running())
            self.assertTrue(clients[0].running(), clients[0].report("client"))

    def test_records_and_metrics(self):
        with SteeringCard() as card, reserved_port() as port:
            records = os.path.join(card.folder, "records")
            card.start_ingress("--json", records, "--metrics", f"127.0.0.1:{port}", "--interval", 0.2)
            self.assertTrue(wait_until(lambda: os.path.exists(records) and os.path.getsize(records) > 0, 10))
            with open(records) as file:
                record = json.loads(file.readline())
            self.assertEqual(record["type"], "ingress")
            self.assertEqual([path["percent"] for path in record["paths"]], [100, 100])
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                text = answer.read().decode()
            self.assertRegex(text, r'(?m)^rdmalab_ingress_packets_total\{path="1"\} 0$')

    def test_records_on_standard_output_are_all_there_is(self):
        with SteeringCard() as card:
            ingress = card.steer("flow_steer", *INGRESS, "--json", "-", "--interval", 0.1)
            self.assertTrue(wait_until(lambda: ingress.stdout.count("\n") >= 3, 10))
            for line in ingress.stdout.splitlines():
                self.assertEqual(json.loads(line)["type"], "ingress")

    def test_what_it_can_be_told(self):
        with SteeringCard() as card:
            ingress = card.start_ingress()
            self.assertIn("pathK-percent", card.tell(ingress, "help"))
            self.assertEqual(json.loads(card.tell(ingress, "status"))["ingress"]["type"], "ingress")
            for words, why in {
                ("path0-percent", "101"): "101 is not within 0 and 100 percent",
                ("path0-percent",): "path0-percent: the percentage is missing",
                ("path5-percent", "1"): "there is no path 5; the last is 1",
                ("path0-percent", "much"): "'much' is no percentage",
                ("share", "48"): "this program spreads no packets over paths",
                ("dance",): "'dance' is no command; 'help' lists them",
            }.items():
                done = card.finish("flow_steer", "--tell", ingress.pid, *words)
                self.assertNotEqual(done.returncode, 0)
                self.assertEqual(done.stderr, f"flow_steer: {why}\n")
            card.tell(ingress, "stop")
            self.assertTrue(ingress.wait(10))
            self.assertEqual(ingress.returncode(), 0)
            gone = card.finish("flow_steer", "--tell", ingress.pid, "help")
            self.assertEqual(gone.returncode, 1)
            self.assertIn(f"process {ingress.pid} is no running flow_steer or pcc", gone.stderr)

    def test_the_card_goes_first(self):
        with SteeringCard() as card:
            ingress = card.start_ingress()
            card.rdmalab("down", "--name", card.name)
            self.assertTrue(ingress.wait(10), "it noticed")
            self.assertEqual(ingress.returncode(), 1, ingress.report("flow_steer"))


class Pcc(unittest.TestCase):
    def test_its_start_and_end(self):
        with SteeringCard() as card:
            pcc = card.start_pcc()
            self.assertEqual(
                pcc.stdout.splitlines()[:4],
                [
                    "EGRESS_BUCKET_DISPATCH ready: meta.u32[4] bucket -> changeable path forward",
                    "Classify random-bucket pipe ready: HASH/random writes bucket to meta.u32[4]",
                    "steer started (role=egress, path0=100% path1=100%)",
                    "Info: Embedded DOCA Flow egress steering active",
                ],
            )
            card.await_line(pcc, "egress assigned counters: path0=0 path1=0 ratio=32:32 buckets")
            pcc.process.send_signal(signal.SIGINT)
            self.assertTrue(pcc.wait(10))
            self.assertEqual(pcc.returncode(), 0, pcc.report("pcc"))
            self.assertIn("Info: PCC host status Deactivated", pcc.stdout)
            self.assertIn("summary: egress path0: 0 packets, share 32/64", pcc.stdout)

    def test_release_2_9_has_its_own_classifier(self):
        with SteeringCard() as card:
            pcc = card.start_pcc("--compat", "2.9")
            self.assertEqual(
                pcc.stdout.splitlines()[1], "Legacy random HASH ready: 6 bits, 64 immutable metadata buckets"
            )

    def test_connections_are_mapped_and_shares_fixed_by_hand_hold(self):
        with SteeringCard() as card:
            card.start_ingress("--path0-percent", 0.025, "--path1-percent", 0.05)
            pcc = card.start_pcc("--interval", 0.5)
            card.start_traffic("mlx5_2", "mlx5_4")
            for ip, path in (("0x0a000001", 0), ("0x0a00000b", 1)):
                pattern = rf"^RDMA-CM REQ grouping: sender QPN 0x[0-9a-f]{{6}} receiver IP={ip} -> path{path}$"
                self.assertTrue(wait_until(lambda: lines(pcc, pattern), 20), pcc.report("pcc"))
            self.assertTrue(wait_until(lambda: len(lines(pcc, "^RDMA-CM mapping: ")) >= 2, 10), pcc.report("pcc"))
            both_counted = r"path-share diagnostic: path0 total=[1-9].*path1 total=[1-9].*pending-map=0;"
            self.assertTrue(wait_until(lambda: lines(pcc, both_counted), 20))
            card.tell(pcc, "share", 48)
            # The next lines count with the new split; packets follow it.
            seen = len(lines(pcc, "^egress assigned"))
            self.assertTrue(wait_until(lambda: len(lines(pcc, "^egress assigned")) >= seen + 6, 20))
            begin, end = lines(pcc, "^egress assigned")[-4], lines(pcc, "^egress assigned")[-1]
            self.assertIn("ratio=48:16 buckets", end)
            counts = [[int(n) for n in re.findall(r"path\d=(\d+)", line)] for line in (begin, end)]
            path0, path1 = (counts[1][i] - counts[0][i] for i in (0, 1))
            self.assertAlmostEqual(path0 / (path0 + path1), 0.75, delta=0.03)

    def test_the_path_can_be_forced(self):
        with SteeringCard() as card:
            ingress = card.start_ingress("--path0-percent", 0, "--path1-percent", 0, "--interval", 0.2)
            pcc = card.start_pcc("--force-path", 1)
            self.assertFalse(lines(pcc, "Classify random-bucket"))
            card.start_traffic("mlx5_2")
            card.await_traffic("mlx5_2")
            pattern = r"^ingress throughput: path0=0\.000 Gbps path1=(?!0\.000)"
            self.assertTrue(wait_until(lambda: lines(ingress, pattern), 20), ingress.report("flow_steer"))

    def test_paths_may_be_cables_of_their_own(self):
        with SteeringCard(topology="two-cables") as card:
            ports = ["--path0-port", "p0", "--path1-port", "p2"]
            ingress = card.start_ingress("--path0-percent", 0, "--path1-percent", 0, "--interval", 0.2, *ports)
            card.start_pcc("--path0-port", "p1", "--path1-port", "p3")
            card.start_traffic("mlx5_2")
            card.await_traffic("mlx5_2")
            pattern = r"^ingress throughput: path0=(?!0\.000)[\d.]+ Gbps path1=(?!0\.000)"
            self.assertTrue(wait_until(lambda: lines(ingress, pattern), 20), ingress.report("flow_steer"))
            counted = card.counters()["ports"]
            sent = [counted[port]["tx_frames"] for port in ("p1", "p3")]
            self.assertAlmostEqual(sent[0] / sum(sent), 0.5, delta=0.1)

    def test_it_ends_after_its_time(self):
        with SteeringCard() as card:
            pcc = card.start_pcc("-w", 1)
            self.assertTrue(pcc.wait(20))
            self.assertEqual(pcc.returncode(), 0)

    def test_a_second_one_is_on_standby_and_takes_over(self):
        with SteeringCard() as card:
            first = card.start_pcc()
            second = card.steer("pcc", "--device", "mlx5_1", ready="Info: PCC host status Standby")
            first.process.kill()
            card.await_line(second, "Info: PCC host status Active")

    def test_a_signal_shows_its_insides(self):
        with SteeringCard() as card:
            pcc = card.start_pcc()
            pcc.process.send_signal(signal.SIGUSR1)
            card.await_line(pcc, "Info: PCC debug enabled")
            pcc.process.send_signal(signal.SIGUSR1)
            self.assertTrue(wait_until(lambda: re.search(r"(?m)^.*param", pcc.stdout), 10), pcc.report("pcc"))
            self.assertTrue(pcc.running())

    def test_metrics(self):
        with SteeringCard() as card, reserved_port() as port:
            card.start_pcc("--metrics", f"127.0.0.1:{port}", "--interval", 0.2, "--paths", 2, "--buckets", 128)
            wanted = r'(?m)^rdmalab_egress_share_buckets\{path="1"\} 64$'

            def text():
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                    return answer.read().decode()

            self.assertTrue(wait_until(lambda: re.search(wanted, text()), 10), text())
            self.assertRegex(text(), r"(?m)^rdmalab_pcc_active 1$")

    def test_parameters_can_be_listed_and_set(self):
        with SteeringCard() as card:
            pcc = card.start_pcc("--param", "1=40000")
            self.assertRegex(card.tell(pcc, "params"), r"param 1 = 40000 ")
            card.tell(pcc, "param", "1", "50000")
            self.assertRegex(card.tell(pcc, "params"), r"param 1 = 50000 ")
            self.assertEqual(json.loads(card.tell(pcc, "statistics"))["bad_rates"], 0)
            done = card.finish("pcc", "--tell", pcc.pid, "param", "99", "1")
            self.assertEqual(done.stderr, "pcc: the algorithm has no parameter 99\n")


class Refusals(unittest.TestCase):
    """One clear error each; the traffic of others is not touched."""

    def refuse(self, card, name, words, status, why):
        done = card.finish(name, *words)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertRegex(done.stderr, why)
        self.assertNotIn("terminate", done.stderr)

    def test_what_no_card_is_needed_for(self):
        card = SteeringCard()
        self.addCleanup(card.dismiss)
        cases = [
            (["--role", "ingress", *IPS], "--path0-rep is missing"),
            ([*INGRESS, "--path0-percent", "100.1"], "--path0-percent: 100.1 is not within 0 and 100 percent"),
            ([*INGRESS, "--buckets", "63"], "--buckets: 63 is no power of two up to 1024"),
            ([*INGRESS, "--nonsense"], "--nonsense"),
        ]
        for words, why in cases:
            with self.subTest(words):
                self.refuse(card, "flow_steer", words, 2, rf"^flow_steer: .*{re.escape(why)}")
        self.refuse(card, "pcc", IPS, 2, "^pcc: --device is missing")
        self.refuse(card, "flow_steer", INGRESS, 1, "^flow_steer: ")  # no card

    def test_what_the_card_does_not_have(self):
        with SteeringCard() as card:
            rep = "pci/0000:03:00.0,pf0sf"
            self.refuse(
                card, "flow_steer", ["-r", rep + "0", "-R", rep + "9", *IPS, "--role", "ingress"], 2, "'pf0sf9'.*pf0sf4"
            )
            self.refuse(card, "flow_steer", ["-r", "pci/0000:04:00.0,pf0sf0", *IPS, "--role", "egress"], 1, "04:00.0")
            self.refuse(card, "pcc", ["--device", "mlx5_9"], 1, "mlx5_9")
            self.refuse(card, "pcc", ["--device", "mlx5_1", "--algo", "/nowhere.so"], 1, "/nowhere.so")
            self.refuse(card, "pcc", [*PCC, "--path0-port", "p1", "--path1-port", "p7"], 2, "'p7'")

    def test_an_address_that_is_not_the_representors(self):
        with SteeringCard() as card:
            words = [*INGRESS[:4], "--path0-ip", "10.0.0.77", "--path1-ip", "10.0.0.11", "--role", "ingress"]
            self.refuse(card, "flow_steer", words, 2, r"10\.0\.0\.77 is not an address of pf0sf0, which has 10\.0\.0\.1")

    def test_a_switch_that_is_owned(self):
        with SteeringCard() as card:
            ingress = card.start_ingress()
            card.start_traffic("mlx5_2")
            card.await_traffic("mlx5_2")
            self.refuse(card, "flow_steer", INGRESS, 1, rf"mlx5_0.*{ingress.pid}")
            card.await_traffic("mlx5_2")

    def test_metrics_at_an_address_that_is_taken(self):
        with SteeringCard() as card, reserved_port() as port:
            card.start_ingress("--metrics", f"127.0.0.1:{port}")
            words = [*INGRESS, "--metrics", f"127.0.0.1:{port}"]
            self.refuse(card, "flow_steer", words, 1, rf"--metrics: cannot listen at '127\.0\.0\.1:{port}'")


class Algorithms(unittest.TestCase):
    """Those of src/pcc/host/test_modules; what they do, they do at the first CNP."""

    MODULES = os.path.join(BUILD, "lib", "pcc_test")

    def test_what_is_no_algorithm_is_refused(self):
        with SteeringCard() as card:
            for name, why in {
                "other_layout": r"was built for another layout: expected version \d+ .*, found version 99",
                "unmarked": "is no congestion control algorithm",
                "incomplete": "expected doca_pcc_dev_user_init",
                "crash_in_init": "has crashed",
            }.items():
                dump, module = os.path.join(card.folder, "dump"), os.path.join(self.MODULES, name + ".so")
                done = card.finish("pcc", "--device", "mlx5_1", "--algo", module, "-f", dump)
                self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
                self.assertRegex(done.stderr, rf"^pcc: .*{why}")
                self.assertEqual(done.stderr.count("\n"), 1, "one line")

    @costs(timeout=240)
    def test_one_that_misbehaves_ends_with_one_clear_error_and_traffic_goes_on(self):
        with SteeringCard() as card:
            card.start_traffic("mlx5_2")
            card.await_traffic("mlx5_2")
            card.link("--ce", "2%")
            for name, why in {
                "crash": "has crashed: Segmentation fault",
                "loop": "did not return",
                "rate_zero": "has answered a rate of 0",
                "rate_above": "has answered a rate of 1048577",
            }.items():
                dump = os.path.join(card.folder, name + ".dump")
                words = ["--device", "mlx5_1", "--algo", os.path.join(self.MODULES, name + ".so"), "-f", dump]
                pcc = card.steer("pcc", *words)
                self.assertTrue(pcc.wait(30), pcc.report("pcc"))
                self.assertEqual(pcc.returncode(), 1, pcc.report("pcc"))
                self.assertIn("Info: PCC host status Error\n", pcc.stdout)
                self.assertRegex(pcc.stderr, rf"^pcc: .*{why}.*\n$")
                card.await_traffic("mlx5_2")


class CommandLines(unittest.TestCase):
    def run_program(self, name, *words):
        done = subprocess.run([steering_kit.program(name), *words], capture_output=True, text=True, timeout=20)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_every_option_is_in_the_manual(self):
        for name in ("flow_steer", "pcc"):
            with open(os.path.join(SOURCE, "man", name + ".1")) as file:
                page = file.read().replace("Fl -", "--").replace(", -", " --")
            for option in set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", self.run_program(name, "--help").split("Example:")[0])):
                self.assertTrue(option in page or option == "--path2-ip", f"{name} {option}")

    def test_they_answer_to_their_other_names(self):
        for name in ("flow_steer", "pcc"):
            self.assertRegex(self.run_program("doca_" + name, "--version"), rf"^{name} \d+\.\d+\.\d+\n$")

    def test_completion(self):
        for name in ("flow_steer", "pcc"):
            for shell in ("bash", "zsh", "fish"):
                self.assertIn("path0-ip", self.run_program(name, "--completion", shell))
            script = self.run_program(name, "--completion", "bash")
            done = subprocess.run(
                [
                    "bash",
                    "-euc",
                    f"{script}\nCOMP_WORDS=({name} --path0-); COMP_CWORD=1; _{name}\n"
                    'printf "%s\\n" "${COMPREPLY[@]}"',
                ],
                capture_output=True,
                text=True,
            )
            self.assertIn("--path0-ip", done.stdout.split(), done.stderr)


class Examples(unittest.TestCase):
    @costs(processors=2, timeout=240)
    def test_path_steering_by_hand(self):
        card = SteeringCard()  # for its folder and its reaper; the script starts a card of its own
        self.addCleanup(card.dismiss)
        done = subprocess.run(
            [os.path.join(SOURCE, "examples", "path-steering.sh"), card.folder],
            env={
                **os.environ,
                **card.environment,
                "PATH": os.path.join(BUILD, "bin") + ":" + os.environ["PATH"],
                "SECONDS_OF_TRAFFIC": "8",
            },
            capture_output=True,
            text=True,
            timeout=180 * TIME_FACTOR,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # ib_write_bw -R makes a connection to exchange parameters before the one that it measures.
        paths = set(re.findall(r"(?m)^RDMA-CM REQ grouping: .* -> path([01])$", done.stdout))
        self.assertEqual(paths, {"0", "1"}, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^egress assigned counters: path0=\d{3,} path1=\d{3,} ratio=\d+:\d+ buckets$")
        self.assertEqual([pid for pid in card.processes() if is_alive(pid)], [])


if __name__ == "__main__":
    main()
