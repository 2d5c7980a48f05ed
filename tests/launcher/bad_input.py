"""Wrong input: exit status 2 and a message that says what was expected and what was found."""

import os

import launcher_kit
from harness import main

class CommandLine(launcher_kit.LauncherTest):
    def expect_hint(self, command, message, *words):
        name = f"rdmalab {command}" if command else "rdmalab"
        self.expect_failure(2, f"{name}: {message}\nsee '{name} --help'", *words)

    def test_no_command_shows_the_help(self):
        done = self.rdmalab()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("Subcommands:", done.stderr)

    def test_an_unknown_command_is_corrected(self):
        self.expect_hint("", "unknown command 'statsu'; did you mean 'status'?", "statsu")

    def test_a_command_like_no_other_is_not_corrected(self):
        self.expect_hint("", "unknown command 'frobnicate'", "frobnicate")

    def test_an_unknown_flag_is_corrected(self):
        self.expect_hint("up", "unknown option '--topologyy'; did you mean '--topology'?", "up", "--topologyy", "x")
        self.expect_hint("", "unknown option '--bogus'", "--bogus")
        self.expect_hint("run", "unknown option '--bogus'", "run", "--bogus", "--", "true")

    def test_too_many_arguments(self):
        self.expect_hint("status", "unknown argument 'extra'", "status", "extra")

    def test_a_value_is_missing(self):
        self.expect_hint("up", "--name: 1 required NAME missing", "up", "--name")
        self.expect_hint("pcap", "--at is required", "pcap", "file")

    def test_numbers_out_of_range(self):
        for word in ("-1", "1x", "99999999999999999999"):
            with self.subTest(word):
                self.expect_failure(
                    2, f"rdmalab up: --seed: expected a whole number of at least 0, found '{word}'", "up", f"--seed={word}"
                )
        seconds = "expected a number of seconds of at least 0.001 such as 2 or 500ms"
        for word in ("0", "2m", "nan", "inf"):
            with self.subTest(word):
                self.expect_failure(
                    2, f"rdmalab counters: --watch: {seconds}, found '{word}'", "counters", "--watch", word
                )
        self.expect_failure(
            2,
            "rdmalab pcap: --count: expected a whole number of at least 1, found '0'",
            "pcap", "--at", "p0", "--count", "0", "f",
        )

    def test_names_that_are_not_card_names(self):
        rule = "expected 1 to 48 letters, digits, '.', '_' or '-', not beginning with '.'"
        self.expect_failure(2, f"rdmalab up: card name 'a/b': {rule}, found '/'", "up", "--name", "a/b")
        self.expect_failure(2, f"rdmalab up: card name '.a': {rule}", "up", "--name", ".a")
        self.expect_failure(2, f"rdmalab up: card name '{'n' * 49}': {rule}", "up", "--name", "n" * 49)
        self.expect_failure(2, f"rdmalab status: card name 'a b': {rule}, found ' '", "status", "--name", "a b")

    def test_options_that_exclude_each_other(self):
        self.expect_failure(2, "rdmalab down: expected --all or --name, found both", "down", "--all", "--name", "x")
        self.expect_failure(
            2,
            "rdmalab run: --topology and --seed are for an embedded card: expected them or --name, found both",
            "run", "--name", "x", "--seed", "1", "--", "true",
        )

    def test_run_without_a_program(self):
        message = "rdmalab run: expected a program after '--', found none; see 'rdmalab run --help'"
        self.expect_failure(2, message, "run")
        self.expect_failure(2, message, "run", "--")

    def test_an_unknown_shell(self):
        self.expect_failure(2, "rdmalab completion: SHELL: expected bash, zsh or fish, found 'csh'", "completion", "csh")

BUILT_IN = "four-paths, impaired, loopback, two-cables"


class NoCard(launcher_kit.LauncherTest):
    def test_every_command_that_needs_a_card_names_it_and_says_how_to_start_it(self):
        for words in (["down"], ["status"], ["counters"], ["link"], ["pcap", "--at", "p0", "f"], ["flow", "dump"]):
            with self.subTest(words[0]):
                self.expect_failure(
                    2,
                    f"rdmalab {words[0]}: no card named 'default' is up; start one with: rdmalab up",
                    *words,
                )
        self.assertFalse(os.path.exists("f"))

    def test_run_with_the_name_of_a_card_that_is_not_up(self):
        self.expect_failure(
            2,
            "rdmalab run: no card named 'lab' is up; start one with: rdmalab up --name lab",
            "run", "--name", "lab", "--", "true",
        )

    def test_the_cards_that_are_up_are_listed(self):
        self.up("--name", "one")
        self.up("--name", "two")
        self.expect_failure(
            2,
            "rdmalab status: no card named 'default' is up; start one with: rdmalab up\ncards that are up: one, two",
            "status",
        )

    def test_a_runtime_folder_that_cannot_be_made(self):
        self.environment["RDMALAB_RUNTIME_DIR"] = "/proc/rdmalab"
        self.expect_failure(
            1,
            "rdmalab up: cannot make the runtime folder /proc/rdmalab: No such file or directory; "
            "RDMALAB_RUNTIME_DIR may name another",
            "up",
        )

    def test_a_runtime_folder_whose_path_is_too_long_for_a_socket(self):
        folder = os.path.join(self.folder, "x" * 120)
        self.environment["RDMALAB_RUNTIME_DIR"] = folder
        path = os.path.join(folder, "default.sock")
        self.expect_failure(
            2,
            f"rdmalab status: socket path '{path}': expected at most 107 bytes, found {len(path)}; "
            "a shorter RDMALAB_RUNTIME_DIR helps",
            "status",
        )


class Topologies(launcher_kit.LauncherTest):
    """The card finds these errors; the launcher passes them on, all of them, and its exit status."""

    def write(self, text):
        path = os.path.join(self.folder, "my.toml")
        with open(path, "w") as file:
            file.write(text)
        return path

    def expect_errors(self, text, *errors):
        path = self.write(text)
        message = "\n".join(error.replace("FILE", path) for error in errors)
        self.expect_failure(2, f"rdmalab up: {message}", "up", "--topology", path)
        self.assertEqual([name for name in self.files() if not name.endswith(".lock")], [])

    def test_an_unknown_name(self):
        self.expect_failure(
            2,
            f"rdmalab up: ring: expected a TOML file or a built-in topology ({BUILT_IN}), found neither",
            "up", "--topology", "ring",
        )

    def test_a_file_that_is_not_there(self):
        self.expect_failure(
            2,
            f"rdmalab up: /nowhere/x.toml: expected a TOML file or a built-in topology ({BUILT_IN}), "
            "found a file that cannot be read",
            "up", "--topology", "/nowhere/x.toml",
        )

    def test_a_file_that_is_not_toml(self):
        path = self.write("[[port\n")
        done = self.rdmalab("up", "--topology", path)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, f"^rdmalab up: {path}:[12]: expected TOML, found .*\n$")

    def test_a_device_that_is_there_twice_and_a_cable_to_nowhere_are_reported_together(self):
        self.expect_errors(
            '[[function]]\ndevice = "mlx5_0"\nkind = "pf"\n'
            '[[function]]\ndevice = "mlx5_0"\nkind = "pf"\n'
            '[[port]]\nname = "p0"\npf = "mlx5_0"\n'
            '[[cable]]\nname = "c"\na = "p0"\nb = "p9"\n',
            'FILE:5: function[1].device: expected a name that is used once, found "mlx5_0", which is also '
            "function[0].device in line 2",
            'FILE:13: cable[0].b: expected the name of a port (p0), found "p9"',
        )

    def test_addresses_that_clash(self):
        self.expect_errors(
            '[[function]]\ndevice = "a"\nkind = "pf"\nips = ["10.0.0.1"]\n'
            '[[function]]\ndevice = "b"\nkind = "pf"\nips = ["10.0.0.1"]\n',
            'FILE:8: function[1].ips: expected an address that is used once, found "10.0.0.1", which is also '
            "function[0].ips in line 4",
        )

    def test_run_with_a_bad_topology_fails_before_the_program_starts(self):
        path = self.write("mtu = 1500\n")
        done = self.rdmalab("run", "--topology", path, "--", "echo", "started")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn(f"{path}:1: mtu: expected 256, 512, 1024, 2048 or 4096 (bytes), found 1500", done.stderr)
        self.assertEqual(self.cards(), [])


class OnARunningCard(launcher_kit.LauncherTest):
    def setUp(self):
        super().setUp()
        self.up()

    def expect_refusal(self, found, *words):
        done = self.rdmalab(*words)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn(found, done.stderr)

    def test_a_second_card_of_the_same_name(self):
        pid = self.card_pid()
        self.expect_failure(
            2,
            f"rdmalab up: a card named 'default' is already up (pid {pid}); stop it with 'rdmalab down --name default' "
            "or choose another --name",
            "up",
        )
        self.assertTrue(launcher_kit.is_alive(pid))

    def test_units_that_do_not_exist(self):
        before = self.expect_success("link", "--json")
        for option, word in (
            ("loss", "1x%"), ("loss", "101%"), ("loss", "-1%"), ("rate", "25Gx"), ("rate", "fast"),
            ("delay", "10"), ("delay", "10 weeks"), ("jitter", "x"), ("ce", "2"),
        ):
            with self.subTest(f"{option} {word}"):
                self.expect_refusal(f'found "{word}"', "link", "cable0", f"--{option}={word}")
        self.assertEqual(self.expect_success("link", "--json"), before, "a refused change must change nothing")

    def test_all_wrong_units_are_reported_together(self):
        done = self.rdmalab("link", "cable0", "--loss", "1x%", "--delay", "10")
        self.assertEqual(done.returncode, 2)
        self.assertIn('"1x%"', done.stderr)
        self.assertIn('"10"', done.stderr)

    def test_a_cable_that_does_not_exist(self):
        self.expect_failure(2, "rdmalab link: no cable 'cable9'; expected one of: cable0", "link", "cable9")
        self.expect_failure(
            2, "rdmalab link: no cable 'cable9'; expected one of: cable0", "link", "cable9", "--loss", "1%"
        )

    def test_a_change_without_a_cable(self):
        self.expect_failure(
            2, "rdmalab link: CABLE: expected the name of the cable to change, found none", "link", "--loss", "1%"
        )

    def test_words_that_are_not_directions_or_truths(self):
        self.expect_failure(
            2,
            "rdmalab link: --direction: expected a-to-b, b-to-a or both, found 'up'",
            "link", "cable0", "--direction", "up", "--loss", "1%",
        )
        self.expect_failure(
            2,
            "rdmalab link: --verify-icrc: expected true or false, found 'maybe'",
            "link", "cable0", "--verify-icrc", "maybe",
        )

    def test_a_place_of_capture_that_does_not_exist(self):
        path = os.path.join(self.folder, "x.pcapng")
        self.expect_refusal('"p9"', "pcap", "--at", "p9", path)

    def test_a_capture_file_that_cannot_be_written(self):
        self.expect_failure(
            2,
            "rdmalab pcap: cannot write to '/nowhere/x': No such file or directory",
            "pcap", "--at", "p0", "/nowhere/x",
        )


if __name__ == "__main__":
    main()
