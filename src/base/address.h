// Link and network addresses: MAC (6 bytes) and GID (16 bytes: an IPv6 address; an IPv4 address
// appears as ::ffff:a.b.c.d, which is how RoCEv2 names it, IBTA annex A17.4).
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rdmalab {

struct MacAddress {
    std::array<std::uint8_t, 6> bytes{};
    auto operator<=>(const MacAddress&) const = default;
    bool is_multicast() const { return (bytes[0] & 1) != 0; }
    std::string to_string() const;  // 02:00:00:00:00:01
    static std::optional<MacAddress> parse(std::string_view text);
    static constexpr MacAddress broadcast() { return {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}; }
};

struct Gid {
    std::array<std::uint8_t, 16> bytes{};
    auto operator<=>(const Gid&) const = default;
    bool is_zero() const;
    bool is_ipv4() const;           // ::ffff:a.b.c.d
    bool is_link_local() const;     // fe80::/10
    bool is_multicast() const;      // ff00::/8, or an IPv4-mapped 224.0.0.0/4
    std::uint32_t ipv4() const;     // host byte order; is_ipv4() must hold
    std::string to_string() const;  // 10.0.0.1 or fd00::1
    // Accepts an IPv4 or an IPv6 literal.
    static std::optional<Gid> parse(std::string_view text);
    static Gid from_ipv4(std::uint32_t host_order);
    static Gid link_local(const MacAddress& mac);  // fe80:: + EUI-64 (RFC 4291 appendix A)
    // The MAC that a multicast GID maps to (RFC 1112 for IPv4, RFC 2464 for IPv6).
    MacAddress multicast_mac() const;
};

}  // namespace rdmalab
