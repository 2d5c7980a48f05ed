// Where each field lies: the room's own knowledge of headers, as a table. All fields are
// big-endian, in headers and in the notes alike, so matching and rewriting never ask what they are.
#pragma once

#include <cstdint>
#include <string_view>

#include "flow/fields.h"

namespace rdmalab::flow {

// What offsets of fields count from.
enum class Base : std::uint8_t { kEthernet, kL3, kL4, kBth, kNotes };
inline constexpr std::size_t kBaseCount = 5;

// Headers that a packet has, as bits.
enum Layer : std::uint32_t {
    kLayerVlan0 = 1,
    kLayerVlan1 = 2,
    kLayerIpv4 = 4,
    kLayerIpv6 = 8,
    kLayerTcp = 16,
    kLayerUdp = 32,
    kLayerTransport = 64,  // TCP or UDP
    kLayerIcmp = 128,      // ICMP or ICMPv6
    kLayerRoce = 256,
};
std::string_view name_of_layer(std::uint32_t bit);

// What a change of a field entails.
enum class Effect : std::uint8_t {
    kNotWritable,
    kPlain,      // nothing: Ethernet, VLAN, IPv6 traffic class, notes
    kIpHeader,   // the IPv4 header checksum
    kAddress,    // that, the L4 checksum (pseudo header), and the ICRC covers it
    kTransport,  // the L4 checksum, and the ICRC covers it
};
inline constexpr std::size_t kEffectCount = 5;

enum class TextForm : std::uint8_t { kNumber, kHex, kMac, kIpv4, kIpv6 };

struct FieldLayout {
    std::string_view name;
    std::uint8_t width;  // bits
    Base base;
    std::int8_t offset;    // bytes from the base
    std::uint8_t length;   // bytes that hold it
    std::uint8_t shift;    // bits to the right of it in these bytes
    std::uint32_t layers;  // headers that a packet needs to have the field; kLayer*
    Effect effect;
    TextForm form;
};

const FieldLayout& layout_of(Field field);
inline bool is_metadata(Field field) { return layout_of(field).base == Base::kNotes; }

}  // namespace rdmalab::flow
