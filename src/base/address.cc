#include "base/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace rdmalab {

std::string MacAddress::to_string() const {
    char text[18];
    std::snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", bytes[0], bytes[1], bytes[2],
                  bytes[3], bytes[4], bytes[5]);
    return text;
}

std::optional<MacAddress> MacAddress::parse(std::string_view text) {
    if (text.size() != 17) return std::nullopt;
    MacAddress mac;
    const auto digit = [](char c) -> int {
        if (c >= '0' && c <= '9') return c - '0';
        if (c >= 'a' && c <= 'f') return c - 'a' + 10;
        if (c >= 'A' && c <= 'F') return c - 'A' + 10;
        return -1;
    };
    for (std::size_t i = 0; i < 6; ++i) {
        const int high = digit(text[i * 3]);
        const int low = digit(text[i * 3 + 1]);
        if (high < 0 || low < 0 || (i < 5 && text[i * 3 + 2] != ':')) return std::nullopt;
        mac.bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
    }
    return mac;
}

bool Gid::is_zero() const {
    return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b == 0; });
}

bool Gid::is_ipv4() const {
    static constexpr std::array<std::uint8_t, 12> kPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::equal(kPrefix.begin(), kPrefix.end(), bytes.begin());
}

bool Gid::is_link_local() const { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

bool Gid::is_multicast() const { return bytes[0] == 0xff || (is_ipv4() && bytes[12] >> 4 == 0xe); }

std::uint32_t Gid::ipv4() const {
    return std::uint32_t{bytes[12]} << 24 | std::uint32_t{bytes[13]} << 16 |
           std::uint32_t{bytes[14]} << 8 | bytes[15];
}

std::string Gid::to_string() const {
    char text[INET6_ADDRSTRLEN];
    if (is_ipv4()) {
        inet_ntop(AF_INET, bytes.data() + 12, text, sizeof text);
    } else {
        inet_ntop(AF_INET6, bytes.data(), text, sizeof text);
    }
    return text;
}

std::optional<Gid> Gid::parse(std::string_view text) {
    const std::string terminated(text);
    Gid gid;
    in_addr four;
    if (inet_pton(AF_INET, terminated.c_str(), &four) == 1) return from_ipv4(ntohl(four.s_addr));
    if (inet_pton(AF_INET6, terminated.c_str(), gid.bytes.data()) == 1) return gid;
    return std::nullopt;
}

Gid Gid::from_ipv4(std::uint32_t host_order) {
    Gid gid;
    gid.bytes[10] = gid.bytes[11] = 0xff;
    for (int i = 0; i < 4; ++i)
        gid.bytes[static_cast<std::size_t>(12 + i)] =
            static_cast<std::uint8_t>(host_order >> (24 - 8 * i));
    return gid;
}

Gid Gid::link_local(const MacAddress& mac) {
    Gid gid;
    gid.bytes = {0xfe,
                 0x80,
                 0,
                 0,
                 0,
                 0,
                 0,
                 0,
                 static_cast<std::uint8_t>(mac.bytes[0] ^ 2),
                 mac.bytes[1],
                 mac.bytes[2],
                 0xff,
                 0xfe,
                 mac.bytes[3],
                 mac.bytes[4],
                 mac.bytes[5]};
    return gid;
}

MacAddress Gid::multicast_mac() const {
    if (is_ipv4())
        return {
            {0x01, 0x00, 0x5e, static_cast<std::uint8_t>(bytes[13] & 0x7f), bytes[14], bytes[15]}};
    return {{0x33, 0x33, bytes[12], bytes[13], bytes[14], bytes[15]}};
}

}  // namespace rdmalab
