"""RDMA between network namespaces: who sees which device, unmodified programs, RDMA CM by address."""

import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import LAUNCHER, costs, main, wait_until
from netns_kit import PLACES, NetnsCard, needs_namespaces, the_names_of_the_default_topology

SERVER, CLIENT, NEIGHBOUR = "mlx5_2", "mlx5_3", "mlx5_4"
SERVER_IP, CLIENT_IP, NEIGHBOUR_IP = (PLACES[device][2] for device in (SERVER, CLIENT, NEIGHBOUR))

# The commands of the path-steering walk-through, as they stand there (run as root: without sudo).
WALK_THROUGH = """
ip netns exec ns0 ib_write_bw \\
  -d mlx5_2 -R --report_gbits --run_infinitely &
ip netns exec ns0_1 ib_write_bw \\
  -d mlx5_4 -R --report_gbits --run_infinitely &
sleep 2
ip netns exec ns1 ib_write_bw \\
  -d mlx5_3 -R -F 10.0.0.1 --report_gbits --run_infinitely &
ip netns exec ns1 ib_write_bw \\
  -d mlx5_3 -R -F 10.0.0.11 --report_gbits --run_infinitely &
wait
"""


def devices_in(text):
    return re.findall(r"^ +(\w+)\s+[0-9a-f]{16}$", text, re.M)


def p1_bytes(card):
    return card.counters()["ports"]["p1"]["tx_bytes"]


@needs_namespaces
class Visibility(unittest.TestCase):
    def test_of_devices_is_that_of_the_namespace(self):
        with NetnsCard() as card:
            for device in PLACES:
                self.assertEqual(devices_in(card.run_at(device, "ibv_devices").stdout), [device])
            self.assertEqual(devices_in(card.run("ibv_devices").stdout), ["mlx5_0", "mlx5_1"])
            self.assertEqual(devices_in(card.run("unshare", "-n", "ibv_devices").stdout), [])

    def test_of_a_device_elsewhere_is_none(self):
        with NetnsCard() as card:
            done = card.run_at(CLIENT, "ibv_devinfo", "-d", SERVER, expect=None)
            self.assertNotEqual(done.returncode(), 0)
            self.assertIn("wasn't found", done.output)

    def test_without_netns_is_everything_from_everywhere(self):
        with NetnsCard() as card:
            card.options = []
            card.rdmalab("down", "--name", card.name)
            card.up()
            self.assertEqual(len(devices_in(card.run("unshare", "-n", "ibv_devices").stdout)), 5)

    def test_in_sysfs_is_that_of_a_launcher_in_the_namespace(self):
        with NetnsCard() as card:
            script = "ls /sys/class/infiniband; ls /sys/class/infiniband/*/device/net; stat -c %F /dev/infiniband/uverbs3"
            words = [LAUNCHER, "run", "--name", card.name, "--", "sh", "-c", script]
            done = card.run_at(CLIENT, *words)
            self.assertEqual(done.stdout.splitlines(), [CLIENT, PLACES[CLIENT][1], "character special file"])

    def test_of_character_devices_does_not_change_with_the_namespace(self):
        with NetnsCard() as card:
            done = card.run_at(CLIENT, "sh", "-c", "ls /dev/infiniband")
            self.assertEqual(done.stdout.split(), [f"uverbs{i}" for i in range(5)])


@needs_namespaces
class FromAnyShell(unittest.TestCase):
    """Programs that ip-netns(8) starts need no launcher: not its environment, not the folder of the card."""

    BARE = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

    def test_programs_find_the_devices_of_their_namespace(self):
        with NetnsCard(mark="a") as one, NetnsCard(mark="b"):
            for device in PLACES:
                self.assertEqual(devices_in(one.at(device, "ibv_devices", env=self.BARE).stdout), [device])

    def test_programs_connect(self):
        with NetnsCard() as card:
            words = ["-v", "-V", "-C", "50", "-a", SERVER_IP]
            server = subprocess.Popen(card.inside(SERVER, "rping", "-s", *words), env=self.BARE, stdout=subprocess.PIPE)
            try:
                wait_until(lambda: card.objects()["attached"] > 0, 5)
                done = card.at(CLIENT, "rping", "-c", *words, env=self.BARE)
                self.assertEqual(done.stdout.count("ping data:"), 50)
                self.assertEqual(server.wait(20), 0)
            finally:
                server.kill()
                server.communicate()

    def test_files_of_the_user_stay_and_ours_go(self):
        with NetnsCard() as card:
            folder = f"/etc/netns/{card.netns('ns0')}"
            self.assertEqual(os.listdir(folder), ["ld.so.cache"])
            card.rdmalab("down", "--name", card.name)
            self.assertFalse(os.path.exists(folder))
            os.makedirs(folder)
            self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
            for file in ("ld.so.cache", "hosts"):
                shutil.copy(f"/etc/{file}", folder)
            card.up()
            self.assertEqual(devices_in(card.at(CLIENT, "ibv_devices", env=self.BARE).stdout), [CLIENT])
            self.assertEqual(devices_in(card.at(SERVER, "ibv_devices", env=self.BARE, check=False).stdout), [])
            self.assertEqual(devices_in(card.run_at(SERVER, "ibv_devices").stdout), [SERVER])
            card.rdmalab("down", "--name", card.name)
            self.assertEqual(sorted(os.listdir(folder)), ["hosts", "ld.so.cache"])
            shutil.rmtree(folder)


@needs_namespaces
class Status(unittest.TestCase):
    def test_shows_namespaces_and_interfaces(self):
        with NetnsCard() as card:
            functions = {function["device"]: function for function in card.status()["functions"]}
            for device, (short, interface, _, _) in PLACES.items():
                self.assertEqual(functions[device]["netns"], card.netns(short))
                self.assertEqual(functions[device]["netdev"], interface)
            self.assertEqual((functions["mlx5_0"]["netns"], functions["mlx5_0"]["netdev"]), ("", ""))
            self.assertIn(PLACES[CLIENT][1], card.rdmalab("status", "--name", card.name))

    def test_shows_no_interface_without_netns(self):
        with NetnsCard() as card:
            card.options = []
            card.rdmalab("down", "--name", card.name)
            card.up()
            self.assertEqual({function["netdev"] for function in card.status()["functions"]}, {""})


@needs_namespaces
class WalkThrough(unittest.TestCase):
    @costs(timeout=120, processors=2)
    def test_commands_run_verbatim_in_a_shell_of_the_launcher(self):
        with the_names_of_the_default_topology(), NetnsCard(own_names=False) as card:
            shell = card.start("bash", "-c", WALK_THROUGH)
            rows = r"^ 65536 +\d+ +[\d.]+ +([\d.]+) "
            # A client shows its figures every 5 s.
            wait_until(lambda: shell.stdout.count("BW average") >= 2 and len(re.findall(rows, shell.stdout, re.M)) >= 4, 40)
            self.assertIn("10:00:00:01", shell.stdout)
            self.assertIn("10:00:00:11", shell.stdout)
            figures = [float(figure) for figure in re.findall(rows, shell.stdout, re.M)]
            self.assertGreaterEqual(len(figures), 4, shell.report("shell"))
            self.assertTrue(all(figure > 0 for figure in figures), figures)
            attached = {program["device"] for program in card.status()["attached"]}
            self.assertEqual(attached, {SERVER, CLIENT, NEIGHBOUR})
            self.assertTrue(shell.running())
            self.assertNotIn("error", shell.output.lower())
            shell.kill_group(signal.SIGKILL)
            card.wait_idle()


@needs_namespaces
class RdmaCm(unittest.TestCase):
    COUNT = 100

    def rping(self, card, server, client, address, source=None, count=COUNT):
        words = ["-C", count, "-v", "-V", "-a", address]
        serving = card.start_at(server, "rping", "-s", *words)
        self.wait_for_listener(card, serving)
        source = ["-I", source] if source else []
        calling = card.run_at(client, "rping", "-c", *words, *source)
        self.assertTrue(serving.wait(20), serving.report("server"))
        self.assertEqual(serving.returncode(), 0, serving.report("server"))
        self.assertEqual(calling.stdout.count("ping data:"), count, calling.report("client"))
        card.wait_idle()

    def wait_for_listener(self, card, serving):
        """A server that listens has opened its device and sleeps in a read of its event channel."""

        def waits():
            pid = serving.find("rping")
            if pid is None:
                return not serving.running()
            calls = set()
            for task in os.listdir(f"/proc/{pid}/task"):
                try:
                    with open(f"/proc/{pid}/task/{task}/syscall") as file:
                        calls.add(file.read().split()[0])
                except OSError:
                    return False
            return len(calls) > 0 and "running" not in calls and "0" in calls

        self.assertTrue(wait_until(lambda: waits() and waits(), 20) and serving.running(), serving.report("server"))

    def test_connects_namespaces_over_the_cable(self):
        with NetnsCard() as card:
            before = p1_bytes(card)
            self.rping(card, SERVER, CLIENT, SERVER_IP, count=1000)
            self.assertGreater(p1_bytes(card), before)
            counted = card.counters()["functions"][SERVER]
            self.assertGreater(counted["rx_frames"], 1000)
            self.assertLess(counted["netdev_rx_frames"], 200)  # the kernel's own: no RoCE among them

    def test_connects_namespaces_of_one_e_switch(self):
        with NetnsCard() as card:
            self.rping(card, SERVER, NEIGHBOUR, SERVER_IP)

    def test_connects_by_addresses_of_this_host(self):
        with NetnsCard() as card:
            for address in ("127.0.0.1", "::1", CLIENT_IP, PLACES[CLIENT][3]):
                self.rping(card, CLIENT, CLIENT, address)
            self.assertEqual(card.counters()["functions"][SERVER]["rx_frames"], 0)

    def test_connects_by_link_local_addresses(self):
        with NetnsCard() as card:
            scope = f"%{PLACES[SERVER][1]}"
            words = ["-C", 10, "-v", "-V"]
            serving = card.start_at(SERVER, "rping", "-s", *words, "-a", PLACES[SERVER][3] + scope)
            self.wait_for_listener(card, serving)
            card.run_at(CLIENT, "rping", "-c", *words, "-a", PLACES[SERVER][3] + f"%{PLACES[CLIENT][1]}")
            self.assertTrue(serving.wait(20), serving.report("server"))

    def test_programs_of_two_namespaces_listen_on_one_port(self):
        with NetnsCard() as card:
            servers = [card.start_at(device, "rping", "-s", "-a", "0.0.0.0", "-C", 5) for device in (SERVER, NEIGHBOUR)]
            for server in servers:
                self.wait_for_listener(card, server)
            for address in (NEIGHBOUR_IP, SERVER_IP):
                card.run_at(CLIENT, "rping", "-c", "-a", address, "-C", 5)
            for server in servers:
                self.assertTrue(server.wait(20), server.report("server"))

    def test_an_address_of_another_namespace_is_explained(self):
        with NetnsCard() as card:
            server = card.run_at(SERVER, "rping", "-s", "-a", CLIENT_IP, expect=None)
            self.assertNotEqual(server.returncode(), 0)
            expected = f"{CLIENT_IP} belongs to {CLIENT}, which this process does not see; it sees {SERVER} ({SERVER_IP})"
            self.assertIn(expected, server.stderr)

    def test_an_address_of_nobody_is_explained(self):
        with NetnsCard() as card:
            client = card.run_at(CLIENT, "rping", "-c", "-a", "10.0.0.99", "-C", 1, expect=None)
            self.assertNotEqual(client.returncode(), 0)
            expected = f"10.0.0.99 belongs to no device of card {card.name}; this process sees {CLIENT} ({CLIENT_IP})"
            self.assertIn(expected, client.stderr)

    def test_perftest_exchanges_its_data_by_tcp_through_the_card(self):
        with NetnsCard() as card:
            server = card.start_at(SERVER, "ib_send_bw", "-d", SERVER, "-n", 500, "-p", 18515)
            words = card.inside(SERVER, "ss", "-Hltn", "sport = :18515")
            listening = lambda: subprocess.run(words, capture_output=True).stdout  # noqa: E731
            self.assertTrue(wait_until(listening, 20), server.report("server"))
            client = card.run_at(CLIENT, "ib_send_bw", "-d", CLIENT, "-n", 500, "-p", 18515, SERVER_IP)
            self.assertTrue(server.wait(20), server.report("server"))
            self.assertEqual((server.returncode(), client.returncode()), (0, 0))
            self.assertGreater(card.counters()["functions"][SERVER]["netdev_rx_frames"], 5)


if __name__ == "__main__":
    main()
