#include "flow/rule_parser.h"

#include <algorithm>

namespace rdmalab::flow {
namespace {

constexpr std::uint16_t kTypeIpv4 = 0x0800, kTypeIpv6 = 0x86dd, kTypeMpls = 0x8847,
                        kTypeMplsMulticast = 0x8848, kTypeTransparentEthernet = 0x6558;
constexpr std::uint16_t kTypeVlan = 0x8100, kTypeServiceVlan = 0x88a8, kTypeOldServiceVlan = 0x9100;
constexpr std::uint8_t kHopByHop = 0, kTcp = 6, kUdp = 17, kRouting = 43, kFragment = 44, kGre = 47,
                       kEsp = 50, kDestinationOptions = 60, kMplsInIp = 137;
constexpr std::uint16_t kVxlanPort = 4789, kMplsPort = 6635;
constexpr unsigned kTagsMax = 4, kExtensionsMax = 8, kLabelsMax = 16;

// One pass over the bytes; `at_` only grows, so the work is bounded by the frame.
class Flattener {
public:
    explicit Flattener(ByteView bytes) : bytes_(bytes) {}

    FlatFrame run() {
        ethernet();
        return frame_;
    }

private:
    bool has(std::size_t count) const { return bytes_.size() - at_ >= count; }
    std::uint8_t byte(std::size_t offset) const {
        return std::to_integer<std::uint8_t>(bytes_[at_ + offset]);
    }
    std::uint16_t word(std::size_t offset) const {
        return load_bytes<Be16>(bytes_.data() + at_ + offset);
    }
    template <class T>
    void take(T& field, std::size_t offset) const {
        std::memcpy(&field, bytes_.data() + at_ + offset, sizeof field);
    }
    RuleHeaders& headers() { return is_inner_ ? frame_.fields.inner : frame_.fields.outer; }
    void note(RuleLayer layer) {
        frame_.layers |= is_inner_ ? static_cast<std::uint32_t>(layer) << kInnerShift
                                   : static_cast<std::uint32_t>(layer);
    }

    void ethernet() {
        if (!has(14)) return;
        RuleHeaders& h = headers();
        take(h.destination_mac, 0);
        take(h.source_mac, 6);
        std::uint16_t type = word(12);
        note(kRuleEthernet);
        at_ += 14;
        for (unsigned tags = 0; tags < kTagsMax && is_vlan(type) && has(4); ++tags) {
            if (tags == 0) {
                take(h.vlan_tag, 0);
                note(kRuleVlan);
            }
            type = word(2);
            at_ += 4;
        }
        h.ether_type = type;
        network(type);
    }

    static bool is_vlan(std::uint16_t type) {
        return type == kTypeVlan || type == kTypeServiceVlan || type == kTypeOldServiceVlan;
    }

    void network(std::uint16_t type) {
        if (type == kTypeIpv4) return ipv4();
        if (type == kTypeIpv6) return ipv6();
        if (type == kTypeMpls || type == kTypeMplsMulticast) return mpls();
    }

    void ipv4() {
        if (!has(20) || byte(0) >> 4 != 4) return;
        const std::size_t length = (byte(0) & 15u) * 4;
        if (length < 20 || !has(length)) return;
        RuleHeaders& h = headers();
        note(kRuleIpv4);
        h.tos = byte(1);
        const std::uint16_t fragment = word(6);
        h.ipv4_flags =
            static_cast<std::uint8_t>(((fragment >> 14) & 1) << 1 | ((fragment >> 13) & 1) << 2);
        h.ttl = byte(8);
        h.protocol = byte(9);
        std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at_) + 12, 4,
                    reinterpret_cast<std::byte*>(h.source_ip.data()));
        std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at_) + 16, 4,
                    reinterpret_cast<std::byte*>(h.destination_ip.data()));
        at_ += length;
        if ((fragment & 0x1fff) == 0) transport(h.protocol);  // else its L4 header is elsewhere
    }

    void ipv6() {
        if (!has(40) || byte(0) >> 4 != 6) return;
        RuleHeaders& h = headers();
        note(kRuleIpv6);
        h.tos = static_cast<std::uint8_t>(word(0) >> 4);
        Be32 first;
        take(first, 0);
        h.flow_label = first & 0xfffff;
        std::uint8_t next = byte(6);
        h.ttl = byte(7);
        take(h.source_ip, 8);
        take(h.destination_ip, 24);
        at_ += 40;
        bool is_first_fragment = true;
        for (unsigned i = 0; i < kExtensionsMax && is_extension(next) && has(8); ++i) {
            if (next == kFragment) is_first_fragment = (word(2) & 0xfff8) == 0;
            const std::size_t length = next == kFragment ? 8 : (byte(1) + 1u) * 8;
            next = byte(0);
            if (!has(length)) return;
            at_ += length;
        }
        h.protocol = next;
        if (is_first_fragment) transport(next);
    }

    static bool is_extension(std::uint8_t next) {
        return next == kHopByHop || next == kRouting || next == kFragment ||
               next == kDestinationOptions;
    }

    void transport(std::uint8_t protocol) {
        switch (protocol) {
            case kTcp:
                return ports(20, kRuleTcp);
            case kUdp:
                return udp();
            case kEsp:
                return esp();
            case kGre:
                return gre();
            case kMplsInIp:
                return mpls();
            default:
                return;
        }
    }

    void ports(std::size_t length, RuleLayer layer) {
        if (!has(length)) return;
        take(headers().source_port, 0);
        take(headers().destination_port, 2);
        note(layer);
    }

    void udp() {
        if (!has(8)) return;
        ports(8, kRuleUdp);
        const std::uint16_t port = headers().destination_port;
        at_ += 8;
        if (port == kVxlanPort) return vxlan();
        if (port == kMplsPort) return mpls();
    }

    void esp() {
        if (!has(8)) return;
        take(headers().esp_spi, 0);
        take(headers().esp_sequence, 4);
        note(kRuleEsp);
    }

    void vxlan() {
        constexpr std::uint8_t kVniIsValid = 0x08;
        if (is_inner_ || !has(8) || (byte(0) & kVniIsValid) == 0) return;
        Be32 word;
        take(word, 4);
        frame_.fields.vni = word >> 8;
        frame_.layers |= kRuleVxlan;
        at_ += 8;
        is_inner_ = true;
        ethernet();
    }

    void gre() {
        constexpr std::uint16_t kChecksum = 0x8000, kKey = 0x2000, kSequence = 0x1000;
        if (is_inner_ || !has(4)) return;
        const std::uint16_t flags = word(0), type = word(2);
        const std::size_t length = 4u + ((flags & kChecksum) != 0 ? 4 : 0) +
                                   ((flags & kKey) != 0 ? 4 : 0) +
                                   ((flags & kSequence) != 0 ? 4 : 0);
        if (!has(length)) return;
        take(frame_.fields.gre_flags, 0);
        take(frame_.fields.gre_protocol, 2);
        if ((flags & kKey) != 0) take(frame_.fields.gre_key, (flags & kChecksum) != 0 ? 8 : 4);
        frame_.layers |= kRuleGre;
        at_ += length;
        if (type != kTypeMpls && type != kTypeMplsMulticast) is_inner_ = true;
        if (type == kTypeTransparentEthernet) return ethernet();
        network(type);
    }

    void mpls() {
        if (is_inner_ || !has(4)) return;
        take(frame_.fields.mpls_label, 0);
        frame_.layers |= kRuleMpls;
        for (unsigned i = 0; i < kLabelsMax; ++i) {
            if (!has(4)) return;
            const bool is_bottom = (byte(2) & 1) != 0;
            at_ += 4;
            if (!is_bottom) continue;
            is_inner_ = true;
            if (!has(1)) return;
            return network(byte(0) >> 4 == 6 ? kTypeIpv6 : kTypeIpv4);
        }
    }

    ByteView bytes_;
    std::size_t at_ = 0;
    bool is_inner_ = false;
    FlatFrame frame_;
};

}  // namespace

FlatFrame flatten(ByteView bytes) { return Flattener(bytes).run(); }

}  // namespace rdmalab::flow
