"""Compares the symbols of the drop-in with those of the installed libraries: every default symbol of theirs, private
ones included, must be there under the same version, or programs that need it do not start.

    symbols_test.py FOLDER-OF-THE-DROP-IN
"""

import re
import subprocess
import sys

INSTALLED = "/usr/lib/x86_64-linux-gnu"
LIBRARIES = ("libibverbs.so.1", "librdmacm.so.1")
# Address, flags, section, size, version (in parentheses where it is not the default one), name.
DEFINED = re.compile(r"^[0-9a-f]+ (?:g|w| ).{5}D?[FO]? *(\S+)\s+[0-9a-f]+\s+(\S+)\s+(\S+)$")


def default_symbols(library):
    out = subprocess.run(["objdump", "-T", library], capture_output=True, text=True, check=True).stdout
    symbols = set()
    for line in out.splitlines():
        match = DEFINED.match(line)
        if match and match[1] not in ("*UND*", "*ABS*") and not match[2].startswith("("):
            symbols.add(f"{match[3]}@@{match[2]}")
    return symbols


def main(folder):
    failed = False
    for name in LIBRARIES:
        theirs, ours = default_symbols(f"{INSTALLED}/{name}"), default_symbols(f"{folder}/{name}")
        for symbol in sorted(theirs - ours):
            print(f"{name}: missing {symbol}")
        for symbol in sorted(ours - theirs):
            print(f"{name}: {symbol} is no symbol of the original")
        print(f"{name}: {len(theirs & ours)} of {len(theirs)} symbols")
        failed |= theirs != ours or not theirs
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
