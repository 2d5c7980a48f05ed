#include "wire/testing.h"

#include <algorithm>
#include <cstdio>

namespace rdmalab::wire::testing {

Bytes from_hex(std::string_view hex) {
    Bytes bytes;
    unsigned value = 0;
    int digits = 0;
    for (const char c : hex) {
        if (c == ' ' || c == '\n') continue;
        value = value * 16 + static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
        if (++digits % 2 == 0) {
            bytes.push_back(static_cast<std::byte>(value));
            value = 0;
        }
    }
    return bytes;
}

std::string to_hex(ByteView bytes) {
    std::string hex;
    for (const std::byte byte : bytes) {
        char text[3];
        std::snprintf(text, sizeof text, "%02x", std::to_integer<unsigned>(byte));
        hex += text;
    }
    return hex;
}

Bytes connectx_cnp() {
    return from_hex(
        "e41d2dab2bc2 7cfe90643b32 0800"
        "45c2003c 718c4000 40119161 0a001101 0a001201"
        "0000 12b7 0028 0000"
        "81 00 ffff 40 000118 00 000000"
        "00000000000000000000000000000000 82fd002a");
}

Bytes uc_send_only() {
    return from_hex(
        "248a07a8fa22 248a07a8fa22 0800"
        "45010040 04784000 4011b4d5 c0a80007 c0a80007"
        "c000 12b7 002c aca2"
        "24 60 ffff 00 0000d3 00 cf1710"
        "4630818be28935d90e9a95505401be885e50 0000 78f353f3");
}

std::uint32_t slow_crc32(ByteView bytes) {
    std::uint32_t crc = 0xffff'ffff;
    for (const std::byte byte : bytes) {
        for (unsigned bit = 0; bit < 8; ++bit) {
            const std::uint32_t in = std::to_integer<std::uint32_t>(byte) >> bit & 1;
            const bool divide = ((crc ^ in) & 1) != 0;
            crc >>= 1;
            if (divide) crc ^= 0xedb8'8320;  // the polynomial 04c11db7, bits reversed
        }
    }
    return ~crc;
}

std::uint32_t slow_icrc(ByteView l3_packet, bool ipv6) {
    Bytes covered(8 + l3_packet.size(), std::byte{0xff});
    std::copy(l3_packet.begin(), l3_packet.end(), covered.begin() + 8);
    std::byte* const ip = covered.data() + 8;
    std::byte* udp = ip + 20;
    const auto ones = [](std::byte& byte) { byte = std::byte{0xff}; };
    if (ipv6) {
        udp = ip + 40;
        ip[0] |= std::byte{0x0f};
        for (const std::size_t i : {1u, 2u, 3u, 7u}) ones(ip[i]);
    } else {
        for (const std::size_t i : {1u, 8u, 10u, 11u}) ones(ip[i]);
    }
    ones(udp[6]);
    ones(udp[7]);
    ones(udp[8 + 4]);
    return slow_crc32(covered);
}

Path path_of(bool ipv6) {
    Path path;
    path.source_mac = *MacAddress::parse("02:00:00:00:00:01");
    path.destination_mac = *MacAddress::parse("02:00:00:00:00:02");
    path.source = *Gid::parse(ipv6 ? "fd00::1" : "10.0.0.1");
    path.destination = *Gid::parse(ipv6 ? "fd00::2" : "10.0.0.2");
    path.traffic_class = 0x6a;  // DSCP 26, ECT(0)
    path.hop_limit = 17;
    path.flow_label = 0x1'2345;
    path.source_port = 0xc123;
    return path;
}

void make_frame(Frame& frame, bool ipv6, const OpcodeInfo& info, const Bytes& payload, Prng& prng) {
    start_roce(frame, make_lower_template(path_of(ipv6)), info);
    Bth& bth = *header_at<Bth>(frame, frame.bth_offset);
    bth.destination_qp = static_cast<std::uint32_t>(prng.next() & 0xff'ffff);
    bth.psn = static_cast<std::uint32_t>(prng.next() & 0xff'ffff);
    bth.ack_request = prng.chance(0.5) ? 0x80 : 0;
    for (std::size_t at = frame.bth_offset + sizeof(Bth); at < frame.header_length; ++at)
        frame.header[at] = static_cast<std::byte>(prng.next() & 0xff);
    if (!payload.empty())
        frame.add_segment({kCardSpace, static_cast<std::uint32_t>(payload.size()),
                           reinterpret_cast<std::uint64_t>(payload.data())});
    finish_roce(frame);
}

std::vector<const OpcodeInfo*> all_opcodes() {
    std::vector<const OpcodeInfo*> opcodes;
    for (unsigned opcode = 0; opcode < 256; ++opcode)
        if (const auto* info = find_opcode(static_cast<std::uint8_t>(opcode)))
            opcodes.push_back(info);
    return opcodes;
}

Bytes random_payload(const OpcodeInfo& info, std::size_t length_max, Prng& prng) {
    if (!info.carries_payload) return {};
    Bytes payload(info.kind == PacketKind::kCnp ? 16 : prng.below(length_max + 1));
    for (std::byte& byte : payload) byte = static_cast<std::byte>(prng.next() & 0xff);
    return payload;
}

Bytes written(const Frame& frame, const Bytes& payload) {
    Bytes out(wire_length(frame));
    out.resize(write_frame(frame, payload, out));
    return out;
}

ParseError parse(const Bytes& bytes, Frame& out) {
    return parse_frame(bytes, {kCardSpace, 0, reinterpret_cast<std::uint64_t>(bytes.data())}, out);
}

}  // namespace rdmalab::wire::testing
