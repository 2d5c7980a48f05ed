"""What connections by RDMA CM cost: the rate of cmtime, of one process and of a storm of 64, and the rate beside few and
beside many live connections."""

import contextlib
import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "programs"))
import harness
import rdmacm
from harness import CLIENT_DEVICE, IP_OF, SERVER_DEVICE, Failure, wait_until

IP = IP_OF[SERVER_DEVICE]
PORT = 7471
ON_CLIENT = {"RDMALAB_DEVICES": CLIENT_DEVICE}
ON_SERVER = {"RDMALAB_DEVICES": SERVER_DEVICE}
CMTIME_CONNECTIONS = 1000
# No target of a peer: what a slow machine under load still makes, so that a card that keeps its clients waiting is seen.
RATE_MIN = 200


def cmtime(card):
    """Connections per second, all steps from creating an id to destroying it."""
    words = ["cmtime", "-c", CMTIME_CONNECTIONS]
    server = rdmacm.start_server(card, words, ON_SERVER)  # it never ends by itself
    try:
        text = card.run(*words, "-s", IP, env=ON_CLIENT, timeout=120).stdout
    finally:
        server.kill_group()
    steps = re.findall(r"^[a-z ]+:\s*([\d.]+)", text, re.M)  # ms in total for all connections
    if len(steps) != 7:
        raise Failure(f"cmtime printed\n{text}")
    card.wait_idle(30)
    return CMTIME_CONNECTIONS / (sum(map(float, steps)) / 1000)


@contextlib.contextmanager
def server(card):
    program = card.start(harness.tool("cm_load"), "server", PORT, env=ON_SERVER)
    if not wait_until(lambda: "listening" in program.stdout, 20):
        raise Failure(program.report("server"))
    try:
        yield
    finally:
        program.kill_group()
        card.wait_idle(60)


def rate(card, connections, rounds, processes):
    words = [harness.tool("cm_load"), "client", IP, PORT, connections, rounds, processes]
    text = card.run(*words, env=ON_CLIENT, timeout=300).stdout
    return float(re.search(r": ([\d.]+) per second", text).group(1))


def one_process(card):
    with server(card):
        return rate(card, 1, 500, 1)


def storm(card):
    with server(card):
        return rate(card, 1, 20, 64)


def beside(live):
    def measure(card):
        with server(card):
            holder = card.start(harness.tool("cm_load"), "hold", IP, PORT, live, env=ON_CLIENT)
            if not wait_until(lambda: "holding" in holder.stdout or not holder.running(), 300) or not holder.running():
                raise Failure(holder.report("holder"))
            try:
                return rate(card, 1, 500, 1)
            finally:
                os.kill(holder.find("cm_load"), signal.SIGTERM)
                holder.wait(60)
                holder.kill_group()

    return measure


MEASUREMENTS = {
    "cmtime": cmtime,
    "one_process": one_process,
    "storm": storm,
    "beside_10": beside(10),
    "beside_10000": beside(10_000),
}


def per_second(value):
    return f"{value:.0f}/s"


def lines(median):
    """Arguments of the table's lines."""
    if "cmtime" not in median:
        return []
    return [
        (
            f"`cmtime`, {CMTIME_CONNECTIONS} connections at once, all steps",
            per_second(median["cmtime"]),
            per_second(RATE_MIN),
            median["cmtime"] / RATE_MIN,
            ">=",
            1,
        ),
        (
            "connect, echo, disconnect: 64 processes against one",
            per_second(median["storm"]),
            per_second(median["one_process"]),
            median["storm"] / median["one_process"],
            ">=",
            0.5,
        ),
        (
            "connect, echo, disconnect: beside 10,000 live connections against beside 10",
            per_second(median["beside_10000"]),
            per_second(median["beside_10"]),
            median["beside_10000"] / median["beside_10"],
            ">=",
            0.5,
        ),
    ]


def growth_line(pieces):
    """Instructions of the card per connection; constant means that all connections together cost linearly."""
    few, many = (
        next(piece.instructions for piece in pieces if piece.name == f"connect_and_disconnect/{live}") for live in (10, 10000)
    )
    title = "instructions of the card per connection: beside 10,000 live ones against beside 10"
    return title, f"{many:.0f}", f"{few:.0f}", many / few, "<=", 1.5
