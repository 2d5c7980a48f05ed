// What the tests of this room share: known frames from real adapters, a CRC written from the
// standard's definition bit by bit, and seeded random frames of every opcode.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "wire/headers.h"
#include "wire/icrc.h"

namespace rdmalab::wire::testing {

using Bytes = std::vector<std::byte>;

// "0a 0b0c": pairs of hex digits, blanks between them do not matter.
Bytes from_hex(std::string_view hex);
std::string to_hex(ByteView bytes);

// A CNP as a ConnectX-4 Lx sent it.
Bytes connectx_cnp();
// A UC SEND Only with 18 bytes of payload and two of pad.
Bytes uc_send_only();

// CRC-32 of IEEE 802.3, one bit at a time.
std::uint32_t slow_crc32(ByteView bytes);
// The ICRC of annex A17 of an L3 packet without its ICRC, with fields masked one by one.
std::uint32_t slow_icrc(ByteView l3_packet, bool ipv6);

Path path_of(bool ipv6);
// A finished frame of `info` with random fields and `payload` as its only segment.
void make_frame(Frame& frame, bool ipv6, const OpcodeInfo& info, const Bytes& payload, Prng& prng);
// All opcodes that the table knows.
std::vector<const OpcodeInfo*> all_opcodes();
// A payload that `info` may carry.
Bytes random_payload(const OpcodeInfo& info, std::size_t length_max, Prng& prng);

Bytes written(const Frame& frame, const Bytes& payload);
ParseError parse(const Bytes& bytes, Frame& out);

}  // namespace rdmalab::wire::testing
