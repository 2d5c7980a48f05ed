"""The checkers of tools/ find what they are made to find: each test builds a small tree with one fault."""

import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent.parent.parent / "tools"
sys.path.insert(0, str(TOOLS))
import check_layers
import check_sans_io
import check_style

LAYERS = """
test_suffixes = ["_test.cc"]
test_files = ["testing.h"]
test_system = ["gtest/"]
[rooms.base]
folder = "src/base"
rooms = []
system = "standard"
[rooms.card]
folder = "src/card"
rooms = ["base"]
system = "standard"
[rooms."card/host"]
folder = "src/card/host"
rooms = ["base", "card"]
system = "any"
[rooms.verbs]
folder = "src/verbs"
rooms = ["base"]
headers = ["card/ring_abi.h"]
system = "any"
"""


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("tools/layers.toml", LAYERS)
        for name in ("src", "tests", "scripts", "examples"):
            (self.root / name).mkdir(exist_ok=True)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


class Layers(Tree):
    def includes(self, file, line):
        self.write(file, line + "\n")
        return check_layers.check(self.root)

    def test_a_room_may_include_what_the_table_says(self):
        self.assertEqual(self.includes("src/card/card.h", '#include "base/bytes.h"'), [])
        self.assertEqual(self.includes("src/card/host/main.cc", '#include "card/card.h"'), [])
        self.assertEqual(self.includes("src/verbs/qp.cc", '#include "card/ring_abi.h"'), [])

    def test_nothing_points_upward(self):
        self.assertEqual(
            self.includes("src/base/bytes.cc", '#include "card/card.h"'),
            ['src/base/bytes.cc:1: base may not include "card/card.h" of card (allowed: no room)'],
        )

    def test_the_innermost_folder_decides(self):
        self.assertEqual(len(self.includes("src/card/card.cc", '#include "card/host/loop.h"')), 1)

    def test_only_the_named_header_of_another_room(self):
        self.assertEqual(len(self.includes("src/verbs/qp.cc", '#include "card/card.h"')), 1)

    def test_a_source_file_is_no_header(self):
        self.assertIn("only headers", self.includes("src/card/card.cc", '#include "base/bytes.cc"')[0])

    def test_a_standard_room_includes_no_system_header(self):
        for header in ("<unistd.h>", "<sys/socket.h>", "<fmt/format.h>"):
            self.assertEqual(len(self.includes("src/base/bytes.cc", f"#include {header}")), 1, header)
        self.assertEqual(self.includes("src/base/bytes.cc", "#include <vector>"), [])
        self.assertEqual(self.includes("src/verbs/qp.cc", "#include <unistd.h>"), [])

    def test_tests_may_use_their_framework(self):
        self.assertEqual(self.includes("src/base/bytes_test.cc", "#include <gtest/gtest.h>"), [])
        self.assertEqual(len(self.includes("src/base/other.cc", "#include <gtest/gtest.h>")), 1)

    def test_an_exception_that_nobody_needs_is_a_fault(self):
        self.write("tools/layers.toml", LAYERS + '[[exceptions]]\nfile = "src/base/a.cc"\nheader = "arpa/inet.h"\n')
        self.assertEqual(self.includes("src/base/a.cc", "#include <arpa/inet.h>"), [])
        self.assertEqual(len(self.includes("src/base/a.cc", "#include <vector>")), 1)


class Style(Tree):
    def complaints(self, file, text):
        self.write(file, text)
        return check_style.check(self.root)

    def test_a_clean_file(self):
        self.assertEqual(self.complaints("src/base/a.h", "#pragma once\nint f();\n"), [])

    def test_long_lines(self):
        self.assertEqual(self.complaints("src/base/a.cc", "// " + "x" * 97 + "\n"), [])
        self.assertIn("found 101", self.complaints("src/base/a.cc", "// " + "x" * 98 + "\n")[0])

    def test_a_header_without_pragma_once(self):
        self.assertEqual(self.complaints("src/base/a.h", "int f();\n"), ["src/base/a.h: expected #pragma once, found none"])

    def test_notes_for_later(self):
        for word in ("TO" + "DO", "FIX" + "ME"):
            self.assertIn("a note for later", self.complaints("src/base/a.cc", f"// {word}: more\n")[0])

    def test_banned_calls_count_in_code_but_not_in_text(self):
        self.assertIn("strcpy is banned", self.complaints("src/base/a.cc", "void f() { strcpy(a, b); }\n")[0])
        self.assertEqual(self.complaints("src/base/a.cc", '// strcpy(a, b)\nauto s = "strcpy(a, b)";\n'), [])

    def test_blanks_and_missing_line_ends(self):
        self.assertIn("blanks", self.complaints("src/base/a.cc", "int a; \n")[0])
        self.assertIn("no line end", self.complaints("src/base/a.cc", "int a;")[0])

    def body(self, lines):
        return "int Room::f(int a) const {\n" + "    a += 1;\n" * (lines - 2) + "}\n"

    def test_a_function_has_at_most_70_lines(self):
        self.assertEqual(self.complaints("src/base/a.cc", self.body(70)), [])
        self.assertEqual(
            self.complaints("src/base/a.cc", self.body(71)),
            ["src/base/a.cc:1: Room::f: expected at most 70 lines, found 71"],
        )

    def test_functions_inside_classes_and_namespaces_are_found(self):
        head = "namespace a {\nclass B : public C {\npublic:\n    B(int x)\n        : x_(x) {\n"
        text = head + "        x_ += 1;\n" * 80 + "    }\n};\n}\n"
        (complaint,) = self.complaints("src/base/a.cc", text)
        self.assertIn("src/base/a.cc:4: B: expected at most 70 lines, found 83", complaint)

    def test_tables_and_enums_are_no_functions(self):
        self.assertEqual(self.complaints("src/base/a.cc", "const int kTable[] = {\n" + "    1,\n" * 100 + "};\n"), [])
        self.assertEqual(self.complaints("src/base/a.cc", "enum class E : char {\n" + "    kA,\n" * 100 + "};\n"), [])

    def test_an_exception_only_shrinks(self):
        entry = '[[function]]\nfile = "src/base/a.cc"\nname = "Room::f"\nlines = 80\nreason = "a table of cases"\n'
        self.write("tools/style_exceptions.toml", entry)
        self.assertEqual(self.complaints("src/base/a.cc", self.body(80)), [])
        self.assertIn("found 81", self.complaints("src/base/a.cc", self.body(81))[0])
        self.assertIn("lower its exception", self.complaints("src/base/a.cc", self.body(79))[0])
        self.assertIn("remove its exception", self.complaints("src/base/a.cc", self.body(60))[0])
        self.assertIn("there is no function", self.complaints("src/base/a.cc", "int b;\n")[0])


class SansIo(Tree):
    def library(self, code):
        self.write("a.cc", code)
        subprocess.run(["g++", "-std=c++20", "-O1", "-c", "a.cc", "-o", "a.o"], cwd=self.root, check=True)
        subprocess.run(["ar", "rc", "liba.a", "a.o"], cwd=self.root, check=True)
        return check_sans_io.check(str(self.root / "liba.a"))

    def test_a_pure_library_is_clean(self):
        self.assertEqual(self.library("#include <vector>\nint f(std::vector<int>& v) { v.push_back(1); return v[0]; }\n"), [])

    def test_clocks_environment_and_threads_are_found(self):
        for code, symbol in (
            ("#include <chrono>\nlong f() { return std::chrono::steady_clock::now().time_since_epoch().count(); }\n", "now"),
            ("#include <cstdlib>\nchar* f() { return std::getenv(\"HOME\"); }\n", "getenv"),
            ("#include <random>\nunsigned f() { return std::random_device{}(); }\n", "random_device"),
            ("#include <unistd.h>\nlong f(int d) { return write(d, \"\", 1); }\n", "write"),
        ):
            self.assertIn(symbol, " ".join(self.library(code)), code)


if __name__ == "__main__":
    unittest.main(verbosity=2)
