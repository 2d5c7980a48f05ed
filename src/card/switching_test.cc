#include <gtest/gtest.h>

#include "card/switchboard.h"
#include "card/testing.h"
#include "wire/testing.h"

namespace rdmalab::card {
namespace {

// Functions of the loopback configuration.
constexpr std::uint32_t kPf0 = 0, kPf1 = 1, kSf2 = 2, kSf3 = 3, kSf4 = 4;

class Switching : public ::testing::Test, protected FrameSink {
protected:
    explicit Switching(const CardConfig& given = testing::loopback_config())
        : config(given), board(config, host, memory, *this, faults) {}

    void deliver(std::uint32_t function, wire::Frame& frame, Instant) override {
        delivered.push_back(function);
        last = frame;
    }
    wire::Frame make(std::uint32_t from, const MacAddress& to) {
        wire::Path path = wire::testing::path_of(false);
        path.source_mac = config.functions[from].mac;
        path.destination_mac = to;
        wire::Frame frame;
        wire::start_roce(frame, wire::make_lower_template(path),
                         *wire::find_opcode(wire::opcode_value(
                             wire::Service::kUc, wire::PacketKind::kSend, wire::Position::kOnly)));
        frame.add_segment({kCardSpace, 8, reinterpret_cast<std::uintptr_t>("payload")});
        wire::finish_roce(frame);
        return frame;
    }
    std::vector<std::uint32_t> send(std::uint32_t from, const MacAddress& to) {
        delivered.clear();
        wire::Frame frame = make(from, to);
        board.handle_frame(from, frame, now);
        return delivered;
    }
    std::vector<std::uint32_t> send(std::uint32_t from, std::uint32_t to) {
        return send(from, config.functions[to].mac);
    }
    using Targets = std::vector<std::uint32_t>;

    CardConfig config;
    testing::FakeHost host;
    testing::DirectMemory memory;
    std::vector<transport::CopyFault> faults;
    Switchboard board;
    std::vector<std::uint32_t> delivered;
    wire::Frame last;
    Instant now{1'000};
};

TEST_F(Switching, functions_reach_each_other_within_a_domain_and_over_the_cable) {
    EXPECT_EQ(send(kSf2, kSf4), Targets{kSf4});
    EXPECT_EQ(board.port_counters(0).tx_frames, 0u);
    EXPECT_EQ(send(kSf2, kSf3), Targets{kSf3});
    EXPECT_EQ(send(kPf1, kPf0), Targets{kPf0});
    EXPECT_EQ(send(kSf2, kSf2), Targets{kSf2});  // its own address
    const std::uint64_t length = wire::wire_length(make(kSf2, MacAddress{}));
    EXPECT_EQ(board.port_counters(0).tx_frames, 1u);
    EXPECT_EQ(board.port_counters(0).tx_bytes, length);
    EXPECT_EQ(board.port_counters(0).rx_frames, 1u);
    EXPECT_EQ(board.port_counters(1).rx_bytes, length);
    EXPECT_EQ(board.direction(0, true).counters().frames, 1u);
    EXPECT_EQ(board.direction(0, false).counters().bytes, length);
    EXPECT_EQ(board.vport_counters(kSf2).tx_frames, 3u);
    EXPECT_EQ(board.vport_counters(kSf2).rx_frames, 1u);
}

TEST_F(Switching, a_frame_without_impairments_is_handed_over_by_reference) {
    send(kSf2, kSf3);
    EXPECT_EQ(last.icrc_state, wire::IcrcState::kElided);
    EXPECT_FALSE(board.must_reclaim());
}

TEST_F(Switching, a_group_address_reaches_all_and_members_on_the_senders_own_device) {
    EXPECT_EQ(send(kSf2, *MacAddress::parse("33:33:00:00:00:01")),
              (Targets{kSf2, kPf1, kSf3, kPf0, kSf4}));
}

TEST_F(Switching, an_unknown_address_is_dropped_at_the_far_end) {
    EXPECT_EQ(send(kSf2, *MacAddress::parse("02:00:00:00:00:99")), Targets{});
    EXPECT_EQ(board.port_counters(1).dropped, 1u);
    EXPECT_EQ(board.port_counters(0).dropped, 0u);
}

TEST_F(Switching, taps_see_both_directions_once_they_are_on) {
    send(kSf2, kSf3);
    EXPECT_TRUE(host.captures.empty());
    board.set_tap({false, kSf2}, true);
    board.set_tap({true, 0}, true);
    board.set_tap({true, 1}, true);
    board.set_tap({false, kSf3}, true);
    send(kSf2, kSf3);
    ASSERT_EQ(host.captures.size(), 4u);
    const auto is = [&](std::size_t i, TapPoint point, bool inbound) {
        return host.captures[i].point == point && host.captures[i].inbound == inbound;
    };
    EXPECT_TRUE(is(0, {false, kSf2}, false));
    EXPECT_TRUE(is(1, {true, 0}, false));
    EXPECT_TRUE(is(2, {true, 1}, true));
    EXPECT_TRUE(is(3, {false, kSf3}, true));
    board.set_tap({true, 1}, false);
    send(kSf3, kSf2);
    EXPECT_EQ(host.captures.size(), 7u);
}

TEST_F(Switching, an_impaired_cable_holds_frames_until_they_are_due) {
    Impairments impairments;
    impairments.delay = microseconds(5);
    ASSERT_TRUE(board.set_impairments("cable0", true, impairments));
    EXPECT_EQ(send(kSf2, kSf3), Targets{});
    EXPECT_EQ(send(kSf3, kSf2), Targets{kSf2});  // the other direction is as it was
    EXPECT_EQ(board.next_deadline(), now + microseconds(5));
    delivered.clear();
    EXPECT_EQ(board.deliver_due(now + microseconds(5), 10), 1u);
    EXPECT_EQ(delivered, Targets{kSf3});
    EXPECT_TRUE(board.must_reclaim());
    board.reclaim();
    EXPECT_FALSE(board.must_reclaim());
}

TEST_F(Switching, deliveries_stop_at_the_budget) {
    Impairments impairments;
    impairments.delay = microseconds(5);
    ASSERT_TRUE(board.set_impairments("cable0", std::nullopt, impairments));
    for (int i = 0; i < 5; ++i) send(kSf2, kSf3);
    now = now + microseconds(5);
    EXPECT_EQ(board.deliver_due(now, 3), 3u);
    EXPECT_EQ(board.deliver_due(now, 3), 2u);
}

TEST_F(Switching, an_unknown_cable_is_an_error) {
    const Status status = board.set_impairments("cable7", std::nullopt, {});
    EXPECT_EQ(status.code(), ENOENT);
    EXPECT_NE(status.error().text.find("cable7"), std::string::npos);
}

TEST_F(Switching, the_rate_of_a_function_is_that_of_its_cable) {
    EXPECT_TRUE(board.rate_of(kSf2).is_unlimited());
    Impairments impairments;
    impairments.rate = {100'000'000'000};
    ASSERT_TRUE(board.set_impairments("cable0", true, impairments));
    EXPECT_EQ(board.rate_of(kSf2), impairments.rate);
    EXPECT_TRUE(board.rate_of(kSf3).is_unlimited());
}

class SwitchingAsBytes : public Switching {
protected:
    static CardConfig as_bytes() {
        CardConfig config = testing::loopback_config();
        config.force_computed_icrc = true;
        return config;
    }
    SwitchingAsBytes() : Switching(as_bytes()) {}
};

TEST_F(SwitchingAsBytes, frames_arrive_at_once_with_a_computed_icrc) {
    EXPECT_EQ(send(kSf2, kSf3), Targets{kSf3});
    EXPECT_EQ(last.icrc_state, wire::IcrcState::kPresent);
    EXPECT_EQ(send(kSf2, kSf4), Targets{kSf4});
    EXPECT_EQ(last.icrc_state, wire::IcrcState::kElided);  // no link in between
}

class SwitchingWithoutCable : public Switching {
protected:
    static CardConfig without_cable() {
        CardConfig config = testing::loopback_config();
        config.cables.clear();
        return config;
    }
    SwitchingWithoutCable() : Switching(without_cable()) {}
};

TEST_F(SwitchingWithoutCable, frames_for_the_other_side_are_dropped_at_the_port) {
    EXPECT_EQ(send(kSf2, kSf4), Targets{kSf4});
    EXPECT_EQ(send(kSf2, kSf3), Targets{});
    EXPECT_EQ(board.port_counters(0).dropped, 1u);
    EXPECT_EQ(board.port_counters(0).tx_frames, 0u);
}

class SwitchingInARing : public Switching {
protected:
    // Two cables between the two domains: a flooded frame would go round for ever.
    static CardConfig ring() {
        CardConfig config = testing::loopback_config();
        config.ports.push_back({"p2", "mlx5_0"});
        config.ports.push_back({"p3", "mlx5_1"});
        config.cables.push_back({"cable1", "p2", "p3", {}, {}});
        return config;
    }
    SwitchingInARing() : Switching(ring()) {}
};

TEST_F(SwitchingInARing, a_flooded_frame_comes_to_an_end) {
    EXPECT_FALSE(send(kSf2, MacAddress::broadcast()).empty());
    EXPECT_EQ(send(kSf2, kSf3), Targets{kSf3});
}

}  // namespace
}  // namespace rdmalab::card
