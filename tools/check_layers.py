#!/usr/bin/python3
"""Reads every #include below src/ against tools/layers.toml.

    check_layers.py [ROOT]

A file of one room may include headers of its own room, of the rooms that the table allows, and single headers that the
table names. "standard" rooms may include nothing of the system but the C++ standard library.
"""

import pathlib
import re
import sys
import tomllib

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".h", ".cc", ".c", ".in"}


def is_standard(header):
    """<vector> and <cstdint>, but not <unistd.h> or <fmt/format.h>."""
    return re.fullmatch(r"[a-z_]+", header) is not None


class Table:
    def __init__(self, document):
        self.rooms = document["rooms"]
        self.test_suffixes = tuple(document.get("test_suffixes", []))
        self.test_files = set(document.get("test_files", []))
        self.test_system = tuple(document.get("test_system", []))
        self.exceptions = {(entry["file"], entry["header"]): entry for entry in document.get("exceptions", [])}
        self.used_exceptions = set()

    def room_of(self, path):
        """The room of a path like src/card/host/main.cc; None outside of all rooms."""
        fitting = [name for name, room in self.rooms.items() if path.startswith(room["folder"] + "/")]
        return max(fitting, key=lambda name: len(self.rooms[name]["folder"]), default=None)

    def is_test(self, path):
        return path.endswith(self.test_suffixes) or path.rpartition("/")[2] in self.test_files

    def complaint(self, path, header, quoted):
        """Why this include is wrong; None when it is fine."""
        own = self.room_of(path)
        return self.about_room(own, header, path) if quoted else self.about_system(own, header, path)

    def about_room(self, own, header, path):
        if not header.endswith((".h", ".inc")):
            return "only headers may be included"
        other = self.room_of("src/" + header)
        if other is None:
            return f'"{header}" is in no room; write the path below src/'
        room = self.rooms[own]
        allowed = {own, *room["rooms"]}
        if self.is_test(path):
            allowed |= set(room.get("test_rooms", []))
        if other in allowed or header in room.get("headers", []):
            return None
        return f'{own} may not include "{header}" of {other} (allowed: {", ".join(sorted(allowed - {own})) or "no room"})'

    def about_system(self, own, header, path):
        if self.rooms[own]["system"] == "any" or is_standard(header):
            return None
        if self.is_test(path) and header.startswith(self.test_system):
            return None
        if (path, header) in self.exceptions:
            self.used_exceptions.add((path, header))
            return None
        return f"{own} may include only the standard library, found <{header}>"


def check(root):
    with open(root / "tools" / "layers.toml", "rb") as file:
        table = Table(tomllib.load(file))
    complaints = []
    for path in sorted((root / "src").rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix not in SOURCES or table.room_of(name) is None:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            complaint = table.complaint(name, found.group(2), found.group(1) == '"')
            if complaint:
                complaints.append(f"{name}:{number}: {complaint}")
    for file, header in sorted(set(table.exceptions) - table.used_exceptions):
        complaints.append(f"tools/layers.toml: the exception for <{header}> in {file} is not needed any more")
    return complaints


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    complaints = check(root)
    print("\n".join(complaints) if complaints else "layers: every #include is allowed")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
