"""Unmodified programs between two cards, over their uplinks."""

import os
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import BUILD, LAUNCHER, costs, main
from lab_kit import TestLab, needs_lab

MPI = ["--allow-run-as-root", "--bind-to", "none", "--mca", "btl_tcp_if_include", "10.88.0.0/24"]
MPI += ["--mca", "oob_tcp_if_include", "10.88.0.0/24", "--mca", "mpi_yield_when_idle", "1"]
CONTROL = ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"]


@needs_lab
class Pairs(unittest.TestCase):
    def healthy(self, lab):
        for host in ("node01", "node02"):
            counters = lab.counters(host)
            port, function = counters["ports"]["p0"], counters["functions"]["mlx5_0"]
            self.assertEqual((port["uplink_malformed"], function["rx_icrc_errors"]), (0, 0))
            self.assertEqual(port["uplink_overruns"], 0)

    @costs(timeout=180, processors=2)
    def test_of_pingpongs(self):
        with TestLab(2) as lab:
            for kind in ("rc", "uc", "ud", "srq"):
                for gid in (0, 1):
                    words = [f"ibv_{kind}_pingpong", "-g", str(gid), "-n", "200"]
                    _, client = lab.pair(words, [*words, "node01"])
                    self.assertIn("200 iters", client.stdout)
            self.healthy(lab)

    @costs(timeout=240, processors=2)
    def test_of_perftest(self):
        with TestLab(2) as lab:
            for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw", "ib_send_lat", "ib_read_lat"):
                for connect in ([], ["-R"]):
                    words = [program, "-F", "-n", "200", *connect]
                    _, client = lab.pair(words, [*words, "node01"])
                    self.assertRegex(client.stdout, r"(?m)^ \d+ +200 ")
            words = ["ib_send_bw", "-F", "-c", "UD", "-n", "200"]
            lab.pair(words, [*words, "node01"])
            self.healthy(lab)

    @costs(timeout=120, processors=2)
    def test_by_rdma_cm(self):
        with TestLab(2) as lab:
            _, client = lab.pair(["rping", "-s", "-V", "-C", "50"], ["rping", "-c", "-v", "-V", "-C", "50", "-a", "10.88.0.1"])
            self.assertEqual(client.stdout.count("ping data:"), 50)
            lab.pair(["udaddy", "-c", "4"], ["udaddy", "-c", "4", "-s", "10.88.0.1"])
            self.healthy(lab)

    @costs(timeout=120, processors=2)
    def test_of_a_multicast_group(self):
        with TestLab(2) as lab:
            receiver = lab.start("node01", "mckey", "-m", "239.1.1.1", "-b", "10.88.0.1")
            sender = None
            for _ in range(3):  # what is sent before the receiver has joined is lost
                sender = lab.start("node02", "mckey", "-m", "239.1.1.1", "-b", "10.88.0.2", "-s")
                self.assertTrue(sender.wait(20), sender.report("sender"))
                if receiver.wait(5):
                    break
            self.assertEqual(receiver.returncode(), 0, receiver.report("receiver") + sender.report("sender"))

    @costs(timeout=120, processors=2)
    @unittest.skipUnless(shutil.which("ucx_perftest"), "UCX is not installed")
    def test_of_ucx(self):
        with TestLab(2) as lab:
            words = ["env", "UCX_NET_DEVICES=mlx5_0:1", "UCX_TLS=rc,self", "ucx_perftest", "-n", "1000", "-w", "10"]
            _, client = lab.pair(words, [*words, "-t", "tag_bw", "-s", "65536", "node01"])
            self.assertIn("Final:", client.stdout)
            self.healthy(lab)

    @costs(timeout=120, processors=2)
    def test_of_our_own_benchmark(self):
        program = os.path.join(BUILD, "bin", "rdma_perftest")
        if not os.path.exists(program):
            self.skipTest("rdma_perftest is not built")
        with TestLab(2) as lab:
            done = lab.run("node02", program, "-n", "node01", "-D", "1", timeout=60)
            self.assertIn("node01", done.stdout + done.stderr)

    @costs(timeout=120, processors=2)
    def test_over_ipv6_whose_neighbours_the_kernel_finds(self):
        run = ["env", f"LD_LIBRARY_PATH={BUILD}/lib/rdma"]
        with TestLab(2, "--no-cards", "--no-ssh") as lab:
            for number in (1, 2):
                address = f"ip address add fd00:88::{number}/64 dev eth0 nodad"
                lab.run(f"node0{number}", "sh", "-c", f"{address} && {LAUNCHER} up --uplink eth0")
            words = [*run, "ibv_rc_pingpong", "-g", "2", "-n", "200"]
            _, client = lab.pair(words, [*words, "node01"])
            self.assertIn("GID fd00:88::1", client.stdout)
            words = [*run, "rping", "-C", "5", "-a", "fd00:88::1"]
            lab.pair([*words, "-s"], [*words, "-c"])

    def test_with_nobody_end_when_the_kernel_gives_up(self):
        with TestLab(2) as lab:
            asking = lab.start("node02", "rping", "-c", "-a", "10.88.0.77", "-C", "1")
            words = ["ibv_rc_pingpong", "-g", "1", "-n", "200"]
            lab.pair(words, [*words, "node01"])  # others are served meanwhile
            self.assertTrue(asking.wait(20))
            self.assertIn("rdmalab: 10.88.0.77 does not answer on eth0", asking.stderr)
            self.assertIn("RDMA_CM_EVENT_ADDR_ERROR, error -113", asking.output)

    @costs(timeout=180, processors=2)
    def test_over_a_wire_that_loses_and_reorders(self):
        with TestLab(2) as lab:
            for host in ("node01", "node02"):
                lab.run(host, LAUNCHER, "link", "eth0", "--loss", "1%", "--reorder", "1%", "--delay", "20us")
            words = ["ib_write_bw", "-F", "-n", "300", "-s", "30000"]
            lab.pair(words, [*words, "node01"])
            words = ["rping", "-V", "-C", "30", "-S", "10000"]
            lab.pair([*words, "-s"], [*words, "-c", "-a", "10.88.0.1"])
            sender = lab.counters("node02")
            self.assertGreater(sender["cables"]["eth0"]["a_to_b"]["lost"], 10)
            self.assertGreater(sender["functions"]["mlx5_0"]["retransmitted_frames"], 10)

    def test_that_do_not_find_each_other_say_so(self):
        with TestLab(2) as lab:
            lab.rdmalab("crash", "node01")
            done = lab.run("node02", "rping", "-c", "-a", "10.88.0.1", "-C", "1", check=False, timeout=30)
            # The kernel may know the neighbour still, from before it died.
            self.assertRegex(done.stdout + done.stderr, "RDMA_CM_EVENT_(ADDR_ERROR|UNREACHABLE)")
            done = lab.run("node02", "rping", "-c", "-a", "192.0.2.1", "-C", "1", check=False, timeout=30)
            self.assertIn("RDMA_CM_EVENT_ADDR_ERROR", done.stdout + done.stderr)


@needs_lab
@unittest.skipUnless(shutil.which("mpirun"), "Open MPI is not installed")
class Mpi(unittest.TestCase):
    @costs(timeout=120, processors=2)
    def test_starts_everywhere_by_ssh(self):
        with TestLab(3) as lab:
            done = lab.run("node03", "mpirun", *MPI, *CONTROL, "-H", "node01,node02", "-np", "2", "hostname")
            self.assertEqual(sorted(done.stdout.split()), ["node01", "node02"])

    @costs(timeout=120, processors=2)
    def test_starts_everywhere_by_the_agent(self):
        with TestLab(2, "--join") as lab:
            agent = ["--mca", "plm_rsh_agent", f"{LAUNCHER} lab agent", "--prefix", "/usr"]
            words = ["mpirun", *MPI, *CONTROL, *agent, "-H", "node01,node02", "-np", "2", "hostname"]
            done = subprocess.run(words, env={**os.environ, **lab.environment}, capture_output=True, text=True, timeout=60)
            self.assertEqual(sorted(done.stdout.split()), ["node01", "node02"], done.stderr)

    @costs(timeout=180, processors=2)
    def test_passes_messages_by_the_devices(self):
        program = os.path.join(BUILD, "bin", "tests", "mpi_ring")
        if not os.path.exists(program):
            self.skipTest("mpi_ring is not built")
        with TestLab(2) as lab:
            ucx = ["--mca", "pml", "ucx", "-x", "UCX_NET_DEVICES=mlx5_0:1", "-x", "UCX_TLS=rc,self"]
            done = lab.run("node01", "mpirun", *MPI, *ucx, "-H", "node01,node02", "-np", "2", program, timeout=90)
            sent = lab.counters("node01")["functions"]["mlx5_0"]["tx_bytes"]
            self.assertGreater(sent, 10_000, done.stdout + done.stderr)


if __name__ == "__main__":
    main()
