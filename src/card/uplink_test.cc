// Two cards, and between their uplinks a wire that the test is.
#include <gtest/gtest.h>

#include "card/test_client.h"
#include "card/verbs_values.h"
#include "wire/burst.h"
#include "wire/icrc.h"

namespace rdmalab::card {
namespace {

using namespace testing;
using transport::WcStatus;

constexpr std::uint32_t kPort = 0, kFunction = 0;

CardConfig one_device(const std::string& name, int number, bool may_burst) {
    CardConfig config;
    config.name = name;
    config.ports = {{"p0", "mlx5_0", "eth0", may_burst}};
    FunctionConfig pf;
    pf.kind = FunctionKind::kPf;
    pf.device = pf.pf_device = "mlx5_0";
    pf.mac = MacAddress{{2, 0, 0, 0, 1, static_cast<std::uint8_t>(number)}};
    pf.ips = {*Gid::parse("10.1.0." + std::to_string(number))};
    config.functions = {pf};
    config.cables = {{"eth0", "p0", "eth0", {}, {}}};
    return config;
}

class UplinkTest : public ::testing::TestWithParam<bool> {
protected:
    UplinkTest() {
        introduce(near, far);
        introduce(far, near);
    }
    static void introduce(TestCard& to, TestCard& who) {
        const FunctionConfig& function = who.card.config().functions[0];
        to.host.neighbours[function.ips[0]] = function.mac;
    }
    void connect() {
        ASSERT_EQ(a.connect(a_qp, b, b_qp), 0);
        ASSERT_EQ(b.connect(b_qp, a, a_qp), 0);
    }
    SendOptions write(std::uint32_t length) {
        return {.wr_id = 1,
                .opcode = abi::SendOpcode::kWrite,
                .sges = {{address_of(a_memory), length, a_mr.lkey}},
                .remote_address = address_of(b_memory),
                .rkey = b_mr.rkey};
    }
    // Carries what has been sent to the other side until nothing is under way.
    void settle() {
        near.settle();
        far.settle();
        while (!near.host.uplink_sent.empty() || !far.host.uplink_sent.empty()) {
            carry(near, far);
            carry(far, near);
        }
    }
    void carry(TestCard& from, TestCard& to) {
        const auto sent = std::exchange(from.host.uplink_sent, {});
        for (const FakeHost::UplinkBytes& one : sent) {
            bursts += one.segment_length != 0;
            longest = std::max(longest, one.bytes.size());
            to.card.handle_uplink(kPort, one.bytes, one.segment_length, to.now);
            to.settle();
        }
        from.settle();
    }
    const transport::EngineCounters& counters(const TestCard& card) const {
        return card.card.engine(kFunction).counters();
    }

    TestCard near{one_device("near", 1, GetParam())}, far{one_device("far", 2, GetParam())};
    TestClient a{near, 0}, b{far, 0};
    std::string a_memory = std::string(65536, 'a'), b_memory = std::string(65536, 'b');
    abi::RegMrReply a_mr = a.reg_mr(bytes_of(a_memory)), b_mr = b.reg_mr(bytes_of(b_memory));
    TestCq a_cq = a.create_cq(64), b_cq = b.create_cq(64);
    TestQp a_qp = a.create_qp(a_cq), b_qp = b.create_qp(b_cq);
    std::size_t bursts = 0, longest = 0;
};
INSTANTIATE_TEST_SUITE_P(Uplink, UplinkTest, ::testing::Bool(),
                         [](const auto& burst) { return burst.param ? "bursts" : "frames"; });

TEST_P(UplinkTest, messages_cross_to_the_other_card) {
    connect();
    for (std::size_t i = 0; i < a_memory.size(); ++i) a_memory[i] = static_cast<char>(i * 7 >> 3);
    a.post_send(a_qp, write(65'536));
    settle();
    const auto wc = a.poll(a_cq);
    ASSERT_TRUE(wc);
    EXPECT_EQ(wc->status, WcStatus::kSuccess);
    EXPECT_EQ(a_memory, b_memory);
    EXPECT_EQ(counters(far).rx_icrc_errors, 0u);
    EXPECT_EQ(counters(near).retransmitted_frames, 0u);
    if (GetParam()) {
        EXPECT_GT(bursts, 0u);
    } else {
        EXPECT_EQ(bursts, 0u);
        EXPECT_LT(longest, 4'200u);
    }
}

TEST_P(UplinkTest, reads_and_odd_lengths_cross_too) {
    connect();
    for (const std::uint32_t length : {1u, 3u, 4'095u, 4'097u, 20'001u}) {
        b_memory.assign(65'536, static_cast<char>('0' + length % 10));
        a.post_send(a_qp, {.wr_id = 2,
                           .opcode = abi::SendOpcode::kRead,
                           .sges = {{address_of(a_memory), length, a_mr.lkey}},
                           .remote_address = address_of(b_memory),
                           .rkey = b_mr.rkey});
        settle();
        ASSERT_EQ(a.poll(a_cq)->status, WcStatus::kSuccess);
        EXPECT_EQ(a_memory.substr(0, length), b_memory.substr(0, length));
    }
    EXPECT_EQ(counters(near).rx_icrc_errors, 0u);
}

TEST_P(UplinkTest, payload_that_is_not_there_leaves_nothing_behind) {
    connect();
    a.post_send(a_qp, write(8'192));
    settle();  // the places of the queue hold "aaa" now
    ASSERT_TRUE(a.poll(a_cq));
    a.post_send(a_qp, write(8'192));
    near.memory.remove(a.space);
    near.settle();
    for (const FakeHost::UplinkBytes& sent : near.host.uplink_sent) {
        const std::string text(reinterpret_cast<const char*>(sent.bytes.data()), sent.bytes.size());
        EXPECT_EQ(text.find("aaaa"), text.npos);
    }
    settle();
    EXPECT_GT(counters(far).rx_icrc_errors, 0u) << "what left was no frame";
    EXPECT_EQ(a.poll(a_cq)->status, WcStatus::kLocProtErr);
}

TEST_P(UplinkTest, an_interface_that_is_full_stops_the_device_and_loses_nothing) {
    connect();
    near.host.uplink_room = 1;
    a.post_send(a_qp, write(65'536));
    a.post_send(a_qp, write(65'536));
    near.settle();
    EXPECT_EQ(near.host.uplink_sent.size(), 1u);
    EXPECT_FALSE(near.card.poll(near.now)) << "nothing to do while nothing can leave";
    EXPECT_FALSE(a.poll(a_cq));
    near.host.uplink_room = SIZE_MAX;
    near.card.resume_uplink(kPort);
    settle();
    EXPECT_EQ(a.poll(a_cq)->status, WcStatus::kSuccess);
    EXPECT_EQ(a.poll(a_cq)->status, WcStatus::kSuccess);
    EXPECT_EQ(counters(near).retransmitted_frames, 0u);
}

TEST_P(UplinkTest, a_wire_that_is_cut_takes_the_port_down) {
    const auto state = [&] {
        EXPECT_EQ(a.call_bytes(abi::Op::kQueryPort, {}), 0);
        return a.reply_as<abi::QueryPortReply>().state;
    };
    connect();
    EXPECT_EQ(state(), kIbvPortActive);
    near.card.set_uplink_state(kPort, false);
    EXPECT_EQ(state(), kIbvPortDown);
    ASSERT_EQ(near.host.async_notes.size(), 1u);
    EXPECT_EQ(near.host.async_notes[0].event.type, 10u) << "IBV_EVENT_PORT_ERR";
    a.post_send(a_qp, write(100));
    near.settle();
    EXPECT_TRUE(near.host.uplink_sent.empty());
    EXPECT_GT(near.card.port_counters(kPort).dropped, 0u);
    near.card.set_uplink_state(kPort, true);
    EXPECT_EQ(near.host.async_notes[1].event.type, 9u) << "IBV_EVENT_PORT_ACTIVE";
    near.run_for(milliseconds(200));
    settle();
    EXPECT_EQ(a.poll(a_cq)->status, WcStatus::kSuccess);
}

TEST_P(UplinkTest, a_neighbour_is_waited_for) {
    near.host.answers = false;
    const auto known = std::exchange(near.host.neighbours, {});
    EXPECT_EQ(a.connect(a_qp, b, b_qp), kAwaitsNeighbour);
    near.host.answers = true;
    EXPECT_EQ(a.to_state(a_qp, 0), 0);
    EXPECT_EQ(a.connect(a_qp, b, b_qp), EHOSTUNREACH);
    near.host.neighbours = known;
    EXPECT_EQ(a.to_state(a_qp, 0), 0);
    connect();
}

TEST_P(UplinkTest, damage_on_the_wire_is_found_and_repaired) {
    connect();
    a.post_send(a_qp, write(900));
    near.settle();
    ASSERT_EQ(near.host.uplink_sent.size(), 1u);
    near.host.uplink_sent[0].bytes[500] ^= std::byte{1};
    settle();
    EXPECT_EQ(counters(far).rx_icrc_errors, 1u);
    EXPECT_FALSE(a.poll(a_cq));
    near.run_for(milliseconds(200));
    settle();
    EXPECT_EQ(a.poll(a_cq)->status, WcStatus::kSuccess);
    EXPECT_EQ(b_memory.substr(0, 900), a_memory.substr(0, 900));
}

TEST_P(UplinkTest, faults_are_those_of_a_cable_in_either_direction) {
    connect();
    Impairments impairments;
    impairments.loss = 0.2;
    impairments.reorder = 0.1;
    for (TestCard* card : {&near, &far})
        ASSERT_TRUE(card->card.set_impairments("eth0", {}, impairments, card->now).ok());
    a.post_send(a_qp, write(60'000));
    for (int i = 0; i < 400 && a_cq.header->producer == 0; ++i) {
        settle();
        near.run_for(milliseconds(70));
        far.run_for(milliseconds(1));
    }
    EXPECT_EQ(a.poll(a_cq)->status, WcStatus::kSuccess);
    EXPECT_EQ(b_memory.substr(0, 60'000), a_memory.substr(0, 60'000));
    EXPECT_GT(near.card.cable_counters(0, true).lost, 0u);
    EXPECT_GT(far.card.cable_counters(0, false).lost, 0u);
    EXPECT_EQ(counters(far).rx_icrc_errors, 0u);
}

TEST_P(UplinkTest, what_is_no_frame_is_counted) {
    connect();
    a.post_send(a_qp, write(900));
    near.settle();
    ASSERT_EQ(near.host.uplink_sent.size(), 1u);
    std::vector<std::byte> bytes = near.host.uplink_sent[0].bytes;
    for (std::size_t length = bytes.size(); length-- > 0;) {
        bytes.resize(length);
        far.card.handle_uplink(kPort, bytes, 0, far.now);
        far.card.handle_uplink(kPort, bytes, 500, far.now);
        far.settle();
    }
    EXPECT_GT(far.card.port_counters(kPort).malformed, 900u);
    EXPECT_EQ(b_memory.find('a'), b_memory.npos);
}

}  // namespace
}  // namespace rdmalab::card
