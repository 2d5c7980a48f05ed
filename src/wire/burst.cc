#include "wire/burst.h"

#include <cassert>

#include "wire/checksum.h"
#include "wire/icrc.h"

namespace rdmalab::wire {
namespace {

template <class Header>
Header load(const LowerHead& head, std::size_t at) {
    return load_bytes<Header>(head.bytes.data() + at);
}

// Sum over the pseudo header, not complemented (RFC 768, RFC 8200 section 8.1).
std::uint16_t pseudo_header_sum(const LowerHead& head, std::uint16_t udp_length) {
    std::array<std::byte, 40> pseudo{};
    const std::byte* const l3 = head.bytes.data() + head.l3_offset;
    const std::size_t addresses = head.is_ipv6() ? 32 : 8;
    std::memcpy(pseudo.data(), l3 + (head.is_ipv6() ? 8 : 12), addresses);
    pseudo[addresses + 1] = std::byte{kIpProtocolUdp};
    pseudo[addresses + 2] = static_cast<std::byte>(udp_length >> 8);
    pseudo[addresses + 3] = static_cast<std::byte>(udp_length & 0xff);
    return static_cast<std::uint16_t>(checksum_sum(pseudo.data(), pseudo.size() / 4));
}

}  // namespace

LowerHead::LowerHead(const Frame& roce)
    : length(static_cast<std::uint8_t>(roce.bth_offset)),
      l3_offset(static_cast<std::uint8_t>(roce.l3_offset)),
      l4_offset(static_cast<std::uint8_t>(roce.l4_offset)) {
    assert(is_roce(roce) && roce.bth_offset <= kMax);
    std::memcpy(bytes.data(), roce.header.data(), length);
    if (is_ipv6()) {
        auto ip = load<Ipv6Header>(*this, l3_offset);
        ip.payload_length = 0;
        store_bytes(bytes.data() + l3_offset, ip);
    } else {
        auto ip = load<Ipv4Header>(*this, l3_offset);
        ip.checksum = updated_checksum(ip.checksum, ip.total_length, 0);
        ip.total_length = 0;
        store_bytes(bytes.data() + l3_offset, ip);
    }
    auto udp = load<UdpHeader>(*this, l4_offset);
    udp.length = 0;
    store_bytes(bytes.data() + l4_offset, udp);
}

void seal(LowerHead& head, std::size_t udp_payload, bool is_burst) {
    assert(udp_payload <= head.payload_max());
    const auto l4_length = static_cast<std::uint16_t>(sizeof(UdpHeader) + udp_payload);
    if (head.is_ipv6()) {
        auto ip = load<Ipv6Header>(head, head.l3_offset);
        ip.payload_length = l4_length;
        store_bytes(head.bytes.data() + head.l3_offset, ip);
    } else {
        auto ip = load<Ipv4Header>(head, head.l3_offset);
        const auto total = static_cast<std::uint16_t>(sizeof ip + l4_length);
        ip.checksum = updated_checksum(ip.checksum, 0, total);
        ip.total_length = total;
        store_bytes(head.bytes.data() + head.l3_offset, ip);
    }
    auto udp = load<UdpHeader>(head, head.l4_offset);
    udp.length = l4_length;
    if (is_burst) udp.checksum = pseudo_header_sum(head, l4_length);
    store_bytes(head.bytes.data() + head.l4_offset, udp);
}

std::uint32_t icrc_in_burst(const LowerHead& head, std::uint16_t index, ByteView udp_payload) {
    assert(udp_payload.size() >= sizeof(Bth));
    LowerHead own = head;
    seal(own, udp_payload.size() + kIcrcLength, false);
    if (!own.is_ipv6()) {
        auto ip = load<Ipv4Header>(own, own.l3_offset);
        ip.identification = static_cast<std::uint16_t>(ip.identification + index);
        store_bytes(own.bytes.data() + own.l3_offset, ip);
    }
    std::array<std::byte, LowerHead::kMax + sizeof(Bth)> first;
    const std::size_t lower = static_cast<std::size_t>(own.length - own.l3_offset);
    std::memcpy(first.data(), own.bytes.data() + own.l3_offset, lower);
    std::memcpy(first.data() + lower, udp_payload.data(), sizeof(Bth));
    Icrc icrc = Icrc::of_head(ByteView(first).first(lower + sizeof(Bth)), own.is_ipv6());
    icrc.add(udp_payload.subspan(sizeof(Bth)));
    return icrc.value();
}

}  // namespace rdmalab::wire
