// How a frame is made. Everything below the BTH is the same for all packets of a path but for the
// two length fields and, over IPv4, the checksum that covers one of them. So a path becomes a
// template once, with length zero and a checksum that is right for it; a packet costs one copy of
// fixed size, and the checksum is *updated* for the real length (RFC 1624) instead of summed up.
#include "wire/checksum.h"
#include "wire/headers.h"

namespace rdmalab::wire {
namespace {

constexpr std::uint8_t kMigrationRequest = 0x40;
constexpr std::uint16_t kDefaultPkey = 0xffff;
constexpr std::uint16_t kDontFragment = 0x4000;
constexpr std::uint8_t kBecn = 0x40;
constexpr std::size_t kExtensionMax = 32;  // XRCETH and AtomicETH
constexpr std::size_t kCnpPayloadLength = 16;
alignas(16) constexpr std::array<std::byte, kCnpPayloadLength> kCnpPayload{};

Ipv4Header ipv4_header(const Path& path) {
    Ipv4Header ip{};
    ip.version_ihl = 0x45;
    ip.tos = path.traffic_class;
    // An atomic datagram may have any identification (RFC 6864).
    ip.flags_fragment = kDontFragment;
    ip.ttl = path.hop_limit;
    ip.protocol = kIpProtocolUdp;
    ip.source = path.source.ipv4();
    ip.destination = path.destination.ipv4();
    const auto sum = checksum_sum(reinterpret_cast<const std::byte*>(&ip), sizeof ip / 4);
    ip.checksum = static_cast<std::uint16_t>(~sum);
    return ip;
}

Ipv6Header ipv6_header(const Path& path) {
    Ipv6Header ip{};
    ip.version_class_label =
        6u << 28 | std::uint32_t{path.traffic_class} << 20 | (path.flow_label & 0xf'ffff);
    ip.next_header = kIpProtocolUdp;
    ip.hop_limit = path.hop_limit;
    ip.source = path.source.bytes;
    ip.destination = path.destination.bytes;
    return ip;
}

}  // namespace

std::uint16_t source_port_for(std::uint32_t flow_label, Qpn local, Qpn remote) {
    std::uint64_t label = flow_label & 0xf'ffff;
    if (label == 0) {
        label = std::uint64_t{local.value} * remote.value;
        label ^= label >> 20;
        label ^= label >> 40;
        label &= 0xf'ffff;
    }
    return static_cast<std::uint16_t>(0xc000 | ((label ^ label >> 14) & 0x3fff));
}

LowerTemplate make_lower_template(const Path& path) {
    LowerTemplate lower{};
    const bool ipv4 = path.is_ipv4();
    const EthernetHeader ethernet{path.destination_mac.bytes, path.source_mac.bytes,
                                  ipv4 ? kEtherTypeIpv4 : kEtherTypeIpv6};
    store_bytes(lower.bytes.data(), ethernet);
    lower.l3_offset = sizeof ethernet;
    std::byte* const l3 = lower.bytes.data() + lower.l3_offset;
    if (ipv4) {
        store_bytes(l3, ipv4_header(path));
        lower.l4_offset = lower.l3_offset + sizeof(Ipv4Header);
    } else {
        store_bytes(l3, ipv6_header(path));
        lower.l4_offset = lower.l3_offset + sizeof(Ipv6Header);
    }
    const UdpHeader udp{path.source_port, kRoceUdpPort, 0, 0};
    store_bytes(lower.bytes.data() + lower.l4_offset, udp);
    lower.length = static_cast<std::uint8_t>(lower.l4_offset + sizeof udp);
    return lower;
}

void start_roce(Frame& frame, const LowerTemplate& lower, const OpcodeInfo& info) {
    std::memcpy(frame.header.data(), lower.bytes.data(), sizeof lower.bytes);
    Bth bth{};
    bth.opcode = info.opcode;
    bth.flags = kMigrationRequest;
    bth.pkey = kDefaultPkey;
    std::byte* const at = frame.header.data() + lower.length;
    store_bytes(at, bth);
    std::memset(at + sizeof bth, 0, kExtensionMax);
    frame.header_length =
        static_cast<std::uint16_t>(lower.length + sizeof bth + info.extension_length);
    frame.l3_offset = lower.l3_offset;
    frame.l4_offset = lower.l4_offset;
    frame.bth_offset = lower.length;
    frame.icrc_state = IcrcState::kElided;
    frame.header_kept = false;
    frame.segment_count = 0;
    frame.payload_length = 0;
    frame.icrc = 0;
    frame.origin = 0;
}

void finish_roce(Frame& frame) {
    const std::uint32_t pad = pad_length(frame);
    auto& flags = header_at<Bth>(frame, frame.bth_offset)->flags;
    flags = static_cast<std::uint8_t>((flags & ~0x30u) | pad << 4);
    const auto l4_length = static_cast<std::uint16_t>(frame.header_length - frame.l4_offset +
                                                      frame.payload_length + pad + kIcrcLength);
    header_at<UdpHeader>(frame, frame.l4_offset)->length = l4_length;
    if (frame.l4_offset - frame.l3_offset == sizeof(Ipv4Header)) {
        auto* const ip = header_at<Ipv4Header>(frame, frame.l3_offset);
        const auto total = static_cast<std::uint16_t>(l4_length + sizeof *ip);
        ip->checksum = updated_checksum(ip->checksum, ip->total_length, total);
        ip->total_length = total;
    } else {
        header_at<Ipv6Header>(frame, frame.l3_offset)->payload_length = l4_length;
    }
}

void emit_cnp(Frame& frame, const LowerTemplate& lower, Qpn destination) {
    start_roce(frame, lower, *find_opcode(kOpcodeCnp));
    auto* const bth = header_at<Bth>(frame, frame.bth_offset);
    bth->flags = 0;
    bth->resv8a = kBecn;
    bth->destination_qp = destination.value;
    frame.add_segment(
        {kCardSpace, kCnpPayloadLength, reinterpret_cast<std::uint64_t>(kCnpPayload.data())});
    finish_roce(frame);
}

}  // namespace rdmalab::wire
