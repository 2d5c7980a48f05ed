"""Reads what Debian's perftest prints (6.06): one row of numbers per message size."""

import re

BANDWIDTH = ["size", "iterations", "peak", "average", "message_rate"]
LATENCY = ["size", "iterations", "min", "max", "typical", "average", "stdev", "p99", "p999"]
LATENCY_ATOMIC = LATENCY
LATENCY_DURATION = ["size", "iterations", "average", "tps"]

NUMBER = re.compile(r"^\s*\d+(\s+[\d.]+)+\s*$")


def rows(text):
    """Every result row as a dict; the heading above it tells the columns."""
    columns, found = None, []
    for line in text.splitlines():
        if line.lstrip().startswith("#bytes"):
            columns = columns_of(line)
        elif columns and NUMBER.match(line):
            values = line.split()
            found.append({name: float(value) for name, value in zip(columns, values)})
    return found


def columns_of(heading):
    if "BW peak" in heading:
        return BANDWIDTH
    if "tps" in heading:
        return LATENCY_DURATION
    return LATENCY


def facts(text):
    """The header's `name : value` pairs, e.g. {'Mtu': '4096[B]', 'GID index': '1'}."""
    found = {}
    for name, value in re.findall(r"([A-Za-z][\w .]*?)\s*: ?([^\s:]+)", text):
        found.setdefault(name.strip(), value)
    return found
