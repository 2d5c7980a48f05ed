// Fields of a packet, and of the notes that travel with it, which pipes match and rewrite.
//
// A field has the name that DOCA Flow's documentation gives it ("outer.ipv4.dst_ip",
// "meta.u32[4]"), a width in bits and a value. Values are plain numbers in host byte order, the
// most significant bit of the field first on the wire: 10.0.0.1 is 0x0a000001, QP 1 is 1, be32(i)
// in a metadata word is i. Fields up to 64 bits use `low` alone; IPv6 addresses use both halves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"

namespace rdmalab::flow {

enum class Field : std::uint8_t {
    kEthDst,  // outer.eth.dst_mac, 48 bits
    kEthSrc,
    kEthType,  // of the L3 header: what stands behind the VLAN tags
    kVlan0Tci,
    kVlan1Tci,
    kIpv4Src,
    kIpv4Dst,
    kIpv4VersionIhl,
    kIpv4DscpEcn,  // the ToS byte: DSCP in the upper six bits, ECN in the lower two
    kIpv4TotalLength,
    kIpv4Identification,
    kIpv4FlagsFragment,
    kIpv4Protocol,
    kIpv4Ttl,
    kIpv6Src,  // 128 bits
    kIpv6Dst,
    kIpv6TrafficClass,
    kIpv6FlowLabel,  // 20 bits
    kIpv6PayloadLength,
    kIpv6NextHeader,
    kIpv6HopLimit,
    kUdpSrc,
    kUdpDst,
    kTcpSrc,
    kTcpDst,
    kTcpFlags,
    kTransportSrc,  // of UDP or TCP, whichever it is
    kTransportDst,
    kIcmpType,
    kIcmpCode,
    kBthOpcode,
    kBthPkey,
    kBthFecnBecn,  // the byte with FECN 0x80 and BECN 0x40
    kBthDestQp,    // 24 bits
    kBthPsn,       // 24 bits
    kMetaPkt,      // meta.pkt_meta, 32 bits
    kMetaMark,
    kMetaU32_0,  // meta.u32[0]; the others follow. HASH pipes clobber bits 31:16 of u32[3].
    kMetaU32_1,
    kMetaU32_2,
    kMetaU32_3,
    kMetaU32_4,
    kMetaU32_5,
    kMetaU32_6,
    kMetaU32_7,
    kMetaU32_8,
    kMetaU32_9,
    kParserPort,          // parser_meta.port_id: the PortId at which the packet came in
    kParserRandom,        // parser_meta.random: 16 bits, drawn anew by each pipe that uses it
    kParserL2Type,        // MetaL2Type
    kParserL3Type,        // MetaL3Type
    kParserL4Type,        // MetaL4Type
    kParserIpFragmented,  // 1: a fragment
    kParserL3Ok,          // 1: the L3 header is well formed
    kParserIpv4ChecksumOk,
    kParserL4Ok,
    kCount,
};

constexpr Field meta_u32(unsigned index) {  // index < 10
    return static_cast<Field>(static_cast<unsigned>(Field::kMetaU32_0) + index);
}

// Values of kParserL2Type, kParserL3Type, kParserL4Type.
enum class MetaL2Type : std::uint8_t { kNoVlan = 0, kMultiVlan = 1, kSingleVlan = 2 };
enum class MetaL3Type : std::uint8_t { kNone = 0, kIpv4 = 1, kIpv6 = 2 };
enum class MetaL4Type : std::uint8_t { kNone = 0, kTcp = 1, kUdp = 2, kIcmp = 3, kEsp = 4 };

std::string_view name_of(Field field);
std::optional<Field> find_field(std::string_view name);
unsigned width_of(Field field);  // bits

// A value of up to 128 bits.
struct FieldValue {
    std::uint64_t high = 0, low = 0;

    constexpr FieldValue() = default;
    constexpr FieldValue(std::uint64_t value)
        : low(value) {}  // NOLINT(google-explicit-constructor)
    constexpr FieldValue(std::uint64_t upper, std::uint64_t lower) : high(upper), low(lower) {}
    static FieldValue of(const MacAddress& mac);
    // 32 bits for an IPv4 address, 128 for an IPv6 one.
    static FieldValue of(const Gid& address);
    constexpr bool operator==(const FieldValue&) const = default;
    constexpr FieldValue operator&(FieldValue other) const {
        return {high & other.high, low & other.low};
    }
    constexpr bool is_zero() const { return (high | low) == 0; }
};

// All bits of the field: in a template "each entry supplies the value".
FieldValue all_ones(Field field);

// As people write it: decimal, 0x hexadecimal, a dotted or colon address or MAC where the field is
// one. `print_value` uses addresses for addresses and hexadecimal else.
std::optional<FieldValue> parse_value(Field field, std::string_view text);
std::string print_value(Field field, FieldValue value);

// Some fields with their values; a field that was not set is zero.
class FieldValues {
public:
    struct Item {
        Field field;
        FieldValue value;
        bool operator==(const Item&) const = default;
    };

    FieldValues() = default;
    FieldValues(std::initializer_list<Item> items) {
        for (const Item& item : items) set(item.field, item.value);
    }
    FieldValues& set(Field field, FieldValue value);
    FieldValues& set_all_ones(Field field) { return set(field, all_ones(field)); }
    FieldValue operator[](Field field) const;
    bool contains(Field field) const;
    bool empty() const { return items_.empty(); }
    const std::vector<Item>& items() const { return items_; }  // in the order of Field
    bool operator==(const FieldValues&) const = default;

private:
    std::vector<Item> items_;
};

}  // namespace rdmalab::flow
