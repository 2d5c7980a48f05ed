#include "card/receive_steering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace rdmalab::card {
namespace {

using abi::CreateFlowRequest;
using abi::FlowRuleType;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr OwnerId kOwner{1}, kOther{2};
constexpr std::size_t kLength = 100;

CreateFlowRequest rule(std::uint32_t qpn, FlowRuleType type = FlowRuleType::kNormal) {
    CreateFlowRequest request{};
    request.qpn = qpn;
    request.type = type;
    return request;
}

class ReceiveSteeringTest : public ::testing::Test {
protected:
    using Qpns = std::vector<std::uint32_t>;
    auto into(Qpns& out) {
        return [&out](const SteeredTo& to) { out.push_back(to.qpn.value); };
    }
    Qpns arrive() {
        Qpns out;
        taken = steering.arrive(seen(), into(out));
        return out;
    }
    Qpns fall_through(bool is_multicast) {
        Qpns out;
        taken = steering.fall_through(seen(), is_multicast, into(out));
        return out;
    }
    Qpns depart() {
        Qpns out;
        taken = steering.depart(seen(), into(out));
        return out;
    }
    std::uint64_t packets(std::uint32_t counters) {
        return steering.read_counters(kOwner, counters).value().packets;
    }

    SteeredFrame seen() const { return {frame, kLength, sender}; }

    ReceiveSteering steering;
    flow::FlatFrame frame{flow::kRuleEthernet, {}};
    bool taken = false;
    Qpn sender{};
};

TEST_F(ReceiveSteeringTest, nothing_is_seen_without_rules) {
    EXPECT_FALSE(steering.sees_arrivals());
    EXPECT_FALSE(steering.sees_departures());
    EXPECT_FALSE(steering.has_defaults());
    EXPECT_THAT(arrive(), IsEmpty());
    EXPECT_FALSE(taken);
}

TEST_F(ReceiveSteeringTest, a_normal_rule_takes_the_frame) {
    ASSERT_TRUE(steering.create_rule(kOwner, rule(5)).ok());
    EXPECT_TRUE(steering.sees_arrivals());
    EXPECT_THAT(arrive(), ElementsAre(5));
    EXPECT_TRUE(taken);
}

TEST_F(ReceiveSteeringTest, a_sniffer_gets_copies_of_what_comes_and_goes_and_takes_nothing) {
    ASSERT_TRUE(steering.create_rule(kOwner, rule(9, FlowRuleType::kSniffer)).ok());
    EXPECT_THAT(arrive(), ElementsAre(9));
    EXPECT_FALSE(taken);
    EXPECT_THAT(depart(), ElementsAre(9));
    EXPECT_FALSE(taken);
    ASSERT_TRUE(steering.create_rule(kOwner, rule(5)).ok());
    EXPECT_THAT(arrive(), ElementsAre(9, 5));
    EXPECT_TRUE(taken);
}

TEST_F(ReceiveSteeringTest, defaults_take_what_nobody_took) {
    ASSERT_TRUE(steering.create_rule(kOwner, rule(1, FlowRuleType::kAllDefault)).ok());
    ASSERT_TRUE(steering.create_rule(kOwner, rule(2, FlowRuleType::kMulticastDefault)).ok());
    EXPECT_FALSE(steering.sees_arrivals());
    EXPECT_TRUE(steering.has_defaults());
    EXPECT_THAT(fall_through(false), ElementsAre(1));
    EXPECT_THAT(fall_through(true), ElementsAre(2));
}

TEST_F(ReceiveSteeringTest, a_rule_that_drops_takes_the_frame_and_gives_it_to_nobody) {
    CreateFlowRequest drop = rule(5);
    drop.actions = abi::kFlowDrop;
    ASSERT_TRUE(steering.create_rule(kOwner, drop).ok());
    EXPECT_THAT(arrive(), IsEmpty());
    EXPECT_TRUE(taken);
}

TEST_F(ReceiveSteeringTest, egress_rules_count_and_drop_what_is_sent) {
    const std::uint32_t counters = steering.create_counters(kOwner).value();
    CreateFlowRequest count = rule(5);
    count.flags = abi::kFlowEgress;
    EXPECT_EQ(steering.create_rule(kOwner, count).error().code, EINVAL) << "it does nothing";
    count.counter_count = 1;
    count.counters[0] = counters;
    ASSERT_TRUE(steering.create_rule(kOwner, count).ok());
    EXPECT_THAT(depart(), IsEmpty());
    EXPECT_FALSE(taken);
    EXPECT_EQ(packets(counters), 1u);
    CreateFlowRequest drop = rule(5);
    drop.flags = abi::kFlowEgress;
    drop.actions = abi::kFlowDrop;
    drop.priority = 1;
    ASSERT_TRUE(steering.create_rule(kOwner, drop).ok());
    EXPECT_THAT(depart(), IsEmpty());
    EXPECT_TRUE(taken);
    EXPECT_EQ(packets(counters), 2u);
}

TEST_F(ReceiveSteeringTest, counters_belong_to_their_owner_and_stay_while_used) {
    const std::uint32_t counters = steering.create_counters(kOwner).value();
    CreateFlowRequest counting = rule(5);
    counting.counter_count = 1;
    counting.counters[0] = counters;
    EXPECT_EQ(steering.create_rule(kOther, counting).error().code, EINVAL);
    const std::uint32_t handle = steering.create_rule(kOwner, counting).value();
    arrive();
    arrive();
    const auto read = steering.read_counters(kOwner, counters).value();
    EXPECT_EQ(read.packets, 2u);
    EXPECT_EQ(read.bytes, 2 * kLength);
    EXPECT_EQ(steering.read_counters(kOther, counters).error().code, EINVAL);
    EXPECT_EQ(steering.destroy_counters(kOwner, counters), EBUSY);
    EXPECT_EQ(steering.destroy_rule(kOther, handle), EINVAL);
    EXPECT_EQ(steering.destroy_rule(kOwner, handle), 0);
    EXPECT_EQ(steering.destroy_counters(kOwner, counters), 0);
    EXPECT_EQ(steering.destroy_counters(kOwner, counters), EINVAL);
}

TEST_F(ReceiveSteeringTest, rules_go_with_their_qp_and_with_their_owner) {
    ASSERT_TRUE(steering.create_rule(kOwner, rule(5)).ok());
    ASSERT_TRUE(steering.create_rule(kOwner, rule(6)).ok());
    ASSERT_TRUE(steering.create_rule(kOther, rule(7)).ok());
    steering.remove_rules_of(Qpn{5});
    EXPECT_EQ(steering.rule_count(), 2u);
    steering.release(kOwner);
    EXPECT_THAT(arrive(), ElementsAre(7));
}

TEST_F(ReceiveSteeringTest, a_tag_goes_with_the_frame) {
    CreateFlowRequest tagged = rule(5);
    tagged.actions = abi::kFlowTag;
    tagged.tag = 77;
    ASSERT_TRUE(steering.create_rule(kOwner, tagged).ok());
    std::optional<std::uint32_t> tag;
    steering.arrive(seen(), [&](const SteeredTo& to) { tag = to.tag; });
    EXPECT_EQ(tag, 77u);
}

TEST_F(ReceiveSteeringTest, what_makes_no_sense_is_einval) {
    const auto refused = [&](auto change) {
        CreateFlowRequest request = rule(5);
        change(request);
        const auto made = steering.create_rule(kOwner, request);
        return !made.ok() && made.error().code == EINVAL;
    };
    EXPECT_TRUE(refused([](auto& r) { r.type = static_cast<FlowRuleType>(4); }));
    EXPECT_TRUE(refused([](auto& r) { r.flags = 8; }));
    EXPECT_TRUE(refused([](auto& r) { r.actions = 4; }));
    EXPECT_TRUE(refused([](auto& r) { r.priority = 0x10000; }));
    EXPECT_TRUE(refused([](auto& r) { r.counter_count = 5; }));
    EXPECT_TRUE(refused([](auto& r) {
        r.counter_count = 1;
        r.counters[0] = 99;
    }));
    EXPECT_TRUE(refused([](auto& r) {
        r.type = FlowRuleType::kSniffer;
        r.match.layers = flow::kRuleEthernet;
    }));
    EXPECT_TRUE(refused([](auto& r) {
        r.type = FlowRuleType::kAllDefault;
        r.flags = abi::kFlowEgress;
    }));
    EXPECT_EQ(steering.rule_count(), 0u);
}

}  // namespace
}  // namespace rdmalab::card
