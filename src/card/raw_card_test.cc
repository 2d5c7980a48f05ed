// Raw packet QPs and flow rules, through the whole card.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "card/receive_hash.h"
#include "card/rule_abi.h"
#include "card/test_client.h"
#include "card/verbs_values.h"
#include "wire/headers.h"

namespace rdmalab::card {
namespace {

using abi::FlowRuleType;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::TestClient;
using testing::TestQp;

constexpr std::uint32_t kSf2 = 2, kSf3 = 3;
constexpr std::size_t kFrameLength = 100;

// A raw packet QP with memory for frames; receives are posted.
struct RawEnd {
    RawEnd(testing::TestCard& card, std::uint32_t device) : client(card, device) {
        mr = client.reg_mr(testing::bytes_of(memory));
        cq = client.create_cq(64);
        qp = client.create_qp(cq, {.type = kIbvQptRawPacket});
        EXPECT_EQ(move(1, transport::kQpPort), 0);
        EXPECT_EQ(move(2), 0);
        EXPECT_EQ(move(3), 0);
        for (std::uint64_t i = 0; i < 8; ++i)
            client.post_recv(qp.recv, i, {{address(16384 + i * 2048), 2048, mr.lkey}});
    }
    int move(std::uint32_t state, std::uint32_t mask = 0) {
        abi::ModifyQpRequest request{};
        request.qpn = qp.info.qpn;
        request.mask = transport::kQpState | mask;
        request.attributes.state = state;
        request.attributes.port = 1;
        return client.call(abi::Op::kModifyQp, request);
    }
    std::uint64_t address(std::size_t offset) const { return testing::address_of(memory) + offset; }
    void send(const std::string& frame) {
        const std::size_t at = 1024 * (sent++ % 16);  // the card reads it later
        std::memcpy(memory.data() + at, frame.data(), frame.size());
        client.post_send(
            qp, {.sges = {{address(at), static_cast<std::uint32_t>(frame.size()), mr.lkey}}});
        client.ring(qp);
    }
    // The frames that have arrived.
    std::vector<std::string> poll() {
        std::vector<std::string> frames;
        while (const auto wc = client.poll(cq, &qp.recv)) {
            if ((wc->flags & abi::kCqeRecv) == 0) continue;
            EXPECT_EQ(wc->status, transport::WcStatus::kSuccess);
            frames.push_back(memory.substr(16384 + wc->wr_id * 2048, wc->byte_length));
        }
        return frames;
    }
    int create_flow(const abi::CreateFlowRequest& rule) {
        return client.call(abi::Op::kCreateFlow, rule);
    }
    abi::CreateFlowRequest rule(FlowRuleType type = FlowRuleType::kNormal) const {
        abi::CreateFlowRequest request{};
        request.qpn = qp.info.qpn;
        request.type = type;
        return request;
    }
    // Frames to a UDP port.
    abi::CreateFlowRequest port_rule(std::uint16_t port) const {
        abi::CreateFlowRequest request = rule();
        request.match.layers = flow::kRuleUdp;
        request.match.value.outer.destination_port = port;
        request.match.mask.outer.destination_port = 0xffff;
        return request;
    }

    std::string memory = std::string(65536, '\0');
    std::size_t sent = 0;
    TestClient client;
    abi::RegMrReply mr{};
    testing::TestCq cq;
    TestQp qp;
};

class RawCardTest : public ::testing::Test {
protected:
    MacAddress mac(std::uint32_t function) const {
        return setting.card.config().functions[function].mac;
    }
    std::string udp(const MacAddress& to, std::uint16_t port, std::uint8_t source = 1) const {
        std::string bytes(kFrameLength, 'p');
        const auto put = [&](std::size_t at, const auto& header) {
            std::memcpy(bytes.data() + at, &header, sizeof header);
        };
        put(0, wire::EthernetHeader{to.bytes, mac(kSf2).bytes, 0x0800});
        wire::Ipv4Header ip{};
        ip.version_ihl = 0x45;
        ip.total_length = kFrameLength - 14;
        ip.ttl = 64;
        ip.protocol = wire::kIpProtocolUdp;
        ip.source = 0x0a00'0000u + source;
        ip.destination = 0x0a00'0002u;
        std::uint32_t sum = 0;
        for (std::size_t i = 0; i < sizeof ip; i += 2)
            sum += load_bytes<Be16>(reinterpret_cast<const std::byte*>(&ip) + i);
        sum = (sum & 0xffff) + (sum >> 16);
        ip.checksum = static_cast<std::uint16_t>(~sum);
        put(14, ip);
        put(34, wire::UdpHeader{5000, port, kFrameLength - 34, 0});
        return bytes;
    }
    std::size_t netdev_frames(std::uint32_t function) const {
        std::size_t count = 0;
        for (const auto& frame : setting.host.netdev_frames) count += frame.function == function;
        return count;
    }
    bool send_by_netdev(std::uint32_t function, const std::string& frame) {
        return setting.card.handle_netdev_frame(
            function, {reinterpret_cast<const std::byte*>(frame.data()), frame.size()},
            setting.now);
    }

    testing::TestCard setting;
    RawEnd a{setting, kSf2}, b{setting, kSf3};
};

TEST_F(RawCardTest, a_frame_reaches_the_qp_whose_rule_it_meets) {
    ASSERT_EQ(b.create_flow(b.port_rule(7000)), 0);
    a.send(udp(mac(kSf3), 7000));
    a.send(udp(mac(kSf3), 7001));
    setting.settle();
    EXPECT_THAT(b.poll(), ElementsAre(udp(mac(kSf3), 7000)));
}

TEST_F(RawCardTest, the_network_interface_keeps_what_no_rule_takes) {
    setting.host.netdevs = {kSf3};
    ASSERT_EQ(b.create_flow(b.port_rule(7000)), 0);
    a.send(udp(mac(kSf3), 7000));
    a.send(udp(mac(kSf3), 7001));
    setting.settle();
    EXPECT_EQ(b.poll().size(), 1u);
    EXPECT_EQ(netdev_frames(kSf3), 1u);
}

TEST_F(RawCardTest, a_rule_that_does_not_trap_leaves_the_frame_to_others) {
    setting.host.netdevs = {kSf3};
    auto rule = b.port_rule(7000);
    rule.flags = abi::kFlowDontTrap;
    ASSERT_EQ(b.create_flow(rule), 0);
    a.send(udp(mac(kSf3), 7000));
    setting.settle();
    EXPECT_EQ(b.poll().size(), 1u);
    EXPECT_EQ(netdev_frames(kSf3), 1u);
}

TEST_F(RawCardTest, frames_of_a_network_interface_meet_rules_too) {
    ASSERT_EQ(b.create_flow(b.port_rule(7000)), 0);
    std::string frame = udp(mac(kSf3), 7000);
    const std::string expected = frame;
    ASSERT_TRUE(send_by_netdev(kSf2, frame));
    frame.assign(frame.size(), 'x');  // the bytes are the interface's again
    setting.settle();
    EXPECT_THAT(b.poll(), ElementsAre(expected));
}

TEST_F(RawCardTest, what_another_qp_of_the_device_sends_elsewhere_meets_its_rules) {
    RawEnd c{setting, kSf2};
    ASSERT_EQ(c.create_flow(c.port_rule(7000)), 0);
    const MacAddress stranger{{2, 9, 9, 9, 9, 9}};
    a.send(udp(stranger, 7000));
    setting.settle();
    EXPECT_THAT(c.poll(), ElementsAre(udp(stranger, 7000)));
}

TEST_F(RawCardTest, a_qp_gets_its_own_frames_only_when_it_asks_for_them) {
    auto rule = a.port_rule(7000);
    ASSERT_EQ(a.create_flow(rule), 0);
    const MacAddress stranger{{2, 9, 9, 9, 9, 9}};
    a.send(udp(stranger, 7000));
    a.send(udp(mac(kSf2), 7000));
    setting.settle();
    EXPECT_THAT(a.poll(), IsEmpty());
    rule.flags = abi::kFlowAllowLoopBack;
    ASSERT_EQ(a.create_flow(rule), 0);
    a.send(udp(stranger, 7000));
    a.send(udp(mac(kSf2), 7000));
    setting.settle();
    EXPECT_EQ(a.poll().size(), 2u);
}

TEST_F(RawCardTest, default_rules_take_what_nobody_wants) {
    ASSERT_EQ(b.create_flow(b.rule(FlowRuleType::kAllDefault)), 0);
    a.send(udp(mac(kSf3), 7000));
    setting.settle();
    EXPECT_EQ(b.poll().size(), 1u);
    setting.host.netdevs = {kSf3};
    a.send(udp(mac(kSf3), 7000));  // it is the interface's
    setting.settle();
    EXPECT_THAT(b.poll(), IsEmpty());
    EXPECT_EQ(netdev_frames(kSf3), 1u);
    a.send(udp(MacAddress{{1, 0, 0x5e, 1, 1, 1}}, 7000));  // the interface may have joined or not
    setting.settle();
    EXPECT_EQ(b.poll().size(), 1u);
    EXPECT_EQ(netdev_frames(kSf3), 2u);
}

TEST_F(RawCardTest, the_multicast_default_takes_groups_alone_and_before_the_other) {
    RawEnd other{setting, kSf3};
    ASSERT_EQ(other.create_flow(other.rule(FlowRuleType::kAllDefault)), 0);
    ASSERT_EQ(b.create_flow(b.rule(FlowRuleType::kMulticastDefault)), 0);
    const std::string group = udp(MacAddress{{1, 0, 0x5e, 1, 1, 1}}, 7000);
    a.send(group);
    a.send(udp(mac(kSf3), 7000));
    setting.settle();
    EXPECT_THAT(b.poll(), ElementsAre(group));
    EXPECT_THAT(other.poll(), ElementsAre(udp(mac(kSf3), 7000)));
}

TEST_F(RawCardTest, a_sniffer_sees_what_comes_and_what_leaves) {
    RawEnd sniffer{setting, kSf2};
    ASSERT_EQ(sniffer.create_flow(sniffer.rule(FlowRuleType::kSniffer)), 0);
    ASSERT_EQ(a.create_flow(a.port_rule(7000)), 0);
    a.send(udp(mac(kSf3), 7000));
    b.send(udp(mac(kSf2), 7000));
    setting.settle();
    EXPECT_EQ(sniffer.poll().size(), 2u);
    EXPECT_EQ(a.poll().size(), 1u);
}

TEST_F(RawCardTest, an_egress_rule_drops_what_is_sent) {
    auto rule = a.port_rule(7000);
    rule.flags = abi::kFlowEgress;
    rule.actions = abi::kFlowDrop;
    ASSERT_EQ(a.create_flow(rule), 0);
    ASSERT_EQ(b.create_flow(b.rule()), 0);
    a.send(udp(mac(kSf3), 7000));
    a.send(udp(mac(kSf3), 7001));
    ASSERT_TRUE(send_by_netdev(kSf2, udp(mac(kSf3), 7000)));
    setting.settle();
    EXPECT_THAT(b.poll(), ElementsAre(udp(mac(kSf3), 7001)));
}

TEST_F(RawCardTest, rules_go_with_their_qp_and_their_owner) {
    setting.host.netdevs = {kSf3};
    ASSERT_EQ(b.create_flow(b.port_rule(7000)), 0);
    ASSERT_EQ(b.client.call(abi::Op::kDestroyQp, abi::HandleRequest{b.qp.info.qpn}), 0);
    a.send(udp(mac(kSf3), 7000));
    setting.settle();
    EXPECT_EQ(netdev_frames(kSf3), 1u);
    RawEnd c{setting, kSf3};
    ASSERT_EQ(c.create_flow(c.port_rule(7000)), 0);
    setting.card.close_context(c.client.owner);
    a.send(udp(mac(kSf3), 7000));
    setting.settle();
    EXPECT_EQ(netdev_frames(kSf3), 2u);
}

TEST_F(RawCardTest, only_ud_and_raw_packet_qps_have_rules) {
    const TestQp rc = a.client.create_qp(a.cq), ud = a.client.create_qp(a.cq, {.type = kIbvQptUd});
    auto rule = a.rule();
    rule.qpn = rc.info.qpn;
    EXPECT_EQ(a.create_flow(rule), EINVAL);
    rule.qpn = ud.info.qpn;
    EXPECT_EQ(a.create_flow(rule), 0);
    rule.qpn = b.qp.info.qpn;  // somebody else's
    EXPECT_EQ(a.create_flow(rule), EINVAL);
    EXPECT_EQ(a.client.call(abi::Op::kDestroyFlow, abi::HandleRequest{99}), EINVAL);
}

TEST(RawCard, a_function_without_flow_steering_answers_enxio_and_does_not_claim_it) {
    CardConfig config = testing::loopback_config();
    config.functions[kSf2].flow_steering = false;
    testing::TestCard setting(config);
    RawEnd a{setting, kSf2}, b{setting, kSf3};
    EXPECT_EQ(a.create_flow(a.rule()), ENXIO);
    EXPECT_EQ(b.create_flow(b.rule()), 0);
    const auto features = [&](const RawEnd& end) {
        const ControlReply reply = setting.card.describe_context(end.client.owner);
        return load_bytes<abi::OpenContextReply>(reply.body.data()).features;
    };
    EXPECT_EQ(features(a), 0u);
    EXPECT_EQ(features(b), std::uint32_t{abi::kFlowSteering});
}

TEST_F(RawCardTest, counters_count_what_meets_the_rule) {
    ASSERT_EQ(b.client.call_bytes(abi::Op::kCreateCounters, {}), 0);
    const auto counters = b.client.reply_as<abi::HandleReply>().handle;
    auto rule = b.port_rule(7000);
    rule.counter_count = 1;
    rule.counters[0] = counters;
    ASSERT_EQ(b.create_flow(rule), 0);
    a.send(udp(mac(kSf3), 7000));
    a.send(udp(mac(kSf3), 7001));
    setting.settle();
    ASSERT_EQ(b.client.call(abi::Op::kReadCounters, abi::HandleRequest{counters}), 0);
    const auto values = b.client.reply_as<abi::ReadCountersReply>();
    EXPECT_EQ(values.packets, 1u);
    EXPECT_EQ(values.bytes, kFrameLength);
    EXPECT_EQ(b.client.call(abi::Op::kDestroyCounters, abi::HandleRequest{counters}), EBUSY);
}

TEST_F(RawCardTest, a_hash_qp_spreads_conversations_over_queues) {
    RawEnd c{setting, kSf3};
    abi::CreateHashQpRequest request{};
    request.pd = b.client.pd;
    request.cq = b.cq.info.cq;
    request.fields = kHashSourceIpv4;
    for (std::size_t i = 0; i < std::size(request.key); ++i)
        request.key[i] = static_cast<std::uint8_t>(37 * i + 11);
    const TestQp second = b.client.create_qp(b.cq, {.type = kIbvQptRawPacket});
    request.table_length = 3;
    EXPECT_EQ(b.client.call(abi::Op::kCreateHashQp, request), EINVAL);
    request.table_length = 2;
    request.table[0] = b.qp.info.qpn;
    request.table[1] = c.qp.info.qpn;  // another context's
    EXPECT_EQ(b.client.call(abi::Op::kCreateHashQp, request), EINVAL);
    request.table[1] = second.info.qpn;
    ASSERT_EQ(b.client.call(abi::Op::kCreateHashQp, request), 0);
    auto rule = b.rule();
    rule.qpn = b.client.reply_as<abi::CreateQpReply>().qpn;
    ASSERT_EQ(b.create_flow(rule), 0);
    // The second queue is not ready: what goes there is dropped, and the rest arrives.
    for (std::uint8_t source = 0; source < 8; ++source) a.send(udp(mac(kSf3), 7000, source));
    setting.settle();
    const std::size_t arrived = b.poll().size();
    EXPECT_GT(arrived, 0u);
    EXPECT_LT(arrived, 8u);
    EXPECT_EQ(setting.card.engine(kSf3).counters().rx_dropped, 8 - arrived);
}

}  // namespace
}  // namespace rdmalab::card
