#include "flow/packet.h"

#include <algorithm>

#include "wire/headers.h"

namespace rdmalab::flow {
namespace {

constexpr std::uint8_t kProtocolEsp = 50;
constexpr std::uint16_t kFragmentBits = 0x3fff;  // more fragments, offset

bool is_ipv6(const wire::Frame& frame) {
    return std::to_integer<unsigned>(frame.header[frame.l3_offset]) >> 4 == 6;
}

// Without an IP header the frame's parsed part ends behind the tags. What is too short even for
// Ethernet (a raw frame of a program) is taken as if it were not: its header array is long enough.
std::size_t l2_length(const wire::Frame& frame) {
    if (frame.l3_offset != 0) return frame.l3_offset;
    return std::max<std::size_t>(frame.header_length, sizeof(wire::EthernetHeader));
}

std::uint32_t l4_layers(const wire::Frame& frame) {
    if (frame.l4_offset == 0) return 0;
    switch (wire::ip_protocol(frame)) {
        case wire::kIpProtocolUdp:
            return kLayerUdp | kLayerTransport;
        case wire::kIpProtocolTcp:
            return kLayerTcp | kLayerTransport;
        case wire::kIpProtocolIcmp:
        case wire::kIpProtocolIcmp6:
            return kLayerIcmp;
        default:
            return 0;
    }
}

std::uint32_t vlan_layers(std::size_t l2) {
    constexpr std::size_t kOneTag = sizeof(wire::EthernetHeader) + sizeof(wire::VlanTag);
    if (l2 < kOneTag) return 0;
    return l2 < kOneTag + sizeof(wire::VlanTag) ? kLayerVlan0 : kLayerVlan0 | kLayerVlan1;
}

std::uint32_t layers_of(const wire::Frame& frame, std::size_t l2) {
    const std::uint32_t vlan = vlan_layers(l2);
    if (frame.l3_offset == 0) return vlan;
    const std::uint32_t l3 = vlan | (is_ipv6(frame) ? kLayerIpv6 : kLayerIpv4);
    if (frame.bth_offset != 0) return l3 | kLayerRoce | kLayerUdp | kLayerTransport;
    return l3 | l4_layers(frame);
}

MetaL4Type l4_type_of(std::uint8_t protocol) {
    switch (protocol) {
        case wire::kIpProtocolUdp:
            return MetaL4Type::kUdp;
        case wire::kIpProtocolTcp:
            return MetaL4Type::kTcp;
        case wire::kIpProtocolIcmp:
        case wire::kIpProtocolIcmp6:
            return MetaL4Type::kIcmp;
        case kProtocolEsp:
            return MetaL4Type::kEsp;
        default:
            return MetaL4Type::kNone;
    }
}

}  // namespace

void Packet::start(wire::Frame& frame_in, PortId port, std::size_t wire_length, bool with_types) {
    const std::size_t l2 = l2_length(frame_in);
    frame = &frame_in;
    layers = layers_of(frame_in, l2);
    length = static_cast<std::uint32_t>(wire_length);
    ingress = port;
    notes = {};
    notes.port = port.value;
    set_bases(l2);
    if (with_types) set_types();
}

void Packet::start_copy(const Packet& original, wire::Frame& copied) {
    frame = &copied;
    layers = original.layers;
    length = original.length;
    ingress = original.ingress;
    notes = original.notes;
    set_bases(l2_length(copied));
}

void Packet::set_types() {
    const auto l2 = (layers & kLayerVlan1) != 0   ? MetaL2Type::kMultiVlan
                    : (layers & kLayerVlan0) != 0 ? MetaL2Type::kSingleVlan
                                                  : MetaL2Type::kNoVlan;
    notes.l2_type = static_cast<std::uint8_t>(l2);
    if (frame->l3_offset == 0) return;
    const bool v6 = (layers & kLayerIpv6) != 0;
    notes.l3_type = static_cast<std::uint8_t>(v6 ? MetaL3Type::kIpv6 : MetaL3Type::kIpv4);
    notes.l4_type = static_cast<std::uint8_t>(l4_type_of(wire::ip_protocol(*frame)));
    // Frames with a damaged L3 header do not pass the parser.
    notes.l3_ok = 1;
    notes.l4_ok = frame->l4_offset != 0;
    if (v6) return;
    const auto& ip = *wire::header_at<wire::Ipv4Header>(*frame, frame->l3_offset);
    notes.ipv4_checksum_ok = 1;
    notes.ip_fragmented = (ip.flags_fragment & kFragmentBits) != 0;
}

FieldValue read_field(const Packet& packet, Field field) {
    const FieldLayout& layout = layout_of(field);
    const std::byte* at = packet.base(layout.base) + layout.offset;
    FieldValue value;
    for (unsigned i = 0; i < layout.length; ++i) {
        value.high = value.high << 8 | value.low >> 56;
        value.low = value.low << 8 | std::to_integer<std::uint64_t>(at[i]);
    }
    value.low >>= layout.shift;  // shifted fields are short
    return value & all_ones(field);
}

}  // namespace rdmalab::flow
