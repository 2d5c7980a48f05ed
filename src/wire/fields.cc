// Fields of a frame that work alike for IPv4 and IPv6. A frame without an IP header answers with
// zeros.
#include <algorithm>

#include "wire/checksum.h"
#include "wire/headers.h"

namespace rdmalab::wire {
namespace {

enum class Family : std::uint8_t { kNone, kIpv4, kIpv6 };

Family family(const Frame& frame) {
    if (frame.l3_offset == 0) return Family::kNone;
    const bool ipv4 = header_at<Ipv4Header>(frame, frame.l3_offset)->version_ihl >> 4 == 4;
    return ipv4 ? Family::kIpv4 : Family::kIpv6;
}

const Ipv4Header* ipv4(const Frame& frame) { return header_at<Ipv4Header>(frame, frame.l3_offset); }
const Ipv6Header* ipv6(const Frame& frame) { return header_at<Ipv6Header>(frame, frame.l3_offset); }

}  // namespace

std::uint8_t traffic_class(const Frame& frame) {
    switch (family(frame)) {
        case Family::kIpv4:
            return ipv4(frame)->tos;
        case Family::kIpv6:
            return static_cast<std::uint8_t>(ipv6(frame)->version_class_label >> 20);
        case Family::kNone:
            break;
    }
    return 0;
}

std::uint8_t hop_limit(const Frame& frame) {
    switch (family(frame)) {
        case Family::kIpv4:
            return ipv4(frame)->ttl;
        case Family::kIpv6:
            return ipv6(frame)->hop_limit;
        case Family::kNone:
            break;
    }
    return 0;
}

std::uint8_t ip_protocol(const Frame& frame) {
    switch (family(frame)) {
        case Family::kIpv4:
            return ipv4(frame)->protocol;
        case Family::kIpv6:
            return ipv6(frame)->next_header;
        case Family::kNone:
            break;
    }
    return 0;
}

Gid source_gid(const Frame& frame) {
    switch (family(frame)) {
        case Family::kIpv4:
            return Gid::from_ipv4(ipv4(frame)->source);
        case Family::kIpv6:
            return {ipv6(frame)->source};
        case Family::kNone:
            break;
    }
    return {};
}

Gid destination_gid(const Frame& frame) {
    switch (family(frame)) {
        case Family::kIpv4:
            return Gid::from_ipv4(ipv4(frame)->destination);
        case Family::kIpv6:
            return {ipv6(frame)->destination};
        case Family::kNone:
            break;
    }
    return {};
}

void set_traffic_class(Frame& frame, std::uint8_t value) {
    const Family which = family(frame);
    if (which == Family::kNone) return;
    frame.keep_emitted_header();
    if (which == Family::kIpv4) {
        auto* const ip = header_at<Ipv4Header>(frame, frame.l3_offset);
        const auto word = [&](std::uint8_t tos) {
            return static_cast<std::uint16_t>(ip->version_ihl << 8 | tos);
        };
        ip->checksum = updated_checksum(ip->checksum, word(ip->tos), word(value));
        ip->tos = value;
    } else {
        auto* const ip = header_at<Ipv6Header>(frame, frame.l3_offset);
        ip->version_class_label = (ip->version_class_label & ~0x0ff0'0000u) | std::uint32_t{value}
                                                                                  << 20;
    }
}

void set_ecn(Frame& frame, std::uint8_t code_point) {
    const auto rest = static_cast<std::uint8_t>(traffic_class(frame) & ~kEcnMask);
    set_traffic_class(frame, static_cast<std::uint8_t>(rest | (code_point & kEcnMask)));
}

MacAddress source_mac(const Frame& frame) { return {header_at<EthernetHeader>(frame, 0)->source}; }

MacAddress destination_mac(const Frame& frame) {
    return {header_at<EthernetHeader>(frame, 0)->destination};
}

}  // namespace rdmalab::wire
