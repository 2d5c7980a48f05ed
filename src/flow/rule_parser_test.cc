#include "flow/rule_parser.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "base/prng.h"

namespace rdmalab::flow {
namespace {

// A frame, header by header.
class Builder {
public:
    Builder& raw(std::initializer_list<unsigned> bytes) {
        for (const unsigned byte : bytes) bytes_.push_back(static_cast<std::byte>(byte));
        return *this;
    }
    Builder& zeros(std::size_t count) {
        bytes_.resize(bytes_.size() + count);
        return *this;
    }
    Builder& ethernet(unsigned type, unsigned last = 1) {
        return raw({2, 0, 0, 0, 0, last, 2, 0, 0, 0, 0, last + 1}).be16(type);
    }
    Builder& be16(unsigned value) { return raw({value >> 8 & 255, value & 255}); }
    Builder& be32(std::uint32_t value) { return be16(value >> 16).be16(value & 0xffff); }
    Builder& ipv4(unsigned protocol, unsigned fragment = 0x4000, unsigned last = 1) {
        raw({0x45, 0x2e}).be16(100).be16(1).be16(fragment).raw({64, protocol}).be16(0);
        return raw({10, 0, 0, last, 10, 0, 0, last + 1});
    }
    Builder& ipv6(unsigned next) {
        be32(0x6ab1'2345).be16(100).raw({next, 63});
        raw({0xfd}).zeros(14).raw({1});
        return raw({0xfd}).zeros(14).raw({2});
    }
    Builder& udp(unsigned destination) { return be16(1000).be16(destination).be16(8).be16(0); }
    Builder& tcp(unsigned destination) { return be16(2000).be16(destination).zeros(16); }
    FlatFrame flat() const { return flatten(bytes_); }
    const std::vector<std::byte>& bytes() const { return bytes_; }

private:
    std::vector<std::byte> bytes_;
};

constexpr std::uint32_t inner(std::uint32_t layers) { return layers << kInnerShift; }
constexpr std::uint32_t kUdpOverIpv4 = kRuleEthernet | kRuleIpv4 | kRuleUdp;

TEST(RuleParser, udp_over_ipv4) {
    const FlatFrame frame = Builder().ethernet(0x0800).ipv4(17).udp(53).flat();
    EXPECT_EQ(frame.layers, kUdpOverIpv4);
    const RuleHeaders& h = frame.fields.outer;
    EXPECT_EQ(h.destination_mac[5], 1);
    EXPECT_EQ(h.source_mac[5], 2);
    EXPECT_EQ(h.ether_type, 0x0800);
    EXPECT_EQ(h.source_ip[3], 1);
    EXPECT_EQ(h.destination_ip[3], 2);
    EXPECT_EQ(h.source_ip[4], 0);
    EXPECT_EQ(h.protocol, 17);
    EXPECT_EQ(h.tos, 0x2e);
    EXPECT_EQ(h.ttl, 64);
    EXPECT_EQ(h.ipv4_flags, 2) << "don't fragment";
    EXPECT_EQ(h.source_port, 1000);
    EXPECT_EQ(h.destination_port, 53);
    EXPECT_EQ(frame.fields.inner, RuleHeaders{});
}

TEST(RuleParser, options_of_ipv4_are_skipped) {
    const FlatFrame frame = Builder()
                                .ethernet(0x0800)
                                .raw({0x46, 0, 0, 100, 0, 1, 0x20, 0, 64, 6, 0, 0})
                                .raw({10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 0})
                                .tcp(80)
                                .flat();
    EXPECT_EQ(frame.layers, kRuleEthernet | kRuleIpv4 | kRuleTcp);
    EXPECT_EQ(frame.fields.outer.destination_port, 80);
    EXPECT_EQ(frame.fields.outer.ipv4_flags, 4) << "more fragments";
}

TEST(RuleParser, tcp_over_ipv6_behind_extension_headers) {
    const FlatFrame frame = Builder()
                                .ethernet(0x86dd)
                                .ipv6(0)
                                .raw({60, 0, 1, 4, 0, 0, 0, 0})
                                .raw({6, 1, 1, 12})
                                .zeros(12)
                                .tcp(443)
                                .flat();
    EXPECT_EQ(frame.layers, kRuleEthernet | kRuleIpv6 | kRuleTcp);
    const RuleHeaders& h = frame.fields.outer;
    EXPECT_EQ(h.tos, 0xab);
    EXPECT_EQ(h.flow_label, 0x12345u);
    EXPECT_EQ(h.ttl, 63);
    EXPECT_EQ(h.protocol, 6);
    EXPECT_EQ(h.source_ip[15], 1);
    EXPECT_EQ(h.destination_ip[0], 0xfd);
    EXPECT_EQ(h.destination_port, 443);
}

TEST(RuleParser, a_later_fragment_has_no_ports) {
    EXPECT_EQ(Builder().ethernet(0x0800).ipv4(17, 0x2001).udp(53).flat().layers,
              kRuleEthernet | kRuleIpv4);
    const auto ipv6 = [](unsigned offset) {
        return Builder().ethernet(0x86dd).ipv6(44).raw({17, 0}).be16(offset).be32(1).udp(53).flat();
    };
    EXPECT_EQ(ipv6(1).layers, kRuleEthernet | kRuleIpv6 | kRuleUdp) << "the first of several";
    EXPECT_EQ(ipv6(8).layers, kRuleEthernet | kRuleIpv6);
}

TEST(RuleParser, the_outermost_tag_is_the_vlan_and_the_type_stands_behind_all) {
    const FlatFrame frame = Builder()
                                .ethernet(0x88a8)
                                .be16(0x2064)
                                .be16(0x8100)
                                .be16(7)
                                .be16(0x0800)
                                .ipv4(17)
                                .udp(5)
                                .flat();
    EXPECT_EQ(frame.layers, kUdpOverIpv4 | kRuleVlan);
    EXPECT_EQ(frame.fields.outer.vlan_tag, 0x2064);
    EXPECT_EQ(frame.fields.outer.ether_type, 0x0800);
}

TEST(RuleParser, a_frame_of_another_protocol_has_its_type) {
    const FlatFrame frame = Builder().ethernet(0x0806).zeros(28).flat();
    EXPECT_EQ(frame.layers, kRuleEthernet);
    EXPECT_EQ(frame.fields.outer.ether_type, 0x0806);
}

TEST(RuleParser, vxlan) {
    const FlatFrame frame = Builder()
                                .ethernet(0x0800)
                                .ipv4(17)
                                .udp(4789)
                                .be32(0x0800'0000)
                                .be32(0x123456 << 8)
                                .ethernet(0x8100, 7)
                                .be16(9)
                                .be16(0x0800)
                                .ipv4(6, 0, 5)
                                .tcp(80)
                                .flat();
    EXPECT_EQ(frame.layers,
              kUdpOverIpv4 | kRuleVxlan | inner(kRuleEthernet | kRuleVlan | kRuleIpv4 | kRuleTcp));
    EXPECT_EQ(frame.fields.vni, 0x123456u);
    EXPECT_EQ(frame.fields.inner.destination_mac[5], 7);
    EXPECT_EQ(frame.fields.inner.vlan_tag, 9);
    EXPECT_EQ(frame.fields.inner.source_ip[3], 5);
    EXPECT_EQ(frame.fields.inner.destination_port, 80);
    EXPECT_EQ(frame.fields.outer.destination_port, 4789);
}

TEST(RuleParser, gre_with_a_key_and_a_checksum) {
    const FlatFrame frame = Builder()
                                .ethernet(0x0800)
                                .ipv4(47)
                                .be16(0xb000)
                                .be16(0x86dd)
                                .be32(0)
                                .be32(0xabcdef01)
                                .be32(1)
                                .ipv6(17)
                                .udp(5)
                                .flat();
    EXPECT_EQ(frame.layers, kRuleEthernet | kRuleIpv4 | kRuleGre | inner(kRuleIpv6 | kRuleUdp));
    EXPECT_EQ(frame.fields.gre_flags, 0xb000);
    EXPECT_EQ(frame.fields.gre_protocol, 0x86dd);
    EXPECT_EQ(frame.fields.gre_key, 0xabcdef01u);
    EXPECT_EQ(frame.fields.inner.destination_port, 5);
}

TEST(RuleParser, ethernet_in_gre) {
    const FlatFrame frame = Builder()
                                .ethernet(0x0800)
                                .ipv4(47)
                                .be16(0)
                                .be16(0x6558)
                                .ethernet(0x0800, 3)
                                .ipv4(17)
                                .udp(5)
                                .flat();
    EXPECT_EQ(frame.layers, kRuleEthernet | kRuleIpv4 | kRuleGre | inner(kUdpOverIpv4));
    EXPECT_EQ(frame.fields.inner.destination_mac[5], 3);
}

TEST(RuleParser, mpls_in_ethernet_in_udp_and_in_gre) {
    const auto stack = [](Builder& b) -> Builder& {
        return b.be32(0x00064'0'40).be32(0x00065'1'40).ipv4(17).udp(5);
    };
    Builder ethernet, udp, gre;
    ethernet.ethernet(0x8847);
    udp.ethernet(0x0800).ipv4(17).udp(6635);
    gre.ethernet(0x0800).ipv4(47).be16(0).be16(0x8847);
    const std::uint32_t rest = kRuleMpls | inner(kRuleIpv4 | kRuleUdp);
    EXPECT_EQ(stack(ethernet).flat().layers, kRuleEthernet | rest);
    EXPECT_EQ(stack(udp).flat().layers, kUdpOverIpv4 | rest);
    EXPECT_EQ(stack(gre).flat().layers, kRuleEthernet | kRuleIpv4 | kRuleGre | rest);
    for (const Builder* b : {&ethernet, &udp, &gre})
        EXPECT_EQ(b->flat().fields.mpls_label, 0x00064'0'40u) << "the first label";
}

TEST(RuleParser, esp) {
    const FlatFrame frame = Builder().ethernet(0x86dd).ipv6(50).be32(77).be32(3).flat();
    EXPECT_EQ(frame.layers, kRuleEthernet | kRuleIpv6 | kRuleEsp);
    EXPECT_EQ(frame.fields.outer.esp_spi, 77u);
    EXPECT_EQ(frame.fields.outer.esp_sequence, 3u);
}

TEST(RuleParser, a_frame_cut_anywhere_has_the_headers_that_are_whole) {
    Builder whole;
    whole.ethernet(0x0800).ipv4(17).udp(4789).be32(0x0800'0000).be32(5).ethernet(0x86dd).ipv6(6);
    whole.tcp(80);
    std::uint32_t before = 0;
    for (std::size_t length = 0; length <= whole.bytes().size(); ++length) {
        const std::uint32_t layers = flatten(ByteView(whole.bytes()).first(length)).layers;
        EXPECT_EQ(layers & before, before) << length;
        before = layers;
    }
    EXPECT_EQ(before, kUdpOverIpv4 | kRuleVxlan | inner(kRuleEthernet | kRuleIpv6 | kRuleTcp));
}

TEST(RuleParser, random_bytes_behind_any_type_do_no_harm) {
    Prng prng(1);
    for (const unsigned type : {0x0800, 0x86dd, 0x8847, 0x8100}) {
        for (unsigned round = 0; round < 20'000; ++round) {
            Builder frame;
            frame.ethernet(type);
            const std::size_t length = prng.below(150);
            for (std::size_t i = 0; i < length; ++i)
                frame.raw({static_cast<unsigned>(prng.next() & (i == 0 ? 0x6f : 0xff))});
            EXPECT_TRUE(frame.flat().layers & kRuleEthernet);
        }
    }
}

}  // namespace
}  // namespace rdmalab::flow
