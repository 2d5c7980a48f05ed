"""A second opinion on frames: reads pcapng, dissects RoCEv2 just far enough, and computes the ICRC with zlib.

Shares no code with the card: header offsets and the mask are written here from the standard (IBTA annex A17).
"""

import struct
import zlib
from collections import namedtuple

ROCE_PORT = 4791

RC_SEND_ONLY, RC_ACK, RC_READ_REQUEST, RC_ATOMIC_ACK = 0x04, 0x11, 0x0C, 0x12
CNP = 0x81

Frame = namedtuple(
    "Frame",
    "raw version traffic_class hop_limit flow_label source destination source_port opcode qpn psn ack_request payload_length",
)


class Malformed(ValueError):
    pass


def blocks(data):
    """(type, body) of every pcapng block; little endian, as the card writes on this machine."""
    at = 0
    while at < len(data):
        if at + 12 > len(data):
            raise Malformed(f"the file ends inside a block at {at}")
        kind, length = struct.unpack_from("<II", data, at)
        if length % 4 or length < 12 or at + length > len(data):
            raise Malformed(f"block at {at}: length {length}")
        if struct.unpack_from("<I", data, at + length - 4)[0] != length:
            raise Malformed(f"block at {at}: the two lengths differ")
        yield kind, data[at + 8 : at + length - 4]
        at += length


def read_pcapng(path):
    """The raw bytes of every packet."""
    with open(path, "rb") as file:
        data = file.read()
    packets = []
    for kind, body in blocks(data):
        if kind == 6:
            captured, original = struct.unpack_from("<II", body, 12)
            if captured != original:
                raise Malformed("a truncated packet")
            packets.append(body[20 : 20 + captured])
    return packets


def dissect(raw):
    """The facts of a RoCEv2 frame, None for other frames."""
    ether_type = struct.unpack_from(">H", raw, 12)[0]
    if ether_type == 0x0800:
        if raw[14] != 0x45 or raw[23] != 17:
            return None
        fields = (4, raw[15], raw[22], 0, raw[26:30], raw[30:34])
        udp, l3_length = 34, struct.unpack_from(">H", raw, 16)[0]
    elif ether_type == 0x86DD:
        if raw[20] != 17:
            return None
        word = struct.unpack_from(">I", raw, 14)[0]
        fields = (6, (word >> 20) & 0xFF, raw[21], word & 0xFFFFF, raw[22:38], raw[38:54])
        udp, l3_length = 54, 40 + struct.unpack_from(">H", raw, 18)[0]
    else:
        return None
    source_port, target_port, udp_length = struct.unpack_from(">HHH", raw, udp)
    if target_port != ROCE_PORT:
        return None
    if l3_length != len(raw) - 14 or udp_length != len(raw) - udp:
        raise Malformed(f"lengths: IP {l3_length}, UDP {udp_length}, frame {len(raw)}")
    bth = udp + 8
    opcode, flags = raw[bth], raw[bth + 1]
    qpn = int.from_bytes(raw[bth + 5 : bth + 8], "big")
    psn = int.from_bytes(raw[bth + 9 : bth + 12], "big")
    pad = (flags >> 4) & 3
    length = len(raw) - bth - 12 - 4 - pad
    return Frame(raw, *fields, source_port, opcode, qpn, psn, bool(raw[bth + 8] & 0x80), length)


def icrc(frame):
    """What the last four bytes of this frame should be."""
    masked = bytearray(frame.raw[14:-4])
    if frame.version == 4:
        masked[1] = 0xFF  # ToS
        masked[8] = 0xFF  # TTL
        masked[10:12] = b"\xff\xff"  # header checksum
        udp = 20
    else:
        masked[0] |= 0x0F  # traffic class and flow label
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF  # hop limit
        udp = 40
    masked[udp + 6 : udp + 8] = b"\xff\xff"  # UDP checksum
    masked[udp + 8 + 4] = 0xFF  # BTH resv8a
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + masked))


def ipv4_checksum_right(frame):
    if frame.version != 4:
        return True
    total = sum(struct.unpack(">10H", frame.raw[14:34]))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF


def udp_source_port_of(flow_label):
    """The port that carries a flow label's entropy, as ibv_flow_label_to_udp_sport(3) folds it."""
    return (flow_label & 0x3FFF) ^ ((flow_label >> 14) & 0x3F) | 0xC000
