// The CRC itself is ISA-L's (carry-less multiplication). Its convention is that of gzip: the value
// passed in and out is the complement of the CRC register, so calls can be chained.
//
// The standard prepends eight bytes of ones, which stand for a masked LRH. They are constant, so
// the chain starts with the value behind them instead of computing it for each packet.
//
// Which fields are variant is said once, as masks that are ORed over IP, UDP and BTH; the CRC and
// the comparison of an elided ICRC both read them.
#include "wire/icrc.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cassert>

#include "wire/headers.h"

namespace rdmalab::wire {
namespace {

constexpr std::uint32_t kAfterOnes = 0x2144'df1c;  // gzip CRC-32 of eight bytes 0xff

// Bytes of ones where a field is variant, as words in memory order.
template <std::size_t IpLength>
constexpr auto variant_mask(std::array<std::uint8_t, IpLength> ip) {
    std::array<std::uint8_t, IpLength + sizeof(UdpHeader) + sizeof(Bth)> mask{};
    std::copy(ip.begin(), ip.end(), mask.begin());
    mask[IpLength + 6] = mask[IpLength + 7] = 0xff;  // UDP checksum
    mask[IpLength + sizeof(UdpHeader) + 4] = 0xff;   // BTH resv8a
    return std::bit_cast<std::array<std::uint32_t, mask.size() / 4>>(mask);
}

constexpr auto kIpv4Variant = [] {
    std::array<std::uint8_t, sizeof(Ipv4Header)> ip{};
    ip[1] = 0xff;            // ToS
    ip[8] = 0xff;            // TTL
    ip[10] = ip[11] = 0xff;  // header checksum
    return variant_mask(ip);
}();
constexpr auto kIpv6Variant = [] {
    std::array<std::uint8_t, sizeof(Ipv6Header)> ip{};
    ip[0] = 0x0f;  // traffic class and flow label
    ip[1] = ip[2] = ip[3] = 0xff;
    ip[7] = 0xff;  // hop limit
    return variant_mask(ip);
}();

// A RoCE frame has no IPv4 options and no IPv6 extension headers, so the distance of the headers
// tells the family whatever a rewrite did to the version field.
bool is_ipv6(const Frame& frame) { return frame.l4_offset - frame.l3_offset == sizeof(Ipv6Header); }

std::uint32_t add_bytes(std::uint32_t crc, const std::byte* bytes, std::size_t length) {
    return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes), length);
}

// The first headers of a packet with their variant fields as ones.
template <std::size_t Words>
std::uint32_t crc_of_masked(const std::byte* l3, const std::array<std::uint32_t, Words>& variant) {
    std::array<std::uint32_t, Words> masked;
    std::memcpy(masked.data(), l3, sizeof masked);
    for (std::size_t i = 0; i < Words; ++i) masked[i] |= variant[i];
    return add_bytes(kAfterOnes, reinterpret_cast<const std::byte*>(masked.data()), sizeof masked);
}

std::uint32_t crc_of_l3(const std::byte* l3, std::size_t length, bool ipv6) {
    if (ipv6) {
        const std::uint32_t crc = crc_of_masked(l3, kIpv6Variant);
        return add_bytes(crc, l3 + sizeof kIpv6Variant, length - sizeof kIpv6Variant);
    }
    const std::uint32_t crc = crc_of_masked(l3, kIpv4Variant);
    return add_bytes(crc, l3 + sizeof kIpv4Variant, length - sizeof kIpv4Variant);
}

std::uint32_t crc_of_header(const Frame& frame, const std::byte* header) {
    assert(is_roce(frame));
    return crc_of_l3(header + frame.l3_offset,
                     static_cast<std::size_t>(frame.header_length - frame.l3_offset),
                     is_ipv6(frame));
}

template <std::size_t Words>
bool same_but_for(const std::byte* a, const std::byte* b,
                  const std::array<std::uint32_t, Words>& variant) {
    std::uint32_t difference = 0;
    for (std::size_t i = 0; i < Words; ++i)
        difference |=
            (load_bytes<std::uint32_t>(a + 4 * i) ^ load_bytes<std::uint32_t>(b + 4 * i)) &
            ~variant[i];
    return difference == 0;
}

std::uint32_t icrc_to_send(const Frame& frame, ByteView payload, ByteView pad) {
    if (frame.icrc_state == IcrcState::kPresent) return frame.icrc;
    Icrc icrc = Icrc::as_emitted(frame);
    icrc.add(payload);
    icrc.add(pad);
    return icrc.value();
}

}  // namespace

Icrc::Icrc(const Frame& frame) : state_(crc_of_header(frame, frame.header.data())) {}

Icrc Icrc::as_emitted(const Frame& frame) {
    const auto& header = frame.header_kept ? frame.emitted_header : frame.header;
    return Icrc(crc_of_header(frame, header.data()));
}

Icrc Icrc::of_head(ByteView l3_to_bth, bool ipv6) {
    assert(l3_to_bth.size() >= (ipv6 ? sizeof kIpv6Variant : sizeof kIpv4Variant));
    return Icrc(crc_of_l3(l3_to_bth.data(), l3_to_bth.size(), ipv6));
}

void Icrc::add(ByteView payload) { state_ = add_bytes(state_, payload.data(), payload.size()); }

std::uint32_t Icrc::value() const { return state_; }

std::uint32_t icrc_of_packet(ByteView l3_packet, bool ipv6) {
    assert(l3_packet.size() >= (ipv6 ? sizeof kIpv6Variant : sizeof kIpv4Variant));
    return crc_of_l3(l3_packet.data(), l3_packet.size(), ipv6);
}

bool invariants_unchanged(const Frame& frame) {
    if (!frame.header_kept || !is_roce(frame)) return true;
    const std::byte* const now = frame.header.data() + frame.l3_offset;
    const std::byte* const then = frame.emitted_header.data() + frame.l3_offset;
    const bool same_lower = is_ipv6(frame) ? same_but_for(now, then, kIpv6Variant)
                                           : same_but_for(now, then, kIpv4Variant);
    const std::size_t behind_bth = frame.bth_offset + sizeof(Bth);
    return same_lower &&
           std::memcmp(frame.header.data() + behind_bth, frame.emitted_header.data() + behind_bth,
                       frame.header_length - behind_bth) == 0;
}

std::size_t write_frame(const Frame& frame, ByteView payload, ByteSpan out) {
    assert(payload.size() == frame.payload_length);
    const std::size_t length = wire_length(frame);
    if (length > out.size()) return 0;
    std::byte* at = out.data();
    std::memcpy(at, frame.header.data(), frame.header_length);
    at += frame.header_length;
    if (!payload.empty()) std::memcpy(at, payload.data(), payload.size());
    if (!is_roce(frame)) return length;
    at += payload.size();
    static constexpr std::array<std::byte, 4> kZeros{};
    const ByteView pad(kZeros.data(), (0u - payload.size()) & 3);
    std::memcpy(at, pad.data(), pad.size());
    at += pad.size();
    // The CRC goes over the copy, which is hot in the cache and cannot change under our hands.
    const ByteView copied(out.data() + frame.header_length, payload.size());
    const std::uint32_t icrc = icrc_to_send(frame, copied, pad);
    for (std::size_t i = 0; i < kIcrcLength; ++i)
        at[i] = static_cast<std::byte>(icrc >> (8 * i) & 0xff);
    return length;
}

}  // namespace rdmalab::wire
