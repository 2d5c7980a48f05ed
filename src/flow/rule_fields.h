// What the rules of `ibv_create_flow` look at: the headers of a received frame, laid flat.
//
// A frame is laid flat once (rule_parser.h); a rule is the same layout twice, value and mask, with
// the headers that must be there. So matching is a comparison under a mask, whatever the rule asks
// for, and rules of the same mask share one hash table (rule_table.h).
//
// All values are in network order, as the page ibv_create_flow(3) demands of applications.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/bytes.h"

namespace rdmalab::flow {

// Headers that a frame has or a rule demands. Those of the inner packet of a tunnel are the same
// bits, shifted by kInnerShift.
enum RuleLayer : std::uint32_t {
    kRuleEthernet = 1 << 0,
    kRuleVlan = 1 << 1,
    kRuleIpv4 = 1 << 2,
    kRuleIpv6 = 1 << 3,
    kRuleTcp = 1 << 4,
    kRuleUdp = 1 << 5,
    kRuleEsp = 1 << 6,
    kRuleVxlan = 1 << 16,
    kRuleGre = 1 << 17,
    kRuleMpls = 1 << 18,
};
inline constexpr unsigned kInnerShift = 8;

struct RuleHeaders {
    std::array<std::uint8_t, 6> destination_mac{}, source_mac{};
    Be16 ether_type;  // of the packet behind the VLAN tags
    Be16 vlan_tag;    // of the outermost tag: priority 3, DEI 1, VLAN id 12 bits
    // IPv4 addresses fill the first four bytes.
    std::array<std::uint8_t, 16> source_ip{}, destination_ip{};
    Be32 flow_label;                     // IPv6, 20 bits
    std::uint8_t protocol = 0;           // IPv4 protocol, IPv6 next header
    std::uint8_t tos = 0;                // IPv4 type of service, IPv6 traffic class
    std::uint8_t ttl = 0;                // IPv4 time to live, IPv6 hop limit
    std::uint8_t ipv4_flags = 0;         // 2: don't fragment, 4: more fragments
    Be16 source_port, destination_port;  // TCP or UDP
    Be32 unused;
    Be32 esp_spi, esp_sequence;
    bool operator==(const RuleHeaders&) const = default;
};

struct RuleFields {
    RuleHeaders outer, inner;
    Be32 vni;         // VXLAN, 24 bits
    Be32 mpls_label;  // the first entry of the stack: label 20, traffic class 3, bottom 1, TTL 8
    Be16 gre_flags, gre_protocol;  // the first 16 bits (C, K, S, version), the protocol type
    Be32 gre_key;
    bool operator==(const RuleFields&) const = default;
};

inline constexpr std::size_t kRuleWords = sizeof(RuleFields) / 8;
static_assert(sizeof(RuleHeaders) == 72 && sizeof(RuleFields) == 160);
static_assert(std::has_unique_object_representations_v<RuleFields>);

using RuleWords = std::array<std::uint64_t, kRuleWords>;
inline RuleWords words_of(const RuleFields& fields) {
    RuleWords words;
    std::memcpy(words.data(), &fields, sizeof fields);
    return words;
}

struct RuleMatch {
    std::uint32_t layers = 0;  // RuleLayer bits that a frame must have
    RuleFields value, mask;    // bits outside the mask do not count
    bool operator==(const RuleMatch&) const = default;
};

}  // namespace rdmalab::flow
