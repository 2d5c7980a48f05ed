"""What every test of unmodified programs needs: a private card, pairs of programs, proof that nothing stays behind.

A test starts one card in a runtime folder of its own, runs programs on it by `rdmalab run`, and asserts on what they
print and on what the card counted. A failure shows the outputs and the commands that repeat it by hand.

The build folder comes from the environment (RDMALAB_BUILD), `build` beside the sources otherwise. RDMALAB_TIME_FACTOR
stretches every limit (sanitizer builds are slower).
"""

import contextlib
import ctypes
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("RDMALAB_BUILD", os.path.join(SOURCE, "build")))
LAUNCHER = os.path.join(BUILD, "bin", "rdmalab")
TIME_FACTOR = float(os.environ.get("RDMALAB_TIME_FACTOR", "1"))
SEED = int(os.environ.get("RDMALAB_SEED", "1"))
POLL_S = 0.005

# The default card: two SFs of different PFs reach each other over the cable, two of one PF inside the e-switch.
SERVER_DEVICE = "mlx5_2"
CLIENT_DEVICE = "mlx5_3"
NEIGHBOUR_DEVICE = "mlx5_4"
DEVICES = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4"]
PORT_OF = {"mlx5_0": "p0", "mlx5_2": "p0", "mlx5_4": "p0", "mlx5_1": "p1", "mlx5_3": "p1"}
IP_OF = {"mlx5_2": "10.0.0.1", "mlx5_4": "10.0.0.11", "mlx5_3": "10.0.0.2"}
GID_IPV6 = 0  # link-local
GID_IPV4 = 1  # the device's IP


def tool(name):
    """A program of ours from the build folder."""
    return os.path.join(BUILD, "bin", "tests", name)


# ---------------------------------------------------------------------------------------------------------------------
# processes


def die_with_parent():
    """Runs in the child before exec: a test killed by ctest leaves no program behind."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Program:
    """One running program in a process group of its own; its output goes to files, so it never blocks on a pipe."""

    def __init__(self, argv, env=None, limits=None, cwd=None):
        self.argv = [str(word) for word in argv]
        self.extra_env = dict(env or {})
        self.started = time.monotonic()
        self.ended = None
        self._files = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]

        def prepare():
            die_with_parent()
            if limits:
                limits()

        self.process = subprocess.Popen(
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=self._files[0],
            stderr=self._files[1],
            env={**os.environ, **self.extra_env},
            cwd=cwd,
            start_new_session=True,
            preexec_fn=prepare,
        )

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        return self.returncode() is None

    def returncode(self):
        code = self.process.poll()
        if code is not None and self.ended is None:
            self.ended = time.monotonic()
        return code

    def _text(self, index):
        file = self._files[index]
        return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")

    @property
    def stdout(self):
        return self._text(0)

    @property
    def stderr(self):
        return self._text(1)

    @property
    def output(self):
        return self.stdout + self.stderr

    def wait(self, timeout):
        """True when it has ended in time."""
        return wait_until(lambda: not self.running(), timeout)

    def kill_group(self, how=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, how)
        self.wait(5)

    def descendants(self):
        return descendants_of(self.pid)

    def find(self, name):
        """The pid of the process called `name` among this one and its children (the launcher may or may not exec)."""
        for pid in [self.pid] + self.descendants():
            if process_name(pid) == name[:15]:
                return pid
        return None

    def line(self):
        env = " ".join(f"{key}={shlex.quote(value)}" for key, value in self.extra_env.items())
        return (env + " " if env else "") + shlex.join(self.argv)

    def report(self, title):
        code = self.returncode()
        state = "still running" if code is None else f"exit {code} after {self.ended - self.started:.1f} s"
        return f"--- {title}: {state}\n    {self.line()}\n{indent(self.output)}"


def indent(text, limit=4000):
    if len(text) > limit:
        text = text[: limit // 2] + "\n[...]\n" + text[-limit // 2 :]
    return "".join(f"    | {line}\n" for line in text.splitlines())


def wait_until(condition, timeout):
    """Polls until `condition()` is true; its value, or the last one when the time is up."""
    deadline = time.monotonic() + timeout * TIME_FACTOR
    while True:
        value = condition()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(POLL_S)


def process_name(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return None


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return None


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants_of(root):
    parents = {pid: parent_of(pid) for pid in all_pids()}
    found, frontier = [], {root}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier}
        found += sorted(frontier)
    return found


def is_alive(pid):
    """A zombie is not alive."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))


def open_descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


# ---------------------------------------------------------------------------------------------------------------------
# TCP ports of the data exchange


def is_listening(port):
    """Looks into the kernel's tables: connecting would use up a server that accepts once."""
    wanted = f"{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(FileNotFoundError), open(table) as file:
            for row in file.read().splitlines()[1:]:
                fields = row.split()
                if fields[3] == "0A" and fields[1].rpartition(":")[2] == wanted:
                    return True
    return False


@contextlib.contextmanager
def reserved_port():
    """A TCP port that nobody else is given: we keep it bound, not listening, and the server (which sets SO_REUSEADDR, as
    all of them do) may still listen on it."""
    with socket.socket() as holder:
        holder.bind(("", 0))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield holder.getsockname()[1]


# ---------------------------------------------------------------------------------------------------------------------
# the card


class Failure(AssertionError):
    pass


def start_reaper(runtime, folder):
    """A process of its own that waits for the end of this test; when the test was killed (no farewell came through the
    pipe), it ends everything that the test left running. Returns the pipe's end to say farewell to."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, False)
    child = os.fork()
    if child:
        os.close(reading)
        os.waitpid(child, 0)
        return writing
    os.setsid()
    if os.fork() == 0:
        os.close(writing)
        if not os.read(reading, 1):
            for pid in processes_of(runtime):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def processes_of(runtime):
    """Every live process with this runtime folder in its environment."""
    needle = f"RDMALAB_RUNTIME_DIR={runtime}".encode()
    found = []
    for pid in all_pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if needle in file.read().split(b"\0") and is_alive(pid):
                found.append(pid)
    return found


class Card:
    """A private card: `with Card() as card`. Leaving it ends the card and checks that nothing is left over."""

    def __init__(self, topology=None, seed=None, name=None, environment=None, options=()):
        self.name = name or f"test-{os.getpid()}-{random.randrange(10**6)}"
        self.seed = SEED if seed is None else seed
        self.topology = topology
        self.options = list(options)
        self.folder = tempfile.mkdtemp(prefix="rdmalab-test-")
        os.chmod(self.folder, 0o700)
        self.runtime = os.path.join(self.folder, "run")
        self.environment = {"RDMALAB_RUNTIME_DIR": self.runtime, **(environment or {})}
        self.programs = []
        self.pid = None
        self.farewell = start_reaper(self.runtime, self.folder)

    # --- life

    def __enter__(self):
        try:
            self.up()
        except BaseException:
            self.close()
            self.dismiss()
            raise
        return self

    def __exit__(self, kind, error, trace):
        if error is not None:
            print(self.describe(), file=sys.stderr)
        try:
            self.close()
            if error is None:
                self.check_nothing_left()
        finally:
            self.dismiss()

    def dismiss(self):
        os.write(self.farewell, b"x")
        os.close(self.farewell)
        shutil.rmtree(self.folder, ignore_errors=True)

    def up(self):
        argv = ["up", "--name", self.name, "--seed", str(self.seed)]
        if self.topology:
            argv += ["--topology", self.topology]
        argv += self.options
        started = time.monotonic()
        self.rdmalab(*argv)
        self.up_seconds = time.monotonic() - started
        self.pid = self.status()["pid"]

    def close(self):
        for program in self.programs:
            program.kill_group()
        if self.pid and is_alive(self.pid):
            self.rdmalab("down", "--name", self.name, check=False)
            if not wait_until(lambda: not is_alive(self.pid), 5):
                os.kill(self.pid, signal.SIGKILL)
                raise Failure(f"the card (pid {self.pid}) did not end within 5 s of `rdmalab down`")

    def check_nothing_left(self):
        def leftovers():
            found = [f"process {pid} ({process_name(pid)})" for pid in self.processes()]
            for root, _, files in os.walk(self.runtime):
                found += [os.path.join(root, file) for file in files if not file.endswith((".lock", ".log"))]
            found += ["/dev/shm/" + file for file in os.listdir("/dev/shm") if self.name in file]
            return found

        wait_until(lambda: not leftovers(), 2)
        left = leftovers()
        if left:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)
            raise Failure("left behind after the card was taken down: " + ", ".join(left))

    def processes(self):
        return processes_of(self.runtime)

    # --- the launcher

    def rdmalab(self, *words, check=True, timeout=20):
        """Runs the launcher to its end; its standard output (or the finished process with check=False)."""
        argv = [LAUNCHER, *map(str, words)]
        try:
            done = subprocess.run(
                argv,
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                timeout=timeout * TIME_FACTOR,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise Failure(f"{shlex.join(argv)} did not end within {timeout} s")
        if not check:
            return done
        if done.returncode != 0:
            raise Failure(
                f"{shlex.join(argv)}: exit {done.returncode}\n{indent(done.stdout + done.stderr)}"
            )
        return done.stdout

    def status(self):
        return json.loads(self.rdmalab("status", "--name", self.name, "--json"))

    def counters(self):
        return json.loads(self.rdmalab("counters", "--name", self.name, "--json"))

    def busy_counters(self):
        functions = self.counters()["functions"].items()
        return {device: {name: value for name, value in counted.items() if value} for device, counted in functions}

    def link(self, *words, cable="cable0"):
        return self.rdmalab("link", cable, "--name", self.name, *words)

    def socket_path(self):
        return os.path.join(self.runtime, self.name + ".sock")

    def objects(self):
        """How many objects the card holds, over all functions."""
        status = self.status()
        total = {"qps": 0, "mrs": 0, "attached": len(status["attached"])}
        for function in status["functions"]:
            total["qps"] += function["qps"]
            total["mrs"] += function["mrs"]
        return total

    def wait_idle(self, timeout=5):
        """Until every program has detached."""
        idle = {"qps": 0, "mrs": 0, "attached": 0}
        wait_until(lambda: self.objects() == idle, timeout)
        objects = self.objects()
        if objects != idle:
            raise Failure(f"the card still holds {objects} of programs that have ended")

    # --- programs

    def command(self, *argv):
        return [LAUNCHER, "run", "--name", self.name, "--", *map(str, argv)]

    def start(self, *argv, env=None, limits=None, cwd=None):
        program = Program(
            self.command(*argv), {**self.environment, **(env or {})}, limits, cwd or self.folder
        )
        self.programs.append(program)
        return program

    def run(self, *argv, env=None, timeout=30, expect=0, limits=None):
        program = self.start(*argv, env=env, limits=limits)
        if not program.wait(timeout):
            report = program.report("hangs")
            program.kill_group()
            raise Failure(f"did not end within {timeout} s\n{report}")
        if expect is not None and program.returncode() != expect:
            raise Failure(f"expected exit {expect}\n{program.report('program')}")
        return program

    def start_pair(self, server, client, port, env=(None, None)):
        """Starts the server, waits until it listens on `port`, starts the client."""
        serving = self.start(*server, env=env[0])
        wait_until(lambda: is_listening(port) or not serving.running(), 20)
        if not is_listening(port):
            report = serving.report("server")
            serving.kill_group()
            raise Failure(f"the server never listened on port {port}\n{report}")
        return Pair(serving, self.start(*client, env=env[1]))

    def run_pair(self, server, client, port, env=(None, None), timeout=60):
        """Both programs to their ends; both must succeed."""
        return self.start_pair(server, client, port, env).finish(timeout)

    def describe(self):
        lines = ["", "To repeat by hand:"]
        lines.append(f"  export RDMALAB_RUNTIME_DIR={self.runtime}")
        topology = f" --topology {self.topology}" if self.topology else ""
        lines.append(f"  {LAUNCHER} up --name {self.name} --seed {self.seed}{topology}")
        lines += ["  " + shlex.join(program.argv) for program in self.programs[-4:]]
        lines.append(f"Or the test alone:  RDMALAB_BUILD={BUILD} /usr/bin/python3 {shlex.join(sys.argv)}")
        if self.pid and is_alive(self.pid):
            with contextlib.suppress(Failure, ValueError, KeyError):
                lines.append("Functions' counters that are not 0: " + json.dumps(self.busy_counters()))
        elif self.pid:
            lines.append("The card is dead. Its log:")
            with contextlib.suppress(OSError), open(os.path.join(self.runtime, self.name + ".log")) as log:
                lines.append(indent(log.read()))
        return "\n".join(lines)


class Pair:
    def __init__(self, server, client):
        self.server = server
        self.client = client

    def finish(self, timeout=60, server_code=0, client_code=0):
        deadline = time.monotonic() + timeout * TIME_FACTOR
        for program in (self.client, self.server):
            program.wait(max(0.1, deadline - time.monotonic()) / TIME_FACTOR)
            if program.running():
                self.fail(f"did not end within {timeout} s")
            if program is self.client and program.returncode() != client_code:
                self.server.wait(1)
                break
        codes = (self.server.returncode(), self.client.returncode())
        if codes != (server_code, client_code):
            self.fail(f"expected exit codes (server, client) {(server_code, client_code)}, found {codes}")
        return self

    def fail(self, why):
        report = self.server.report("server") + self.client.report("client")
        self.server.kill_group()
        self.client.kill_group()
        raise Failure(f"{why}\n{report}")


# ---------------------------------------------------------------------------------------------------------------------
# registration with ctest


def costs(**properties):
    """Marks a test for ctest: timeout (s), label, processors."""

    def mark(test):
        test.ctest = properties
        return test

    return mark


def list_tests(module):
    """One line per test: Class.name, then timeout, label and processors for ctest."""
    for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
        for case in suite:
            properties = getattr(getattr(case, case._testMethodName), "ctest", {})
            name = f"{type(case).__name__}.{case._testMethodName}"
            print(
                name,
                properties.get("timeout", 120),
                properties.get("label", "-"),
                properties.get("processors", 1),
                sep="|",
            )


def main():
    """The main of a test file: `--list` for CMake, otherwise unittest."""
    if sys.argv[1:] == ["--list"]:
        list_tests(sys.modules["__main__"])
        return
    if not os.access(LAUNCHER, os.X_OK):
        sys.exit(f"{LAUNCHER} is missing: build first, or set RDMALAB_BUILD")
    unittest.main(verbosity=2, warnings="ignore")  # output files live as long as the process
