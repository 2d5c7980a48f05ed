// What goes wrong on a card: clients that vanish, hostile rings, faulty cables.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/prng.h"
#include "card/card_fixture.h"
#include "card/verbs_values.h"

namespace rdmalab::card {
namespace {

using namespace testing;
using abi::Op;
using transport::WcStatus;

// --- The end of things

TEST_F(CardTest, a_client_that_goes_away_leaves_its_peer_to_its_retries) {
    ASSERT_EQ(a.connect(a_qp, b, b_qp), EINVAL);  // it is in RTS already
    TestQp mine = a.create_qp(a_cq), its = b.create_qp(b_cq);
    ASSERT_EQ(a.connect(mine, b, its, 1), 0);  // 8 us
    ASSERT_EQ(b.connect(its, a, mine), 0);
    a.post_send(mine, write(1, 60'000));
    setting.card.poll(setting.now);  // some of it is on its way
    setting.card.close_context(b.owner);
    setting.memory.remove(b.space);
    setting.run_for(seconds(1));
    EXPECT_EQ(status_of_a(), WcStatus::kRetryExcErr);
    TestClient next(setting, 3);
    EXPECT_NE(next.create_qp(next.create_cq(4)).info.qpn, 0u);
}

TEST_F(CardTest, the_sender_may_go_away_in_the_middle_of_a_message) {
    for (int i = 0; i < 8; ++i) a.post_send(a_qp, write(1, 60'000));
    setting.card.poll(setting.now);
    setting.card.close_context(a.owner);
    setting.memory.remove(a.space);
    setting.run_for(seconds(1));
    EXPECT_EQ(setting.card.engine(2).object_counts().qps, 0u);
    EXPECT_FALSE(b.poll(b_cq));
}

TEST_F(CardTest, memory_that_vanishes_is_an_error_and_not_a_crash) {
    setting.memory.remove(b.space);
    a.post_send(a_qp, write(1, 60'000));
    setting.run_for(milliseconds(100));
    EXPECT_NE(status_of_a(), WcStatus::kSuccess);
}

TEST_F(CardTest, a_reset_qp_forgets_what_was_posted) {
    b.post_recv(b_qp.recv, 1, {b_sge(0, 100)});
    ASSERT_EQ(b.to_state(b_qp, 0), 0);
    ASSERT_EQ(a.to_state(a_qp, 0), 0);
    ASSERT_EQ(b.connect(b_qp, a, a_qp), 0);
    ASSERT_EQ(a.connect(a_qp, b, b_qp), 0);
    b.post_recv(b_qp.recv, 2, {b_sge(0, 100)});
    a.post_send(a_qp, send(5, 100));
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kSuccess);
    const auto wc = b.poll(b_cq, &b_qp.recv);
    ASSERT_TRUE(wc);
    EXPECT_EQ(wc->wr_id, 2u);
}

// --- Hostile clients

TEST_F(CardTest, a_malformed_entry_completes_with_an_error) {
    SendOptions options = write(3, 100);
    options.opcode = static_cast<abi::SendOpcode>(77);
    a.post_send(a_qp, options);
    setting.settle();
    const auto wc = a.poll(a_cq);
    ASSERT_TRUE(wc);
    EXPECT_EQ(wc->wr_id, 3u);
    EXPECT_EQ(wc->status, WcStatus::kLocQpOpErr);
}

TEST_F(CardTest, a_send_queue_with_a_wild_index_is_fatal_for_its_qp_alone) {
    TestQp other = a.create_qp(a_cq), its = b.create_qp(b_cq);
    ASSERT_EQ(a.connect(other, b, its), 0);
    ASSERT_EQ(b.connect(its, a, other), 0);
    a_qp.send.header()->producer = 0x7fff'ffff;
    a.ring(a_qp);
    setting.settle();
    ASSERT_EQ(setting.host.async_notes.size(), 1u);
    EXPECT_EQ(setting.host.async_notes[0].event.type, kIbvEventQpFatal);
    EXPECT_EQ(setting.host.async_notes[0].event.object, a_qp.info.qpn);
    EXPECT_EQ(setting.host.async_notes[0].event.generation, a_qp.info.generation);
    ASSERT_EQ(a.call(Op::kQueryQp, abi::HandleRequest{a_qp.info.qpn}), 0);
    EXPECT_EQ(a.reply_as<abi::QpAttributes>().state, 6u);
    a.post_send(other, write(1, 8));
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kSuccess);
}

TEST_F(CardTest, a_receive_queue_with_a_wild_index_is_fatal_for_its_qp) {
    b_qp.recv.header()->producer = 0x8000'0000;
    a.post_send(a_qp, send(1, 100));
    setting.settle();
    ASSERT_EQ(setting.host.async_notes.size(), 1u);
    EXPECT_EQ(setting.host.async_notes[0].event.type, kIbvEventQpFatal);
    EXPECT_EQ(setting.host.async_notes[0].owner, b.owner);
}

TEST_F(CardTest, a_shared_receive_queue_with_a_wild_entry_is_an_srq_error) {
    TestSrq srq = b.create_srq(4);
    TestQp its = b.create_qp(b_cq, {.srq = &srq}), mine = a.create_qp(a_cq);
    ASSERT_EQ(a.connect(mine, b, its), 0);
    ASSERT_EQ(b.connect(its, a, mine), 0);
    store_bytes(srq.base + abi::kRingHeaderSize, std::uint32_t{99});
    srq.header()->producer = 1;
    a.post_send(mine, send(1, 100));
    setting.settle();
    ASSERT_FALSE(setting.host.async_notes.empty());
    EXPECT_EQ(setting.host.async_notes[0].event.type, kIbvEventSrqErr);
    EXPECT_EQ(setting.host.async_notes[0].event.object, srq.info.srq);
}

TEST_F(CardTest, doorbells_of_slots_that_do_not_exist_are_ignored) {
    for (std::uint32_t slot = 0; slot < abi::kDoorbellSlots; slot += 1'000) a.ring_slot(slot);
    a.ring_slot(abi::kDoorbellSlots - 1);
    setting.settle();
    EXPECT_FALSE(setting.card.doorbell_pending());
}

// --- Faults of the cable

TEST_F(CardTest, a_lossy_cable_loses_no_data) {
    Impairments impairments;
    impairments.loss = 0.02;
    impairments.reorder = 0.01;
    impairments.duplicate = 0.01;
    impairments.corrupt = 0.005;
    impairments.delay = microseconds(3);
    ASSERT_TRUE(setting.card.set_impairments("cable0", std::nullopt, impairments, setting.now));
    Prng prng(5);
    for (int message = 0; message < 100; ++message) {
        for (char& byte : a_memory) byte = static_cast<char>(prng.next());
        const auto length = static_cast<std::uint32_t>(1 + prng.below(a_memory.size()));
        a.post_send(a_qp, write(1, length));
        setting.run_for(seconds(5));
        ASSERT_EQ(status_of_a(), WcStatus::kSuccess);
        ASSERT_EQ(std::memcmp(a_memory.data(), b_memory.data(), length), 0);
    }
    const CableCounters counters = setting.card.cable_counters(0, true);
    EXPECT_GT(counters.lost, 0u);
    EXPECT_GT(counters.reordered, 0u);
    EXPECT_GT(counters.duplicated, 0u);
    EXPECT_GT(counters.corrupted, 0u);
    EXPECT_GT(setting.card.engine(3).counters().rx_icrc_errors, 0u);
}

TEST_F(CardTest, every_damaged_frame_is_dropped) {
    Impairments impairments;
    impairments.corrupt = 1;
    ASSERT_TRUE(setting.card.set_impairments("cable0", true, impairments, setting.now));
    a.post_send(a_qp, write(1, 60'000));
    setting.run_for(microseconds(10));
    EXPECT_FALSE(a.poll(a_cq));
    const auto sent = setting.card.cable_counters(0, true).frames;
    EXPECT_GT(setting.card.engine(3).counters().rx_icrc_errors, sent / 2);
}

TEST_F(CardTest, without_verification_damage_is_delivered) {
    Impairments impairments;
    impairments.corrupt = 1;
    impairments.verify_icrc = false;
    ASSERT_TRUE(setting.card.set_impairments("cable0", true, impairments, setting.now));
    a.post_send(a_qp, write(1, 60'000));
    setting.run_for(seconds(2));
    EXPECT_EQ(setting.card.engine(3).counters().rx_icrc_errors, 0u);
    EXPECT_NE(std::memcmp(a_memory.data(), b_memory.data(), 60'000), 0);
    EXPECT_GT(std::ranges::count_if(b_memory, [](char c) { return c != 'a' && c != 'b'; }), 0);
}

TEST_F(CardTest, a_slow_cable_paces_a_message) {
    Impairments impairments;
    impairments.rate = {1'000'000'000};
    ASSERT_TRUE(setting.card.set_impairments("cable0", std::nullopt, impairments, setting.now));
    const Instant start = setting.now;
    a.post_send(a_qp, write(1, 60'000));
    while (a_cq.header->producer == 0) {
        setting.settle();
        if (a_cq.header->producer == 0) setting.now = setting.card.next_deadline();
    }
    const double microseconds_taken = static_cast<double>((setting.now - start).ns) / 1e3;
    EXPECT_GT(microseconds_taken, 480);  // 8 ns per byte of payload
    EXPECT_LT(microseconds_taken, 560);  // and its headers
}

TEST_F(CardTest, ce_marks_bring_cnps) {
    Impairments impairments;
    impairments.ce = 1;
    ASSERT_TRUE(setting.card.set_impairments("cable0", true, impairments, setting.now));
    a.post_send(a_qp, write(1, 60'000));
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kSuccess);
    EXPECT_GT(setting.card.engine(3).counters().np_ecn_marked_roce_packets, 0u);
    EXPECT_GT(setting.card.engine(2).counters().rp_cnp_handled, 0u);
}

TEST_F(CardTest, taps_are_found_by_name) {
    EXPECT_EQ(*setting.card.find_tap("p1"), (TapPoint{true, 1}));
    EXPECT_EQ(*setting.card.find_tap("pf0sf4"), (TapPoint{false, 4}));
    EXPECT_EQ(*setting.card.find_tap("mlx5_0"), (TapPoint{false, 0}));
    EXPECT_FALSE(setting.card.find_tap(""));
    EXPECT_FALSE(setting.card.find_tap("p7"));
}

}  // namespace
}  // namespace rdmalab::card
