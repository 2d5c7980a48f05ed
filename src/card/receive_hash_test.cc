#include "card/receive_hash.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "base/address.h"

namespace rdmalab::card {
namespace {

// The key and the values with which makers of adapters check their Toeplitz hash.
constexpr std::array<std::uint8_t, 40> kKey{
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
    0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
    0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

flow::FlatFrame ipv4(std::array<std::uint8_t, 4> source, std::array<std::uint8_t, 4> destination,
                     std::uint16_t source_port, std::uint16_t destination_port,
                     std::uint32_t l4 = flow::kRuleTcp) {
    flow::FlatFrame frame{flow::kRuleEthernet | flow::kRuleIpv4 | l4, {}};
    flow::RuleHeaders& headers = frame.fields.outer;
    std::memcpy(headers.source_ip.data(), source.data(), 4);
    std::memcpy(headers.destination_ip.data(), destination.data(), 4);
    headers.source_port = source_port;
    headers.destination_port = destination_port;
    return frame;
}

flow::FlatFrame ipv6(const char* source, const char* destination, std::uint16_t source_port,
                     std::uint16_t destination_port) {
    flow::FlatFrame frame{flow::kRuleEthernet | flow::kRuleIpv6 | flow::kRuleTcp, {}};
    frame.fields.outer.source_ip = Gid::parse(source)->bytes;
    frame.fields.outer.destination_ip = Gid::parse(destination)->bytes;
    frame.fields.outer.source_port = source_port;
    frame.fields.outer.destination_port = destination_port;
    return frame;
}

HashSpread spread(std::uint32_t fields) {
    HashSpread made;
    made.fields = fields;
    made.key = kKey;
    return made;
}

constexpr std::uint32_t kIpv4 = kHashSourceIpv4 | kHashDestinationIpv4;
constexpr std::uint32_t kIpv6 = kHashSourceIpv6 | kHashDestinationIpv6;
constexpr std::uint32_t kTcp = kHashSourceTcp | kHashDestinationTcp;

TEST(ReceiveHash, the_published_values_for_ipv4_come_out) {
    const auto first = ipv4({66, 9, 149, 187}, {161, 142, 100, 80}, 2794, 1766);
    EXPECT_EQ(spread(kIpv4).hash(first), 0x323e'8fc2u);
    EXPECT_EQ(spread(kIpv4 | kTcp).hash(first), 0x51cc'c178u);
    const auto second = ipv4({199, 92, 111, 2}, {65, 69, 140, 83}, 14230, 4739);
    EXPECT_EQ(spread(kIpv4).hash(second), 0xd718'262au);
    EXPECT_EQ(spread(kIpv4 | kTcp).hash(second), 0xc626'b0eau);
}

TEST(ReceiveHash, the_published_values_for_ipv6_come_out) {
    const auto frame = ipv6("3ffe:2501:200:1fff::7", "3ffe:2501:200:3::1", 2794, 1766);
    EXPECT_EQ(spread(kIpv6).hash(frame), 0x2cc1'8cd5u);
    EXPECT_EQ(spread(kIpv6 | kTcp).hash(frame), 0x4020'7d3du);
}

TEST(ReceiveHash, fields_that_a_frame_does_not_have_are_not_hashed) {
    const auto udp = ipv4({66, 9, 149, 187}, {161, 142, 100, 80}, 2794, 1766, flow::kRuleUdp);
    EXPECT_EQ(spread(kIpv4 | kTcp).hash(udp), 0x323e'8fc2u);
    EXPECT_EQ(spread(kIpv6).hash(udp), 0u);
    HashSpread inner = spread(kIpv4);
    inner.is_inner = true;
    EXPECT_EQ(inner.hash(udp), 0u);
}

TEST(ReceiveHash, the_lowest_bits_choose_the_queue) {
    HashSpread four = spread(kIpv4 | kTcp);
    four.table = {Qpn{10}, Qpn{11}, Qpn{12}, Qpn{13}};
    std::set<std::uint32_t> chosen;
    for (std::uint16_t port = 1000; port < 1100; ++port) {
        const auto frame = ipv4({10, 0, 0, 1}, {10, 0, 0, 2}, port, 80);
        EXPECT_EQ(four.choose(frame).value, 10 + (four.hash(frame) & 3));
        chosen.insert(four.choose(frame).value);
    }
    EXPECT_EQ(chosen.size(), 4u);
}

}  // namespace
}  // namespace rdmalab::card
