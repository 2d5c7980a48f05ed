#!/usr/bin/python3
"""The rules of docs/STYLE.md that a program can check.

    check_style.py [ROOT]

Lines of at most 100 columns (Python: 130), functions of at most 70 lines, #pragma once, no banned calls, no notes for
later, no blanks at line ends. A longer function needs an entry in tools/style_exceptions.toml with a reason; its length
may only shrink: an entry that is larger than the function is wrong, too.
"""

import pathlib
import re
import sys
import tomllib

COLUMNS_MAX = {".cc": 100, ".h": 100, ".c": 100, ".py": 130, ".sh": 130}
FUNCTION_LINES_MAX = 70
CPP = {".cc", ".h", ".c"}
TESTS = ("_test.cc", "_bench.cc", "_fuzz.cc")
FOLDERS = ("src", "tests", "tools", "scripts", "examples")
NOTES = re.compile(r"\b(" + "|".join(["FIX" + "ME", "TO" + "DO", "XX" + "X"]) + r")\b")
BANNED = {
    r"\b(?:v?sprintf|strcpy|strcat|gets)\s*\(": "no bounds; use fmt::format or std::string",
    r"\b(?:s?rand|drand48)\s*\(": "not seeded by the test; use base/prng.h",
    r"(?<![\w.>:])system\s*\(": "runs a shell; use fork and exec",
    r"\b(?:tmpnam|mktemp|tempnam)\s*\(": "races; use memfd_create or mkdtemp",
    r"\bstd::regex\b": "slow and large; write the few lines",
}
BANNED_IN_PROGRAMS = {  # short helpers of tests may
    r"\bato[ifl]+\s*\(": "swallows errors; use std::from_chars",
    r"\busleep\s*\(": "use nanosleep, or better wait for the event",
}
BANNED_IN_HEADERS = {r"\busing\s+namespace\b": "leaks into all who include it; name what is used"}
CONTROL = {"if", "for", "while", "switch", "catch", "return", "else", "do", "sizeof", "decltype", "alignas"}


def blank_out(text):
    """The same text with comments, strings and preprocessor lines replaced by blanks; line breaks stay."""

    def blanks(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    pattern = re.compile(
        r'R"(?P<mark>[^()\s]{0,16})\(.*?\)(?P=mark)"'
        r'|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"
        r"|//[^\n]*"
        r"|/\*.*?\*/"
        r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
        re.DOTALL | re.MULTILINE,
    )
    return pattern.sub(blanks, text)


def function_name(head):
    """The name of the function whose body begins after `head`; None when it is no function."""
    head = head.strip()
    if not head or head.endswith("=") or re.match(r"^(namespace|class|struct|enum|union|extern)\b", head):
        return None
    found = re.search(r"([~\w:]+|operator\s*[^\s(]+)\s*\(", re.sub(r"^template\s*<[^{;]*?>\s*(?=\w)", "", head))
    if not found or found.group(1).split("::")[-1] in CONTROL:
        return None
    return found.group(1)


def functions(text):
    """(name, first line, last line) of every function body outside of other functions."""
    code = blank_out(text)
    stack, found, start = [], [], 0
    for index, char in enumerate(code):
        if char == "{":
            inside = any(entry is not None for entry in stack)
            head = code[start:index]
            name = None if inside else function_name(head)
            offset = start + len(head) - len(head.lstrip())
            stack.append((name, code.count("\n", 0, offset) + 1) if name else None)
            start = index + 1
        elif char == "}":
            entry = stack.pop() if stack else None
            if entry:
                found.append((entry[0], entry[1], code.count("\n", 0, index) + 1))
            start = index + 1
        elif char == ";":
            start = index + 1
        elif char == ":" and re.search(r"\b(public|private|protected)\s*$", code[start:index]):
            start = index + 1
    return found


def check_lines(name, suffix, text):
    complaints = []
    limit = COLUMNS_MAX[suffix]
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > limit:
            complaints.append(f"{name}:{number}: expected at most {limit} columns, found {len(line)}")
        if line != line.rstrip():
            complaints.append(f"{name}:{number}: blanks at the end of the line")
        if "\t" in line and suffix in CPP:
            complaints.append(f"{name}:{number}: a tab")
        if NOTES.search(line):
            complaints.append(f"{name}:{number}: a note for later; do it or file an issue")
    if text and not text.endswith("\n"):
        complaints.append(f"{name}: no line end at the end of the file")
    return complaints


def check_cpp(name, text):
    complaints = []
    if name.endswith(".h") and "#pragma once" not in text:
        complaints.append(f"{name}: expected #pragma once, found none")
    code = blank_out(text)
    banned = dict(BANNED)
    if name.startswith("src/") and not name.endswith(TESTS):
        banned |= BANNED_IN_PROGRAMS
    if name.endswith(".h"):
        banned |= BANNED_IN_HEADERS
    for pattern, reason in banned.items():
        for match in re.finditer(pattern, code):
            line = code.count("\n", 0, match.start()) + 1
            complaints.append(f"{name}:{line}: {match.group(0).strip(' (')} is banned: {reason}")
    return complaints


def check_functions(name, text, exceptions, used):
    complaints = []
    for function, first, last in functions(text):
        length = last - first + 1
        entry = exceptions.get((name, function))
        if entry:
            used.add((name, function))
        if entry and length <= FUNCTION_LINES_MAX:
            complaints.append(f"{name}:{first}: {function} has {length} lines: remove its exception")
        elif entry and length < entry["lines"]:
            complaints.append(f"{name}:{first}: {function} has shrunk to {length} lines: lower its exception")
        elif length > (entry["lines"] if entry else FUNCTION_LINES_MAX):
            allowed = entry["lines"] if entry else FUNCTION_LINES_MAX
            complaints.append(f"{name}:{first}: {function}: expected at most {allowed} lines, found {length}")
    return complaints


def load_exceptions(root):
    path = root / "tools" / "style_exceptions.toml"
    if not path.exists():
        return {}
    with open(path, "rb") as file:
        entries = tomllib.load(file).get("function", [])
    for entry in entries:
        if not entry.get("reason"):
            sys.exit(f"{path}: {entry}: expected a reason, found none")
    return {(entry["file"], entry["name"]): entry for entry in entries}


def check(root):
    exceptions, used, complaints = load_exceptions(root), set(), []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            suffix = path.suffix
            if suffix not in COLUMNS_MAX or not path.is_file():
                continue
            name = path.relative_to(root).as_posix()
            text = path.read_text(errors="replace")
            complaints += check_lines(name, suffix, text)
            if suffix in CPP:
                complaints += check_cpp(name, text) + check_functions(name, text, exceptions, used)
    for name, function in sorted(set(exceptions) - used):
        complaints.append(f"tools/style_exceptions.toml: there is no function {function} in {name}")
    return complaints


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    complaints = check(root)
    print("\n".join(complaints) if complaints else "style: no complaints")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
