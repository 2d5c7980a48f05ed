#include "verbs/flow_match.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <string.h>

#include <vector>

namespace rdmalab::verbs {
namespace {

// Attributes with specifications behind them, as a program lays them out.
class Rule {
public:
    Rule() : bytes_(sizeof(ibv_flow_attr)) {
        attributes.type = IBV_FLOW_ATTR_NORMAL;
        attributes.port = 1;
    }
    template <class Spec>
    Rule& add(unsigned type, Spec spec = {}) {
        const auto named = static_cast<std::uint32_t>(type);
        memcpy(&spec, &named, sizeof named);
        spec.size = sizeof spec;
        const auto* from = reinterpret_cast<const std::byte*>(&spec);
        bytes_.insert(bytes_.end(), from, from + sizeof spec);
        ++attributes.num_of_specs;
        return *this;
    }
    int plan() {
        result = {};
        if (!has_own_size) attributes.size = static_cast<std::uint16_t>(bytes_.size());
        memcpy(bytes_.data(), &attributes, sizeof attributes);
        return plan_flow(*reinterpret_cast<const ibv_flow_attr*>(bytes_.data()), result);
    }
    ibv_flow_attr attributes{};
    bool has_own_size = false;
    FlowPlan result;

private:
    std::vector<std::byte> bytes_;
};

Rule& eth(Rule& rule) { return rule.add<ibv_flow_spec_eth>(IBV_FLOW_SPEC_ETH); }

TEST(FlowMatch, an_empty_rule_matches_every_frame) {
    Rule rule;
    EXPECT_EQ(rule.plan(), 0);
    EXPECT_EQ(rule.result.request.match, flow::RuleMatch{});
}

TEST(FlowMatch, the_size_of_the_structure_alone_will_do) {
    Rule rule;
    eth(rule).add<ibv_flow_spec_ipv4>(IBV_FLOW_SPEC_IPV4);
    rule.has_own_size = true;
    rule.attributes.size = sizeof rule.attributes;
    EXPECT_EQ(rule.plan(), 0);
    EXPECT_EQ(rule.result.request.match.layers, flow::kRuleEthernet | flow::kRuleIpv4);
}

TEST(FlowMatch, ethernet_ipv4_udp) {
    Rule rule;
    ibv_flow_spec_eth ethernet{};
    ethernet.val.dst_mac[5] = 7;
    memset(ethernet.mask.dst_mac, 0xff, 6);
    ethernet.val.ether_type = htons(0x0800);
    ethernet.mask.ether_type = 0xffff;
    ibv_flow_spec_ipv4_ext ipv4{};
    ipv4.val.dst_ip = htonl(0x0a000001);
    ipv4.mask.dst_ip = 0xffffffff;
    ipv4.val.ttl = 1;
    ipv4.mask.ttl = 3;
    ipv4.val.flags = ipv4.mask.flags = 2;
    ibv_flow_spec_tcp_udp udp{};
    udp.val.dst_port = htons(4791);
    udp.mask.dst_port = 0xffff;
    rule.add(IBV_FLOW_SPEC_ETH, ethernet).add(IBV_FLOW_SPEC_IPV4_EXT, ipv4);
    rule.add(IBV_FLOW_SPEC_UDP, udp);
    rule.attributes.priority = 9;
    rule.attributes.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
    ASSERT_EQ(rule.plan(), 0);
    const flow::RuleMatch& match = rule.result.request.match;
    EXPECT_EQ(match.layers, flow::kRuleEthernet | flow::kRuleIpv4 | flow::kRuleUdp);
    EXPECT_EQ(match.value.outer.destination_mac[5], 7);
    EXPECT_EQ(match.value.outer.ether_type, 0x0800);
    EXPECT_EQ(match.value.outer.destination_ip[0], 10);
    EXPECT_EQ(match.value.outer.destination_ip[3], 1);
    EXPECT_EQ(match.mask.outer.destination_ip[4], 0);
    EXPECT_EQ(match.value.outer.ttl, 1);
    EXPECT_EQ(match.mask.outer.ttl, 3);
    EXPECT_EQ(match.mask.outer.ipv4_flags, 2);
    EXPECT_EQ(match.value.outer.destination_port, 4791);
    EXPECT_EQ(rule.result.request.priority, 9u);
    EXPECT_EQ(rule.result.request.flags, unsigned{abi::kFlowDontTrap});
}

TEST(FlowMatch, a_vlan_in_the_mask_demands_a_tag) {
    Rule rule;
    ibv_flow_spec_eth ethernet{};
    ethernet.val.vlan_tag = htons(5);
    ethernet.mask.vlan_tag = htons(0xfff);
    rule.add(IBV_FLOW_SPEC_ETH, ethernet);
    ASSERT_EQ(rule.plan(), 0);
    EXPECT_EQ(rule.result.request.match.layers, flow::kRuleEthernet | flow::kRuleVlan);
    EXPECT_EQ(rule.result.request.match.mask.outer.vlan_tag, 0xfff);
}

TEST(FlowMatch, a_tunnel_and_what_is_in_it) {
    Rule rule;
    ibv_flow_spec_tunnel vxlan{};
    vxlan.val.tunnel_id = htonl(0x1234);
    vxlan.mask.tunnel_id = htonl(0xffffff);
    ibv_flow_spec_ipv6 ipv6{};
    ipv6.val.dst_ip[15] = 1;
    ipv6.mask.dst_ip[15] = 0xff;
    ipv6.val.flow_label = ipv6.mask.flow_label = htonl(0xfffff);
    eth(rule).add<ibv_flow_spec_ipv4>(IBV_FLOW_SPEC_IPV4);
    rule.add<ibv_flow_spec_tcp_udp>(IBV_FLOW_SPEC_UDP).add(IBV_FLOW_SPEC_VXLAN_TUNNEL, vxlan);
    rule.add<ibv_flow_spec_eth>(IBV_FLOW_SPEC_INNER | IBV_FLOW_SPEC_ETH);
    rule.add(IBV_FLOW_SPEC_INNER | IBV_FLOW_SPEC_IPV6, ipv6);
    rule.add<ibv_flow_spec_tcp_udp>(IBV_FLOW_SPEC_INNER | IBV_FLOW_SPEC_TCP);
    ASSERT_EQ(rule.plan(), 0);
    const flow::RuleMatch& match = rule.result.request.match;
    EXPECT_EQ(match.layers,
              flow::kRuleEthernet | flow::kRuleIpv4 | flow::kRuleUdp | flow::kRuleVxlan |
                  (flow::kRuleEthernet | flow::kRuleIpv6 | flow::kRuleTcp) << flow::kInnerShift);
    EXPECT_EQ(match.value.vni, 0x1234u);
    EXPECT_EQ(match.value.inner.destination_ip[15], 1);
    EXPECT_EQ(match.mask.inner.flow_label, 0xfffffu);
}

TEST(FlowMatch, gre_mpls_and_esp) {
    Rule gre;
    ibv_flow_spec_gre spec{};
    spec.val.key = spec.mask.key = htonl(0xabcd);
    spec.val.protocol = spec.mask.protocol = htons(0x6558);
    ibv_flow_spec_mpls mpls{};
    mpls.val.label = mpls.mask.label = htonl(0x64000);
    gre.add(IBV_FLOW_SPEC_GRE, spec).add(IBV_FLOW_SPEC_MPLS, mpls);
    ASSERT_EQ(gre.plan(), 0);
    EXPECT_EQ(gre.result.request.match.layers, flow::kRuleGre | flow::kRuleMpls);
    EXPECT_EQ(gre.result.request.match.value.gre_key, 0xabcdu);
    EXPECT_EQ(gre.result.request.match.value.gre_protocol, 0x6558);
    EXPECT_EQ(gre.result.request.match.value.mpls_label, 0x64000u);
    Rule esp;
    ibv_flow_spec_esp sa{};
    sa.val.spi = sa.mask.spi = htonl(9);
    esp.add(IBV_FLOW_SPEC_ESP, sa);
    ASSERT_EQ(esp.plan(), 0);
    EXPECT_EQ(esp.result.request.match.layers, unsigned{flow::kRuleEsp});
    EXPECT_EQ(esp.result.request.match.value.outer.esp_spi, 9u);
}

TEST(FlowMatch, actions) {
    Rule rule;
    ibv_flow_spec_action_tag tag{};
    tag.tag_id = 0x1234;
    ibv_counters counters{};
    ibv_flow_spec_counter_action count{};
    count.counters = &counters;
    eth(rule).add(IBV_FLOW_SPEC_ACTION_TAG, tag).add(IBV_FLOW_SPEC_ACTION_COUNT, count);
    rule.add<ibv_flow_spec_action_drop>(IBV_FLOW_SPEC_ACTION_DROP);
    ASSERT_EQ(rule.plan(), 0);
    EXPECT_EQ(rule.result.request.actions, abi::kFlowTag | abi::kFlowDrop);
    EXPECT_EQ(rule.result.request.tag, 0x1234u);
    EXPECT_EQ(rule.result.request.counter_count, 1u);
    EXPECT_EQ(rule.result.counters[0], &counters);
}

TEST(FlowMatch, actions_that_need_an_esp_object_are_not_offered) {
    Rule rule;
    rule.add<ibv_flow_spec_action_handle>(IBV_FLOW_SPEC_ACTION_HANDLE);
    EXPECT_EQ(rule.plan(), EOPNOTSUPP);
}

TEST(FlowMatch, what_is_wrong_with_the_attributes_is_einval) {
    const auto fails = [](auto change) {
        Rule rule;
        eth(rule);
        change(rule);
        return rule.plan() == EINVAL;
    };
    EXPECT_TRUE(fails([](Rule& r) { r.attributes.comp_mask = 1; }));
    EXPECT_TRUE(fails([](Rule& r) { r.attributes.port = 0; }));
    EXPECT_TRUE(fails([](Rule& r) { r.attributes.port = 2; }));
    EXPECT_FALSE(fails([](Rule& r) { r.attributes.flags = 1; })) << "ALLOW_LOOP_BACK";
    EXPECT_TRUE(fails([](Rule& r) { r.attributes.flags = 8; }));
    EXPECT_TRUE(fails([](Rule& r) {
        const std::uint32_t unknown = 4;
        memcpy(&r.attributes.type, &unknown, sizeof unknown);
    }));
    EXPECT_TRUE(fails([](Rule& r) { r.attributes.type = IBV_FLOW_ATTR_SNIFFER; }));
    EXPECT_TRUE(fails([](Rule& r) { r.attributes.num_of_specs = 2; })) << "more than are there";
    EXPECT_TRUE(fails([](Rule& r) { r.attributes.num_of_specs = 0; })) << "fewer than are there";
    EXPECT_TRUE(fails([](Rule& r) {
        r.has_own_size = true;
        r.attributes.size = 3;
    }));
}

TEST(FlowMatch, specifications_that_cannot_be_are_einval) {
    const auto fails = [](auto change) {
        Rule rule;
        change(rule);
        return rule.plan() == EINVAL;
    };
    EXPECT_TRUE(fails([](Rule& r) { eth(eth(r)); })) << "twice";
    EXPECT_TRUE(fails([](Rule& r) { r.add<ibv_flow_spec_eth>(0x7f); })) << "unknown";
    EXPECT_TRUE(fails([](Rule& r) { r.add<ibv_flow_spec_eth>(IBV_FLOW_SPEC_IPV4); })) << "size";
    EXPECT_TRUE(fails([](Rule& r) {
        r.add<ibv_flow_spec_ipv4>(IBV_FLOW_SPEC_IPV4);
        r.add<ibv_flow_spec_ipv6>(IBV_FLOW_SPEC_IPV6);
    }));
    EXPECT_TRUE(fails([](Rule& r) {
        r.add<ibv_flow_spec_tcp_udp>(IBV_FLOW_SPEC_TCP);
        r.add<ibv_flow_spec_tcp_udp>(IBV_FLOW_SPEC_UDP);
    }));
    EXPECT_TRUE(fails([](Rule& r) {
        r.add<ibv_flow_spec_tunnel>(IBV_FLOW_SPEC_INNER | IBV_FLOW_SPEC_VXLAN_TUNNEL);
    }));
    EXPECT_TRUE(fails([](Rule& r) {
        ibv_flow_spec_eth arp{};
        arp.val.ether_type = htons(0x0806);
        arp.mask.ether_type = 0xffff;
        r.add(IBV_FLOW_SPEC_ETH, arp).add<ibv_flow_spec_ipv4>(IBV_FLOW_SPEC_IPV4);
    }));
    EXPECT_TRUE(fails([](Rule& r) {
        r.add<ibv_flow_spec_counter_action>(IBV_FLOW_SPEC_ACTION_COUNT);
    })) << "no counters";
}

}  // namespace
}  // namespace rdmalab::verbs
