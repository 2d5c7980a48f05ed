"""Help, manual pages, completion, and what `make install` puts where."""

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import termios

import launcher_kit
from harness import BUILD, SOURCE, Failure, main, wait_until
from launcher_kit import LAUNCHER

COMMANDS = ["up", "down", "status", "counters", "run", "link", "pcap", "flow", "demo", "completion"]
MANUALS = ["rdmalab.1", "rdma_perftest.1", "flow_steer.1", "pcc.1", "rdmalab-card.8", "rdmalab-topology.5"]


def options_in_help(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text.split("Examples:")[0]))


class Help(launcher_kit.LauncherTest):
    def test_every_command_explains_itself(self):
        overview = self.expect_success("--help")
        for command in COMMANDS:
            with self.subTest(command):
                self.assertRegex(overview, rf"(?m)^  {command} ")
                text = self.expect_success(command, "--help")
                self.assertIn("Usage: rdmalab " + command, text)
                self.assertRegex(text, "Examples:|Leaves nothing running")

    def test_version(self):
        self.assertRegex(self.expect_success("--version"), r"^rdmalab \d+\.\d+\.\d+\n$")

    def test_help_needs_no_card_and_no_folder(self):
        self.environment["RDMALAB_RUNTIME_DIR"] = "/proc/none"
        self.expect_success("up", "--help")


class Manuals(launcher_kit.LauncherTest):
    def text(self, name):
        with open(os.path.join(SOURCE, "man", name)) as file:
            return file.read()

    def test_no_warning(self):
        for name in MANUALS:
            done = self.command(["mandoc", "-T", "lint", "-W", "warning", os.path.join(SOURCE, "man", name)])
            self.assertEqual((done.returncode, done.stdout), (0, ""), name)

    def test_every_option_is_in_the_manual(self):
        page = self.text("rdmalab.1").replace("Fl -", "--").replace("\\-", "-")
        for command in COMMANDS:
            for option in options_in_help(self.expect_success(command, "--help")) - {"--help"}:
                self.assertTrue(option in page, f"{command} {option}")

    def test_every_option_of_the_card_is_in_its_manual(self):
        page = self.text("rdmalab-card.8").replace("Fl -", "--")
        done = self.command([os.path.join(BUILD, "bin/rdmalab-card"), "--help"])
        for option in options_in_help(done.stdout):
            self.assertIn(option, page)

    def test_the_example_of_a_topology_is_one(self):
        text = self.text("rdmalab-topology.5")
        example = re.search(r"\.Bd -literal.*?\n(.*?)\.Ed", text, re.DOTALL).group(1)
        path = os.path.join(self.folder, "example.toml")
        with open(path, "w") as file:
            file.write(example)
        self.up("--topology", path)

    def test_every_key_of_a_topology_is_in_the_manual(self):
        page = self.text("rdmalab-topology.5")
        for name in ("loopback.toml", "impaired.toml"):
            with open(os.path.join(SOURCE, "topologies", name)) as file:
                for key in set(re.findall(r"(?m)^(\w+) *=", file.read())):
                    self.assertRegex(page, rf"\b{key}\b")


class Completion(launcher_kit.LauncherTest):
    def complete(self, *words):
        """What bash offers for the last of these words."""
        script = (
            f'source <("{LAUNCHER}" completion bash)\n'
            f"COMP_WORDS=({' '.join(repr(word) for word in ('rdmalab', *words))}); COMP_CWORD={len(words)}\n"
            '_rdmalab; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        self.environment["PATH"] = os.path.dirname(LAUNCHER) + ":" + self.environment["PATH"]
        done = self.command(["bash", "-euc", script])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return set(done.stdout.split())

    def test_the_script_loads_in_bash_and_registers_itself(self):
        script = f'source <("{LAUNCHER}" completion bash); complete -p rdmalab'
        done = self.command(["bash", "-euc", script])
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "complete -F _rdmalab rdmalab\n", ""))

    def test_commands(self):
        self.assertLessEqual(set(COMMANDS), self.complete(""))
        self.assertEqual(self.complete("co"), {"counters", "completion"})

    def test_options_of_each_command_are_those_of_its_help(self):
        for command in COMMANDS:
            help_text = self.expect_success(command, "--help")
            self.assertEqual(self.complete(command, "--"), options_in_help(help_text), command)

    def test_names_of_running_cards_cables_and_places(self):
        self.up("--name", "lab")
        self.assertEqual(self.complete("status", "--name", ""), {"lab"})
        self.assertIn("cable0", self.complete("link", "--name", "lab", "cab"))
        self.assertEqual(self.complete("pcap", "--name", "lab", "--at", "pf"), {"pf0sf0", "pf0sf4", "pf1sf0"})
        self.assertEqual(self.complete("link", "--direction", ""), {"a-to-b", "b-to-a", "both"})
        self.assertEqual(self.complete("flow", ""), {"dump", "counters", "trace"})
        self.assertEqual(self.complete("flow", "--name", "lab", "dump", ""), {"mlx5_0", "mlx5_1"})

    def test_a_program_is_completed_after_the_mark(self):
        self.assertIn("ibv_rc_pingpong", self.complete("run", "--", "ibv_rc_p"))

    def test_fish_offers_commands_and_options(self):
        path = self.script_for("fish", "rdmalab.fish")

        def complete(line):
            done = self.command(["fish", "--no-config", "-c", f"source {path}; complete -C '{line}'"])
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return {row.split("\t")[0] for row in done.stdout.splitlines()}

        self.assertLessEqual(set(COMMANDS), complete("rdmalab "))
        for command in COMMANDS:
            help_text = self.expect_success(command, "--help")
            self.assertEqual(complete(f"rdmalab {command} --"), options_in_help(help_text), command)

    def test_zsh_completes_what_is_typed(self):
        """Its completion works only where somebody types."""
        self.script_for("zsh", "_rdmalab")
        with Terminal(["zsh", "-f", "-i"], self.folder) as zsh:
            zsh.type(f"PS1='> '; fpath=({self.folder} $fpath); autoload -Uz compinit; compinit -u -D; echo re''ady\n")
            zsh.wait_for(r"\nready")
            for typed, completed in (
                ("rdmalab cou\t", "rdmalab counters "),
                ("rdmalab link --lo\t", "rdmalab link --loss "),
                ("rdmalab pcap --a\t", "rdmalab pcap --at "),
            ):
                zsh.type(typed)
                zsh.wait_for(re.escape(completed))
                zsh.type("\x15")  # take the line back

    def script_for(self, shell, name):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(self.expect_success("completion", shell))
        return path


class Terminal:
    """A program in a terminal of its own: `with Terminal(argv, home) as terminal`."""

    def __init__(self, argv, home):
        self.argv, self.home, self.output = argv, home, ""

    def __enter__(self):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            environment = {**os.environ, "HOME": self.home, "TERM": "dumb"}
            os.execvpe(self.argv[0], self.argv, environment)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 500, 0, 0))  # no line breaks
        return self

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait_for(self, pattern):
        """Until the pattern is in what was printed since the last call."""

        def found():
            while select.select([self.fd], [], [], 0)[0]:
                self.output += os.read(self.fd, 4096).decode(errors="replace")
            return re.search(pattern, self.output)

        if not wait_until(found, 20):
            raise Failure(f"{pattern!r} did not come; found {self.output!r}")
        self.output = ""


class Installation(launcher_kit.LauncherTest):
    def install(self):
        """A copy of the build's cache would build anew; installing to a staging folder does not."""
        done = self.command(["cmake", "--install", BUILD, "--prefix", self.prefix], timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def setUp(self):
        super().setUp()
        self.prefix = os.path.join(self.folder, "usr")
        # All installations of a build write the same list of files: one at a time.
        lock = open(os.path.join(BUILD, "install.lock"), "w")
        self.addCleanup(lock.close)
        fcntl.flock(lock, fcntl.LOCK_EX)
        manifest = os.path.join(BUILD, "install_manifest.txt")
        self.addCleanup(lambda: os.path.exists(manifest) and os.remove(manifest))
        self.install()

    def test_everything_is_there(self):
        for path in (
            "bin/flow_steer", "bin/doca_flow_steer", "bin/pcc", "bin/doca_pcc", "lib/rdmalab/pcc/pure_ecn.so",
            "bin/rdma_perftest", "bin/doca_perftest", "share/man/man1/rdma_perftest.1", "share/rdmalab/report.schema.json",
            "share/rdmalab/scenario.schema.json", "lib/rdmalab/cluster_mpi.so",
            "share/bash-completion/completions/rdma_perftest",
            "share/man/man1/flow_steer.1", "share/man/man1/pcc.1", "share/bash-completion/completions/flow_steer",
            "bin/rdmalab", "bin/rdmalab-card", "lib/rdmalab/rdma/libibverbs.so", "lib/rdmalab/rdma/libibverbs.so.1",
            "lib/rdmalab/rdma/librdmacm.so", "lib/rdmalab/rdma/librdmacm.so.1",
            "share/man/man3/ibv_create_flow.3", "share/man/man3/ibv_destroy_flow.3", "share/man/man1/rdmalab.1",
            "share/man/man8/rdmalab-card.8", "share/man/man5/rdmalab-topology.5",
            "share/bash-completion/completions/rdmalab", "share/zsh/site-functions/_rdmalab",
            "share/fish/vendor_completions.d/rdmalab.fish", "share/rdmalab/topologies/loopback.toml",
        ):
            self.assertTrue(os.path.exists(os.path.join(self.prefix, path)), path)

    def test_the_installed_launcher_finds_its_card_and_its_libraries(self):
        launcher = os.path.join(self.prefix, "bin/rdmalab")
        done = self.command([launcher, "run", "--", "sh", "-c", "echo $LD_LIBRARY_PATH; ibv_devices"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.split(":")[0].split("\n")[0], os.path.join(self.prefix, "lib/rdmalab/rdma"))
        self.assertIn("mlx5_2", done.stdout)

    def test_uninstall_removes_every_file(self):
        done = self.command(["cmake", "-P", os.path.join(BUILD, "uninstall.cmake")])
        self.assertEqual(done.returncode, 0, done.stderr)
        left = [os.path.join(root, name) for root, _, names in os.walk(self.prefix) for name in names]
        self.assertEqual(left, [])
        self.assertFalse(os.path.exists(os.path.join(self.prefix, "lib/rdmalab")))


class Packages(launcher_kit.LauncherTest):
    def test_nothing_is_missing_and_the_script_says_nothing(self):
        done = self.command([os.path.join(SOURCE, "scripts/install-packages.sh")])
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_an_ordinary_user_is_told_what_is_missing(self):
        scripts = os.path.join(self.folder, "scripts")
        shutil.copytree(os.path.join(SOURCE, "scripts"), scripts)
        with open(os.path.join(scripts, "packages.txt"), "a") as file:
            file.write("no-such-package-a  # remark\nno-such-package-b\n")
        os.chmod(self.folder, 0o755)
        words = [os.path.join(scripts, "install-packages.sh")]
        if os.geteuid() == 0:
            words = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "--inh-caps=-all", *words]
        done = self.command(words)
        self.assertEqual(
            (done.returncode, done.stdout, done.stderr),
            (
                1,
                "",
                "missing packages: no-such-package-a no-such-package-b\ninstall them as root: "
                "apt-get install --no-install-recommends no-such-package-a no-such-package-b\n",
            ),
        )


if __name__ == "__main__":
    main()
