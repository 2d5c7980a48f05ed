"""What the tests of path steering share: the two programs on a private card, and their lines."""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness
from harness import BUILD, TIME_FACTOR, Failure, Program, wait_until

BLUE_IP, GREEN_IP = "10.0.0.1", "10.0.0.11"
IPS = ["--path0-ip", BLUE_IP, "--path1-ip", GREEN_IP]
INGRESS = ["-r", "pci/0000:03:00.0,pf0sf0", "-R", "pci/0000:03:00.0,pf0sf4", *IPS, "--role", "ingress"]
PCC = ["--device", "mlx5_1", "-r", "pci/0000:03:00.1,pf1sf0", *IPS]
READY_INGRESS = "steer started (role=ingress"
READY_PCC = "Info: PCC host status Active"


def program(name):
    return os.path.join(BUILD, "bin", name)


class SteeringCard(harness.Card):
    def environment_of_clients(self):
        return {**self.environment, "RDMALAB_CARD": self.name}

    def steer(self, name, *words, ready=None, timeout=30):
        """Starts flow_steer or pcc and waits until it says `ready`."""
        started = Program([program(name), *map(str, words)], self.environment_of_clients(), cwd=self.folder)
        self.programs.append(started)
        if ready:
            self.await_line(started, ready, timeout)
        return started

    def await_line(self, started, text, timeout=30):
        wait_until(lambda: text in started.output or not started.running(), timeout)
        if text not in started.output:
            raise Failure(f"never said: {text}\n{started.report('program')}")

    def finish(self, name, *words, timeout=20):
        """Runs a program to its end."""
        return subprocess.run(
            [program(name), *map(str, words)],
            env={**os.environ, **self.environment_of_clients()},
            capture_output=True,
            text=True,
            timeout=timeout * TIME_FACTOR,
            stdin=subprocess.DEVNULL,
        )

    def tell(self, started, *words):
        done = self.finish("flow_steer", "--tell", started.pid, *words)
        if done.returncode != 0:
            raise Failure(f"--tell {words}: {done.stderr}")
        return done.stdout

    def start_ingress(self, *words):
        return self.steer("flow_steer", *INGRESS, *words, ready=READY_INGRESS)

    def start_pcc(self, *words):
        return self.steer("pcc", *PCC, *words, ready=READY_PCC)

    def start_traffic(self, *devices):
        """A pair of ib_write_bw -R per receiver device, without end."""
        servers, clients = [], []
        for device in devices:
            servers.append(
                self.start(
                    "ib_write_bw", "-d", device, "-R", "--report_gbits", "--run_infinitely", env={"RDMALAB_DEVICES": device}
                )
            )
        if not wait_until(lambda: self.status()["cm"]["ports"] >= len(devices), 20):
            raise Failure("the receivers do not listen\n" + "".join(one.report("server") for one in servers))
        for device in devices:
            words = ["-d", "mlx5_3", "-R", "-F", harness.IP_OF[device], "--report_gbits", "--run_infinitely"]
            clients.append(self.start("ib_write_bw", *words, env={"RDMALAB_DEVICES": "mlx5_3"}))
        return servers, clients

    def received_bytes(self, device):
        return self.counters()["functions"][device]["rx_bytes"]

    def await_traffic(self, device, timeout=20):
        before = self.received_bytes(device)
        if not wait_until(lambda: self.received_bytes(device) > before + 1_000_000, timeout):
            raise Failure(f"no traffic arrives at {device}\n" + "".join(p.report("program") for p in self.programs))


def lines(started, pattern):
    return [line for line in started.stdout.splitlines() if re.search(pattern, line)]
