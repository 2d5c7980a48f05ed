#!/usr/bin/python3
"""Whether every C and C++ file is as clang-format 14 writes it.

    check_format.py [ROOT] [--fix]

Other versions of clang-format break lines differently; without version 14 nothing is checked.
"""

import pathlib
import shutil
import subprocess
import sys

VERSION = "version 14."
SUFFIXES = {".cc", ".h", ".c"}
FOLDERS = ("src", "tests", "examples")


def find_formatter():
    for name in ("clang-format-14", "clang-format"):
        path = shutil.which(name)
        if path and VERSION in subprocess.run([path, "--version"], capture_output=True, text=True).stdout:
            return path
    return None


def main():
    words = [word for word in sys.argv[1:] if word != "--fix"]
    root = pathlib.Path(words[0] if words else pathlib.Path(__file__).parent.parent).resolve()
    formatter = find_formatter()
    if not formatter:
        print("format: not checked, there is no clang-format 14")
        return
    files = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*")) if path.suffix in SUFFIXES]
    mode = ["-i"] if "--fix" in sys.argv else ["--dry-run", "-Werror"]
    done = subprocess.run([formatter, *mode, *map(str, files)], capture_output=True, text=True)
    wrong = sorted({line.split(":")[0] for line in done.stderr.splitlines() if "[-Wclang-format-violations]" in line})
    if done.returncode != 0:
        print("\n".join(wrong) or done.stderr)
        sys.exit("format: run tools/check_format.py --fix")
    print(f"format: {len(files)} files are as they should be")


if __name__ == "__main__":
    main()
