#include "verbs/flow_match.h"

#include <errno.h>
#include <string.h>

namespace rdmalab::verbs {

namespace {

using flow::RuleFields;
using flow::RuleHeaders;
using flow::RuleMatch;

// Reads the specifications one after the other.
class Planner {
public:
    explicit Planner(FlowPlan& plan) : plan_(plan), match_(plan.request.match) {}

    int run(const ibv_flow_attr& attributes) {
        const auto* at = reinterpret_cast<const std::byte*>(&attributes + 1);
        // Some programs (pyverbs) give the size of the structure alone; the specifications then
        // tell where they end.
        const bool is_bare = attributes.size == sizeof attributes && attributes.num_of_specs > 0;
        std::size_t left = is_bare ? SIZE_MAX : attributes.size - sizeof attributes;
        for (unsigned i = 0; i < attributes.num_of_specs; ++i) {
            ibv_flow_spec head{};
            if (left < sizeof head.hdr) return EINVAL;
            memcpy(&head, at, sizeof head.hdr);
            if (head.hdr.size < sizeof head.hdr || head.hdr.size > left) return EINVAL;
            if (int status = take(head.hdr.type, at, head.hdr.size)) return status;
            at += head.hdr.size;
            left -= head.hdr.size;
        }
        return left == 0 || is_bare ? check() : EINVAL;
    }

private:
    template <class Spec>
    static int load(const std::byte* at, std::uint16_t size, Spec& spec) {
        if (size != sizeof spec) return EINVAL;
        memcpy(&spec, at, sizeof spec);
        return 0;
    }

    int take(unsigned type, const std::byte* at, std::uint16_t size) {
        switch (type) {
            case IBV_FLOW_SPEC_ACTION_TAG:
                return take_tag(at, size);
            case IBV_FLOW_SPEC_ACTION_DROP:
                return take_drop(at, size);
            case IBV_FLOW_SPEC_ACTION_COUNT:
                return take_counters(at, size);
            case IBV_FLOW_SPEC_ACTION_HANDLE:
                return EOPNOTSUPP;  // actions are made by ibv_create_flow_action_esp: not offered
            default:
                return take_header(type, at, size);
        }
    }

    int take_header(unsigned type, const std::byte* at, std::uint16_t size) {
        is_inner_ = (type & IBV_FLOW_SPEC_INNER) != 0;
        switch (type & ~unsigned{IBV_FLOW_SPEC_INNER}) {
            case IBV_FLOW_SPEC_ETH:
                return take_ethernet(at, size);
            case IBV_FLOW_SPEC_IPV4:
                return take_ipv4<ibv_flow_spec_ipv4>(at, size);
            case IBV_FLOW_SPEC_IPV4_EXT:
                return take_ipv4<ibv_flow_spec_ipv4_ext>(at, size);
            case IBV_FLOW_SPEC_IPV6:
                return take_ipv6(at, size);
            case IBV_FLOW_SPEC_TCP:
                return take_ports(at, size, flow::kRuleTcp);
            case IBV_FLOW_SPEC_UDP:
                return take_ports(at, size, flow::kRuleUdp);
            case IBV_FLOW_SPEC_ESP:
                return take_esp(at, size);
            case IBV_FLOW_SPEC_VXLAN_TUNNEL:
                return take_vxlan(at, size);
            case IBV_FLOW_SPEC_GRE:
                return take_gre(at, size);
            case IBV_FLOW_SPEC_MPLS:
                return take_mpls(at, size);
            default:
                return EINVAL;
        }
    }

    // Demands a header; EINVAL when it was named before.
    int demand(flow::RuleLayer layer) {
        const std::uint32_t bit = is_inner_ ? std::uint32_t{layer} << flow::kInnerShift : layer;
        if (match_.layers & bit) return EINVAL;
        match_.layers |= bit;
        return 0;
    }
    int demand_outer(flow::RuleLayer layer) { return is_inner_ ? EINVAL : demand(layer); }
    RuleHeaders& value() { return is_inner_ ? match_.value.inner : match_.value.outer; }
    RuleHeaders& mask() { return is_inner_ ? match_.mask.inner : match_.mask.outer; }

    // Both sides are in network order.
    template <class Field, class From>
    static void copy(Field& to, const From& from) {
        static_assert(sizeof to == sizeof from);
        memcpy(static_cast<void*>(&to), &from, sizeof to);
    }

    int take_ethernet(const std::byte* at, std::uint16_t size) {
        ibv_flow_spec_eth spec;
        if (int status = load(at, size, spec)) return status;
        if (int status = demand(flow::kRuleEthernet)) return status;
        const auto fill = [](RuleHeaders& to, const ibv_flow_eth_filter& from) {
            copy(to.destination_mac, from.dst_mac);
            copy(to.source_mac, from.src_mac);
            copy(to.ether_type, from.ether_type);
            copy(to.vlan_tag, from.vlan_tag);
        };
        fill(value(), spec.val);
        fill(mask(), spec.mask);
        return mask().vlan_tag != 0 ? demand(flow::kRuleVlan) : 0;
    }

    template <class Spec>
    int take_ipv4(const std::byte* at, std::uint16_t size) {
        Spec spec;
        if (int status = load(at, size, spec)) return status;
        if (int status = demand(flow::kRuleIpv4)) return status;
        const auto fill = [](RuleHeaders& to, const auto& from) {
            memcpy(to.source_ip.data(), &from.src_ip, 4);
            memcpy(to.destination_ip.data(), &from.dst_ip, 4);
            if constexpr (requires { from.ttl; }) {
                to.protocol = from.proto;
                to.tos = from.tos;
                to.ttl = from.ttl;
                to.ipv4_flags = from.flags;
            }
        };
        fill(value(), spec.val);
        fill(mask(), spec.mask);
        return 0;
    }

    int take_ipv6(const std::byte* at, std::uint16_t size) {
        ibv_flow_spec_ipv6 spec;
        if (int status = load(at, size, spec)) return status;
        if (int status = demand(flow::kRuleIpv6)) return status;
        const auto fill = [](RuleHeaders& to, const ibv_flow_ipv6_filter& from) {
            copy(to.source_ip, from.src_ip);
            copy(to.destination_ip, from.dst_ip);
            copy(to.flow_label, from.flow_label);
            to.protocol = from.next_hdr;
            to.tos = from.traffic_class;
            to.ttl = from.hop_limit;
        };
        fill(value(), spec.val);
        fill(mask(), spec.mask);
        return 0;
    }

    int take_ports(const std::byte* at, std::uint16_t size, flow::RuleLayer layer) {
        ibv_flow_spec_tcp_udp spec;
        if (int status = load(at, size, spec)) return status;
        if (int status = demand(layer)) return status;
        const auto fill = [](RuleHeaders& to, const ibv_flow_tcp_udp_filter& from) {
            copy(to.source_port, from.src_port);
            copy(to.destination_port, from.dst_port);
        };
        fill(value(), spec.val);
        fill(mask(), spec.mask);
        return 0;
    }

    int take_esp(const std::byte* at, std::uint16_t size) {
        ibv_flow_spec_esp spec;
        if (int status = load(at, size, spec)) return status;
        if (int status = demand(flow::kRuleEsp)) return status;
        const auto fill = [](RuleHeaders& to, const ibv_flow_esp_filter& from) {
            copy(to.esp_spi, from.spi);
            copy(to.esp_sequence, from.seq);
        };
        fill(value(), spec.val);
        fill(mask(), spec.mask);
        return 0;
    }

    int take_vxlan(const std::byte* at, std::uint16_t size) {
        ibv_flow_spec_tunnel spec;
        if (int status = load(at, size, spec)) return status;
        copy(match_.value.vni, spec.val.tunnel_id);
        copy(match_.mask.vni, spec.mask.tunnel_id);
        return demand_outer(flow::kRuleVxlan);
    }

    int take_gre(const std::byte* at, std::uint16_t size) {
        ibv_flow_spec_gre spec;
        if (int status = load(at, size, spec)) return status;
        const auto fill = [](RuleFields& to, const ibv_flow_gre_filter& from) {
            copy(to.gre_flags, from.c_ks_res0_ver);
            copy(to.gre_protocol, from.protocol);
            copy(to.gre_key, from.key);
        };
        fill(match_.value, spec.val);
        fill(match_.mask, spec.mask);
        return demand_outer(flow::kRuleGre);
    }

    int take_mpls(const std::byte* at, std::uint16_t size) {
        ibv_flow_spec_mpls spec;
        if (int status = load(at, size, spec)) return status;
        copy(match_.value.mpls_label, spec.val.label);
        copy(match_.mask.mpls_label, spec.mask.label);
        return demand_outer(flow::kRuleMpls);
    }

    int take_tag(const std::byte* at, std::uint16_t size) {
        ibv_flow_spec_action_tag spec;
        if (int status = load(at, size, spec)) return status;
        if (plan_.request.actions & abi::kFlowTag) return EINVAL;
        plan_.request.actions |= abi::kFlowTag;
        plan_.request.tag = spec.tag_id;
        return 0;
    }

    int take_drop(const std::byte* at, std::uint16_t size) {
        ibv_flow_spec_action_drop spec;
        if (int status = load(at, size, spec)) return status;
        if (plan_.request.actions & abi::kFlowDrop) return EINVAL;
        plan_.request.actions |= abi::kFlowDrop;
        return 0;
    }

    int take_counters(const std::byte* at, std::uint16_t size) {
        ibv_flow_spec_counter_action spec;
        if (int status = load(at, size, spec)) return status;
        if (spec.counters == nullptr || plan_.request.counter_count == plan_.counters.size())
            return EINVAL;
        plan_.counters[plan_.request.counter_count++] = spec.counters;
        return 0;
    }

    int check() const {
        const auto outer = check_stack(match_.layers, match_.value.outer, match_.mask.outer);
        const auto inner =
            check_stack(match_.layers >> flow::kInnerShift, match_.value.inner, match_.mask.inner);
        if (outer != 0 || inner != 0) return EINVAL;
        const std::uint32_t tunnels = flow::kRuleVxlan | flow::kRuleGre;
        if ((match_.layers & tunnels) == tunnels) return EINVAL;
        if ((match_.layers & flow::kRuleVxlan) && (match_.layers & flow::kRuleTcp)) return EINVAL;
        return 0;
    }

    // Of the headers on one side of a tunnel.
    static int check_stack(std::uint32_t layers, const RuleHeaders& value,
                           const RuleHeaders& mask) {
        const bool ipv4 = layers & flow::kRuleIpv4, ipv6 = layers & flow::kRuleIpv6;
        const bool tcp = layers & flow::kRuleTcp, udp = layers & flow::kRuleUdp;
        const bool esp = layers & flow::kRuleEsp;
        if ((ipv4 && ipv6) || tcp + udp + esp > 1) return EINVAL;
        const auto excludes = [](std::uint32_t given, std::uint32_t bits, std::uint32_t needed) {
            return (given & bits) != (needed & bits);
        };
        if (ipv4 && excludes(value.ether_type, mask.ether_type, 0x0800)) return EINVAL;
        if (ipv6 && excludes(value.ether_type, mask.ether_type, 0x86dd)) return EINVAL;
        if (tcp && excludes(value.protocol, mask.protocol, 6)) return EINVAL;
        if (udp && excludes(value.protocol, mask.protocol, 17)) return EINVAL;
        if (esp && excludes(value.protocol, mask.protocol, 50)) return EINVAL;
        return 0;
    }

    FlowPlan& plan_;
    RuleMatch& match_;
    bool is_inner_ = false;
};

// A program may have put any number there, which the enum could not hold.
bool is_known_type(const ibv_flow_attr& attributes) {
    std::uint32_t type = 0;
    static_assert(sizeof type == sizeof attributes.type);
    memcpy(&type, &attributes.type, sizeof type);
    return type == IBV_FLOW_ATTR_NORMAL || type == IBV_FLOW_ATTR_ALL_DEFAULT ||
           type == IBV_FLOW_ATTR_MC_DEFAULT || type == IBV_FLOW_ATTR_SNIFFER;
}

}  // namespace

int plan_flow(const ibv_flow_attr& attributes, FlowPlan& plan) {
    // The first flag has no name in this verbs.h.
    constexpr std::uint32_t kFlags = std::uint32_t{abi::kFlowAllowLoopBack} |
                                     IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS;
    if (attributes.comp_mask != 0 || !is_known_type(attributes)) return EINVAL;
    if (attributes.port != 1 || (attributes.flags & ~kFlags) != 0) return EINVAL;
    if (attributes.size < sizeof attributes) return EINVAL;
    plan.request.type = static_cast<abi::FlowRuleType>(attributes.type);
    plan.request.priority = attributes.priority;
    plan.request.flags = attributes.flags;
    if (int status = Planner(plan).run(attributes)) return status;
    // Only normal rules choose by headers.
    return attributes.type != IBV_FLOW_ATTR_NORMAL && plan.request.match.layers != 0 ? EINVAL : 0;
}

}  // namespace rdmalab::verbs
