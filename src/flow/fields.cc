#include "flow/fields.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "flow/field_layout.h"
#include "flow/packet.h"

namespace rdmalab::flow {
namespace {

constexpr std::uint32_t kIp4 = kLayerIpv4, kIp6 = kLayerIpv6;
constexpr auto kReadOnly = Effect::kNotWritable;

constexpr FieldLayout meta_word(std::string_view name, unsigned index) {
    return {name,
            32,
            Base::kNotes,
            static_cast<std::int8_t>(offsetof(PacketNotes, u32) + 4 * index),
            4,
            0,
            0,
            Effect::kPlain,
            TextForm::kHex};
}
constexpr FieldLayout parser(std::string_view name, unsigned width, std::size_t offset) {
    return {name,
            static_cast<std::uint8_t>(width),
            Base::kNotes,
            static_cast<std::int8_t>(offset),
            static_cast<std::uint8_t>(width / 8),
            0,
            0,
            Effect::kNotWritable,
            TextForm::kNumber};
}

// In the order of Field.
constexpr FieldLayout kLayouts[] = {
    {"outer.eth.dst_mac", 48, Base::kEthernet, 0, 6, 0, 0, Effect::kPlain, TextForm::kMac},
    {"outer.eth.src_mac", 48, Base::kEthernet, 6, 6, 0, 0, Effect::kPlain, TextForm::kMac},
    {"outer.eth.type", 16, Base::kL3, -2, 2, 0, 0, kReadOnly, TextForm::kHex},
    {"outer.eth_vlan[0].tci", 16, Base::kEthernet, 14, 2, 0, kLayerVlan0, Effect::kPlain,
     TextForm::kHex},
    {"outer.eth_vlan[1].tci", 16, Base::kEthernet, 18, 2, 0, kLayerVlan1, Effect::kPlain,
     TextForm::kHex},
    {"outer.ipv4.src_ip", 32, Base::kL3, 12, 4, 0, kIp4, Effect::kAddress, TextForm::kIpv4},
    {"outer.ipv4.dst_ip", 32, Base::kL3, 16, 4, 0, kIp4, Effect::kAddress, TextForm::kIpv4},
    {"outer.ipv4.version_ihl", 8, Base::kL3, 0, 1, 0, kIp4, kReadOnly, TextForm::kHex},
    {"outer.ipv4.dscp_ecn", 8, Base::kL3, 1, 1, 0, kIp4, Effect::kIpHeader, TextForm::kHex},
    {"outer.ipv4.total_len", 16, Base::kL3, 2, 2, 0, kIp4, kReadOnly, TextForm::kNumber},
    {"outer.ipv4.identification", 16, Base::kL3, 4, 2, 0, kIp4, kReadOnly, TextForm::kHex},
    {"outer.ipv4.flags_fragment_offset", 16, Base::kL3, 6, 2, 0, kIp4, kReadOnly, TextForm::kHex},
    {"outer.ipv4.next_proto", 8, Base::kL3, 9, 1, 0, kIp4, kReadOnly, TextForm::kNumber},
    {"outer.ipv4.ttl", 8, Base::kL3, 8, 1, 0, kIp4, Effect::kIpHeader, TextForm::kNumber},
    {"outer.ipv6.src_ip", 128, Base::kL3, 8, 16, 0, kIp6, Effect::kAddress, TextForm::kIpv6},
    {"outer.ipv6.dst_ip", 128, Base::kL3, 24, 16, 0, kIp6, Effect::kAddress, TextForm::kIpv6},
    {"outer.ipv6.traffic_class", 8, Base::kL3, 0, 2, 4, kIp6, Effect::kPlain, TextForm::kHex},
    {"outer.ipv6.flow_label", 20, Base::kL3, 1, 3, 0, kIp6, Effect::kPlain, TextForm::kHex},
    {"outer.ipv6.payload_len", 16, Base::kL3, 4, 2, 0, kIp6, kReadOnly, TextForm::kNumber},
    {"outer.ipv6.next_proto", 8, Base::kL3, 6, 1, 0, kIp6, kReadOnly, TextForm::kNumber},
    {"outer.ipv6.hop_limit", 8, Base::kL3, 7, 1, 0, kIp6, Effect::kPlain, TextForm::kNumber},
    {"outer.udp.src_port", 16, Base::kL4, 0, 2, 0, kLayerUdp, Effect::kTransport,
     TextForm::kNumber},
    {"outer.udp.dst_port", 16, Base::kL4, 2, 2, 0, kLayerUdp, Effect::kTransport,
     TextForm::kNumber},
    {"outer.tcp.src_port", 16, Base::kL4, 0, 2, 0, kLayerTcp, Effect::kTransport,
     TextForm::kNumber},
    {"outer.tcp.dst_port", 16, Base::kL4, 2, 2, 0, kLayerTcp, Effect::kTransport,
     TextForm::kNumber},
    {"outer.tcp.flags", 8, Base::kL4, 13, 1, 0, kLayerTcp, kReadOnly, TextForm::kHex},
    {"outer.transport.src_port", 16, Base::kL4, 0, 2, 0, kLayerTransport, Effect::kTransport,
     TextForm::kNumber},
    {"outer.transport.dst_port", 16, Base::kL4, 2, 2, 0, kLayerTransport, Effect::kTransport,
     TextForm::kNumber},
    {"outer.icmp.type", 8, Base::kL4, 0, 1, 0, kLayerIcmp, kReadOnly, TextForm::kNumber},
    {"outer.icmp.code", 8, Base::kL4, 1, 1, 0, kLayerIcmp, kReadOnly, TextForm::kNumber},
    {"outer.roce_v2.bth.opcode", 8, Base::kBth, 0, 1, 0, kLayerRoce, kReadOnly, TextForm::kHex},
    {"outer.roce_v2.bth.pkey", 16, Base::kBth, 2, 2, 0, kLayerRoce, kReadOnly, TextForm::kHex},
    {"outer.roce_v2.bth.flags0", 8, Base::kBth, 4, 1, 0, kLayerRoce, kReadOnly, TextForm::kHex},
    {"outer.roce_v2.bth.dest_qp", 24, Base::kBth, 5, 3, 0, kLayerRoce, kReadOnly, TextForm::kHex},
    {"outer.roce_v2.bth.psn", 24, Base::kBth, 9, 3, 0, kLayerRoce, kReadOnly, TextForm::kNumber},
    {"meta.pkt_meta", 32, Base::kNotes, offsetof(PacketNotes, pkt_meta), 4, 0, 0, Effect::kPlain,
     TextForm::kHex},
    {"meta.mark", 32, Base::kNotes, offsetof(PacketNotes, mark), 4, 0, 0, Effect::kPlain,
     TextForm::kHex},
    meta_word("meta.u32[0]", 0),
    meta_word("meta.u32[1]", 1),
    meta_word("meta.u32[2]", 2),
    meta_word("meta.u32[3]", 3),
    meta_word("meta.u32[4]", 4),
    meta_word("meta.u32[5]", 5),
    meta_word("meta.u32[6]", 6),
    meta_word("meta.u32[7]", 7),
    meta_word("meta.u32[8]", 8),
    meta_word("meta.u32[9]", 9),
    parser("parser_meta.port_id", 16, offsetof(PacketNotes, port)),
    parser("parser_meta.random", 16, offsetof(PacketNotes, random)),
    parser("parser_meta.outer_l2_type", 8, offsetof(PacketNotes, l2_type)),
    parser("parser_meta.outer_l3_type", 8, offsetof(PacketNotes, l3_type)),
    parser("parser_meta.outer_l4_type", 8, offsetof(PacketNotes, l4_type)),
    parser("parser_meta.outer_ip_fragmented", 8, offsetof(PacketNotes, ip_fragmented)),
    parser("parser_meta.outer_l3_ok", 8, offsetof(PacketNotes, l3_ok)),
    parser("parser_meta.outer_ip4_checksum_ok", 8, offsetof(PacketNotes, ipv4_checksum_ok)),
    parser("parser_meta.outer_l4_ok", 8, offsetof(PacketNotes, l4_ok)),
};
static_assert(std::size(kLayouts) == static_cast<std::size_t>(Field::kCount));

std::optional<FieldValue> parse_number(std::string_view text, unsigned width) {
    int base = 10;
    if (text.starts_with("0x") || text.starts_with("0X")) {
        base = 16;
        text.remove_prefix(2);
    }
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    if (width < 64 && number >> width != 0) return std::nullopt;
    return FieldValue(number);
}

std::string print_number(std::uint64_t number, int base) {
    std::array<char, 24> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, base).ptr;
    return (base == 16 ? "0x" : "") + std::string(digits.data(), end);
}

std::array<std::uint8_t, 16> bytes_of(FieldValue value) {
    std::array<std::uint8_t, 16> bytes{};
    for (unsigned i = 0; i < 8; ++i) {
        bytes[i] = static_cast<std::uint8_t>(value.high >> (56 - 8 * i));
        bytes[8 + i] = static_cast<std::uint8_t>(value.low >> (56 - 8 * i));
    }
    return bytes;
}

}  // namespace

std::string_view name_of_layer(std::uint32_t bit) {
    switch (bit) {
        case kLayerVlan0:
            return "VLAN";
        case kLayerVlan1:
            return "a second VLAN tag";
        case kLayerIpv4:
            return "IPv4";
        case kLayerIpv6:
            return "IPv6";
        case kLayerTcp:
            return "TCP";
        case kLayerUdp:
            return "UDP";
        case kLayerTransport:
            return "TCP or UDP";
        case kLayerIcmp:
            return "ICMP";
        case kLayerRoce:
            return "RoCEv2";
        default:
            return "?";
    }
}

const FieldLayout& layout_of(Field field) { return kLayouts[static_cast<std::size_t>(field)]; }

std::string_view name_of(Field field) { return layout_of(field).name; }

std::optional<Field> find_field(std::string_view name) {
    const auto* const found =
        std::find_if(std::begin(kLayouts), std::end(kLayouts),
                     [&](const FieldLayout& layout) { return layout.name == name; });
    if (found == std::end(kLayouts)) return std::nullopt;
    return static_cast<Field>(found - std::begin(kLayouts));
}

unsigned width_of(Field field) { return layout_of(field).width; }

FieldValue FieldValue::of(const MacAddress& mac) {
    std::uint64_t value = 0;
    for (const std::uint8_t byte : mac.bytes) value = value << 8 | byte;
    return value;
}

FieldValue FieldValue::of(const Gid& address) {
    if (address.is_ipv4()) return address.ipv4();
    FieldValue value;
    for (unsigned i = 0; i < 8; ++i) {
        value.high = value.high << 8 | address.bytes[i];
        value.low = value.low << 8 | address.bytes[8 + i];
    }
    return value;
}

FieldValue all_ones(Field field) {
    const unsigned width = width_of(field);
    if (width == 128) return {~std::uint64_t{0}, ~std::uint64_t{0}};
    return ~std::uint64_t{0} >> (64 - width);
}

std::optional<FieldValue> parse_value(Field field, std::string_view text) {
    const FieldLayout& layout = layout_of(field);
    if (layout.form == TextForm::kMac) {
        if (const auto mac = MacAddress::parse(text)) return FieldValue::of(*mac);
    }
    if (layout.form == TextForm::kIpv4 || layout.form == TextForm::kIpv6) {
        const auto address = Gid::parse(text);
        const bool is_ipv4 = layout.form == TextForm::kIpv4;
        if (address && address->is_ipv4() == is_ipv4) return FieldValue::of(*address);
    }
    return parse_number(text, layout.width);
}

std::string print_value(Field field, FieldValue value) {
    const std::array<std::uint8_t, 16> bytes = bytes_of(value);
    switch (layout_of(field).form) {
        case TextForm::kNumber:
            return print_number(value.low, 10);
        case TextForm::kHex:
            return print_number(value.low, 16);
        case TextForm::kMac: {
            MacAddress mac;
            std::copy(bytes.end() - 6, bytes.end(), mac.bytes.begin());
            return mac.to_string();
        }
        case TextForm::kIpv4:
            return Gid::from_ipv4(static_cast<std::uint32_t>(value.low)).to_string();
        case TextForm::kIpv6:
            break;
    }
    return Gid{bytes}.to_string();
}

FieldValues& FieldValues::set(Field field, FieldValue value) {
    const auto at = std::lower_bound(items_.begin(), items_.end(), field,
                                     [](const Item& item, Field f) { return item.field < f; });
    if (at != items_.end() && at->field == field) {
        at->value = value;
    } else {
        items_.insert(at, {field, value});
    }
    return *this;
}

FieldValue FieldValues::operator[](Field field) const {
    for (const Item& item : items_) {
        if (item.field == field) return item.value;
    }
    return {};
}

bool FieldValues::contains(Field field) const {
    return std::any_of(items_.begin(), items_.end(),
                       [field](const Item& item) { return item.field == field; });
}

}  // namespace rdmalab::flow
