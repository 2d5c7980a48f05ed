// Clients on a card, end to end: rings, engines, e-switch, cable, rings.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/prng.h"
#include "card/test_client.h"
#include "card/verbs_values.h"

namespace rdmalab::card {
namespace {

using namespace testing;
using abi::Op;
using transport::WcStatus;

// Two clients with a connected pair of RC QPs, over the cable.
class CardTest : public ::testing::Test {
protected:
    explicit CardTest(const CardConfig& config = loopback_config()) : setting(config) {
        a_mr = a.reg_mr(bytes_of(a_memory));
        b_mr = b.reg_mr(bytes_of(b_memory));
        a_qp = a.create_qp(a_cq);
        b_qp = b.create_qp(b_cq);
        EXPECT_EQ(a.connect(a_qp, b, b_qp), 0);
        EXPECT_EQ(b.connect(b_qp, a, a_qp), 0);
    }
    abi::Sge a_sge(std::size_t offset, std::uint32_t length) const {
        return {address_of(a_memory) + offset, length, a_mr.lkey};
    }
    abi::Sge b_sge(std::size_t offset, std::uint32_t length) const {
        return {address_of(b_memory) + offset, length, b_mr.lkey};
    }
    SendOptions write(std::uint64_t wr_id, std::uint32_t length) const {
        return {.wr_id = wr_id,
                .opcode = abi::SendOpcode::kWrite,
                .sges = {a_sge(0, length)},
                .remote_address = address_of(b_memory),
                .rkey = b_mr.rkey};
    }
    SendOptions send(std::uint64_t wr_id, std::uint32_t length) const {
        return {.wr_id = wr_id, .sges = {a_sge(0, length)}};
    }
    // Client a's next completion.
    WcStatus status_of_a() {
        const auto wc = a.poll(a_cq);
        EXPECT_TRUE(wc);
        return wc ? wc->status : WcStatus::kGeneralErr;
    }

    TestCard setting;
    TestClient a{setting, 2}, b{setting, 3};
    std::string a_memory = std::string(65536, 'a'), b_memory = std::string(65536, 'b');
    abi::RegMrReply a_mr{}, b_mr{};
    TestCq a_cq = a.create_cq(64), b_cq = b.create_cq(64);
    TestQp a_qp, b_qp;
};

TEST_F(CardTest, a_write_lands_in_the_other_clients_memory) {
    a_memory.replace(0, 5, "hello");
    a.post_send(a_qp, write(7, 10'000));
    EXPECT_TRUE(setting.card.doorbell_pending());
    setting.settle();
    const auto wc = a.poll(a_cq);
    ASSERT_TRUE(wc);
    EXPECT_EQ(wc->wr_id, 7u);
    EXPECT_EQ(wc->status, WcStatus::kSuccess);
    EXPECT_EQ(wc->opcode, abi::CqeOpcode::kWrite);
    EXPECT_EQ(wc->qpn, a_qp.info.qpn);
    EXPECT_EQ(b_memory.substr(0, 6), "helloa");
    EXPECT_EQ(b_memory.substr(9'999, 2), "ab");
    EXPECT_FALSE(a.poll(a_cq));
    EXPECT_FALSE(b.poll(b_cq));
    EXPECT_FALSE(setting.card.doorbell_pending());
    EXPECT_GT(setting.card.port_counters(0).tx_frames, 9u);
}

TEST_F(CardTest, a_send_meets_its_receive) {
    a_memory.replace(0, 4, "ping");
    b.post_recv(b_qp.recv, 50, {b_sge(100, 2'000), b_sge(5'000, 1'000)});
    SendOptions options = send(8, 3'000);
    options.opcode = abi::SendOpcode::kSendImm;
    options.immediate = 0x11223344;
    a.post_send(a_qp, options);
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kSuccess);
    const auto wc = b.poll(b_cq, &b_qp.recv);
    ASSERT_TRUE(wc);
    EXPECT_EQ(wc->wr_id, 50u);
    EXPECT_EQ(wc->byte_length, 3'000u);
    EXPECT_EQ(wc->opcode, abi::CqeOpcode::kRecv);
    EXPECT_EQ(wc->immediate, 0x11223344u);
    EXPECT_TRUE(wc->flags & abi::kCqeImmediate);
    EXPECT_EQ(b_memory.substr(100, 4), "ping");
    EXPECT_EQ(b_memory[2'100], 'b');
    EXPECT_EQ(b_memory.substr(5'000, 1'000), std::string(1'000, 'a'));
}

TEST_F(CardTest, a_read_fetches_the_other_clients_memory) {
    b_memory.replace(500, 4, "data");
    a.post_send(a_qp, {.wr_id = 9,
                       .opcode = abi::SendOpcode::kRead,
                       .sges = {a_sge(1'000, 20'000)},
                       .remote_address = address_of(b_memory) + 500,
                       .rkey = b_mr.rkey});
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kSuccess);
    EXPECT_EQ(a_memory.substr(1'000, 5), "datab");
    EXPECT_EQ(a_memory[20'999], 'b');
    EXPECT_EQ(a_memory[21'000], 'a');
}

TEST_F(CardTest, atomics_return_the_original_value) {
    const std::uint64_t ten = 10;
    std::memcpy(b_memory.data(), &ten, 8);
    a.post_send(a_qp, {.wr_id = 1,
                       .opcode = abi::SendOpcode::kFetchAdd,
                       .sges = {a_sge(0, 8)},
                       .remote_address = address_of(b_memory),
                       .rkey = b_mr.rkey,
                       .compare_add = 5});
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kSuccess);
    EXPECT_EQ(load_bytes<std::uint64_t>(bytes_of(a_memory).data()), 10u);
    EXPECT_EQ(load_bytes<std::uint64_t>(bytes_of(b_memory).data()), 15u);
}

TEST_F(CardTest, inline_and_small_payload_travel_in_the_entry) {
    b.post_recv(b_qp.recv, 1, {b_sge(0, 100)});
    b.post_recv(b_qp.recv, 2, {b_sge(100, 3), b_sge(200, 100)});
    a.post_send(a_qp, {.flags = abi::kSendSignaled | abi::kSendInline, .payload = "inline"});
    a.post_send(
        a_qp,
        {.flags = abi::kSendSignaled | abi::kSendSmall, .sges = {a_sge(0, 5)}, .payload = "small"});
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kSuccess);
    EXPECT_EQ(status_of_a(), WcStatus::kSuccess);
    for (const std::uint64_t wr_id : {1, 2}) {
        const auto wc = b.poll(b_cq, &b_qp.recv);
        ASSERT_TRUE(wc);
        EXPECT_EQ(wc->wr_id, wr_id);
    }
    EXPECT_EQ(b_memory.substr(0, 7), "inlineb");
    EXPECT_EQ(b_memory.substr(100, 4), "smab");
    EXPECT_EQ(b_memory.substr(200, 3), "llb");
}

TEST_F(CardTest, small_payload_is_still_checked_against_its_region) {
    SendOptions options{.flags = abi::kSendSignaled | abi::kSendSmall,
                        .sges = {{address_of(a_memory), 5, 0xbad}},
                        .payload = "small"};
    a.post_send(a_qp, options);
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kLocProtErr);
}

TEST_F(CardTest, entries_are_freed_in_any_order_over_many_laps) {
    for (int i = 0; i < 200; ++i) {
        const std::uint32_t length = i % 3 == 0 ? 5'000u : 20u;
        b.post_recv(b_qp.recv, static_cast<std::uint64_t>(i), {b_sge(0, 8'000)});
        a.post_send(a_qp, send(1'000, length));
        setting.settle();
        ASSERT_EQ(status_of_a(), WcStatus::kSuccess);
        const auto wc = b.poll(b_cq, &b_qp.recv);
        ASSERT_TRUE(wc);
        ASSERT_EQ(wc->wr_id, static_cast<std::uint64_t>(i));
        ASSERT_EQ(wc->byte_length, length);
    }
}

TEST_F(CardTest, a_shared_receive_queue_feeds_several_qps) {
    TestSrq srq = b.create_srq(8);
    TestQp first = b.create_qp(b_cq, {.srq = &srq}), second = b.create_qp(b_cq, {.srq = &srq});
    TestQp to_first = a.create_qp(a_cq), to_second = a.create_qp(a_cq);
    for (auto [here, there] : {std::pair{&to_first, &first}, {&to_second, &second}}) {
        ASSERT_EQ(a.connect(*here, b, *there), 0);
        ASSERT_EQ(b.connect(*there, a, *here), 0);
    }
    ASSERT_EQ(b.call(Op::kModifySrq, abi::ModifySrqRequest{srq.info.srq, 1}), 0);
    b.post_recv(srq, 1, {b_sge(0, 4'096)});
    b.post_recv(srq, 2, {b_sge(0, 4'096)});
    a.post_send(to_second, send(0, 2'000));
    a.post_send(to_first, send(0, 10));
    setting.settle();
    for (int i = 0; i < 2; ++i) {
        const auto wc = b.poll(b_cq, &srq);
        ASSERT_TRUE(wc);
        EXPECT_TRUE(wc->flags & abi::kCqeSrq);
        EXPECT_TRUE(wc->qpn == first.info.qpn || wc->qpn == second.info.qpn);
    }
    ASSERT_EQ(setting.host.async_notes.size(), 1u);
    EXPECT_EQ(setting.host.async_notes[0].event.type, kIbvEventSrqLimitReached);
    EXPECT_EQ(setting.host.async_notes[0].event.object, srq.info.srq);
    EXPECT_EQ(setting.host.async_notes[0].event.generation, srq.info.generation);
    EXPECT_EQ(setting.host.async_notes[0].owner, b.owner);
}

TEST_F(CardTest, datagrams_go_where_their_address_handle_says) {
    TestQp from = a.create_qp(a_cq, {.type = kIbvQptUd}),
           to = b.create_qp(b_cq, {.type = kIbvQptUd});
    const auto up = [](TestClient& client, const TestQp& qp) {
        using namespace transport;
        abi::QpAttributes at{};
        at.state = 1;
        at.port = 1;
        at.qkey = 0x1234;
        int status = client.call(
            Op::kModifyQp,
            abi::ModifyQpRequest{qp.info.qpn, kQpState | kQpPkeyIndex | kQpPort | kQpQkey, at});
        status |= client.to_state(qp, 2);
        at.state = 3;
        return status | client.call(Op::kModifyQp,
                                    abi::ModifyQpRequest{qp.info.qpn, kQpState | kQpSqPsn, at});
    };
    ASSERT_EQ(up(a, from), 0);
    ASSERT_EQ(up(b, to), 0);
    abi::CreateAhRequest request{};
    request.pd = a.pd;
    request.attributes.is_global = request.attributes.port = request.attributes.sgid_index = 1;
    std::memcpy(request.attributes.dgid, b.gid(1).bytes.data(), 16);
    ASSERT_EQ(a.call(Op::kCreateAh, request), 0);
    SendOptions options = send(3, 1'000);
    options.ah = a.reply_as<abi::HandleReply>().handle;
    options.remote_qpn = to.info.qpn;
    options.remote_qkey = 0x1234;
    b.post_recv(to.recv, 4, {b_sge(0, 2'000)});
    a.post_send(from, options);
    setting.settle();
    EXPECT_EQ(status_of_a(), WcStatus::kSuccess);
    const auto wc = b.poll(b_cq, &to.recv);
    ASSERT_TRUE(wc);
    EXPECT_EQ(wc->byte_length, 1'040u);
    EXPECT_EQ(wc->source_qpn, from.info.qpn);
    EXPECT_TRUE(wc->flags & abi::kCqeGrh);
    EXPECT_EQ(b_memory.substr(40, 1), "a");
}

TEST_F(CardTest, a_function_reaches_itself_and_its_neighbours) {
    for (const std::uint32_t device : {2u, 4u, 1u}) {
        TestClient c(setting, device);
        TestCq cq = c.create_cq(16);
        TestQp mine = a.create_qp(a_cq), its = c.create_qp(cq);
        const std::uint32_t index = device == 1 ? 0 : 1;
        if (index == 0) continue;  // PF1 has no IPv4 address to talk to
        ASSERT_EQ(a.connect(mine, c, its), 0);
        ASSERT_EQ(c.connect(its, a, mine), 0);
        std::string memory(100, 'c');
        const auto mr = c.reg_mr(bytes_of(memory));
        c.post_recv(its.recv, 1, {sge(bytes_of(memory), mr.lkey)});
        a.post_send(mine, send(0, 100));
        setting.settle();
        EXPECT_EQ(status_of_a(), WcStatus::kSuccess);
        ASSERT_TRUE(c.poll(cq, &its.recv));
        EXPECT_EQ(memory, std::string(100, 'a'));
    }
}

// --- Completion queues

TEST_F(CardTest, an_armed_cq_notifies_its_channel_once) {
    const std::uint32_t channel = a.create_channel();
    TestCq cq = a.create_cq(16, channel);
    TestQp mine = a.create_qp(cq), its = b.create_qp(b_cq);
    ASSERT_EQ(a.connect(mine, b, its), 0);
    ASSERT_EQ(b.connect(its, a, mine), 0);
    a.post_send(mine, write(1, 100));
    setting.settle();
    EXPECT_TRUE(setting.host.channel_notes.empty());
    cq.header->arm = abi::kArmAny;
    a.post_send(mine, write(2, 100));
    a.post_send(mine, write(3, 100));
    setting.settle();
    ASSERT_EQ(setting.host.channel_notes.size(), 1u);
    EXPECT_EQ(setting.host.channel_notes[0].owner, a.owner);
    EXPECT_EQ(setting.host.channel_notes[0].channel, channel);
    EXPECT_EQ(setting.host.channel_notes[0].event.cq, cq.info.cq);
    EXPECT_EQ(setting.host.channel_notes[0].event.generation, cq.info.generation);
    EXPECT_EQ(cq.header->producer, 3u);
}

TEST_F(CardTest, solicited_arming_waits_for_a_solicited_message) {
    const std::uint32_t channel = b.create_channel();
    TestCq cq = b.create_cq(16, channel);
    TestQp mine = a.create_qp(a_cq), its = b.create_qp(cq);
    ASSERT_EQ(a.connect(mine, b, its), 0);
    ASSERT_EQ(b.connect(its, a, mine), 0);
    cq.header->arm = abi::kArmSolicited;
    for (int i = 0; i < 2; ++i) b.post_recv(its.recv, 0, {b_sge(0, 100)});
    a.post_send(mine, send(1, 100));
    setting.settle();
    EXPECT_TRUE(setting.host.channel_notes.empty());
    SendOptions options = send(2, 100);
    options.flags |= abi::kSendSolicited;
    a.post_send(mine, options);
    setting.settle();
    EXPECT_EQ(setting.host.channel_notes.size(), 1u);
}

TEST_F(CardTest, sleeping_pollers_are_woken) {
    a_cq.header->waiters = 1;
    a.post_send(a_qp, write(1, 100));
    setting.settle();
    EXPECT_EQ(setting.host.wakes, 1u);
}

TEST_F(CardTest, a_cq_that_overflows_takes_its_qps_down) {
    TestCq small = a.create_cq(2);
    TestQp mine = a.create_qp(small), its = b.create_qp(b_cq);
    ASSERT_EQ(a.connect(mine, b, its), 0);
    ASSERT_EQ(b.connect(its, a, mine), 0);
    for (std::uint64_t i = 0; i < 3; ++i) a.post_send(mine, write(i, 8));
    setting.settle();
    std::vector<std::uint32_t> types;
    for (const auto& note : setting.host.async_notes) types.push_back(note.event.type);
    EXPECT_TRUE(std::ranges::count(types, kIbvEventCqErr) == 1);
    const auto error = std::ranges::find(setting.host.async_notes, kIbvEventCqErr,
                                         [](const auto& note) { return note.event.type; });
    EXPECT_EQ(error->event.object, small.info.cq);
    EXPECT_EQ(error->event.generation, small.info.generation);
    ASSERT_EQ(a.call(Op::kQueryQp, abi::HandleRequest{mine.info.qpn}), 0);
    EXPECT_EQ(a.reply_as<abi::QpAttributes>().state, 6u);
    EXPECT_TRUE(a.poll(small));
    EXPECT_TRUE(a.poll(small));
    EXPECT_FALSE(a.poll(small));
}

TEST_F(CardTest, a_resized_cq_keeps_unpolled_completions) {
    TestCq cq = a.create_cq(4);
    TestQp mine = a.create_qp(cq), its = b.create_qp(b_cq);
    ASSERT_EQ(a.connect(mine, b, its), 0);
    ASSERT_EQ(b.connect(its, a, mine), 0);
    for (std::uint64_t i = 0; i < 3; ++i) a.post_send(mine, write(i, 8));
    setting.settle();
    ASSERT_EQ(a.poll(cq)->wr_id, 0u);
    EXPECT_EQ(a.call(Op::kResizeCq, abi::ResizeCqRequest{cq.info.cq, 1}), EINVAL);
    const std::size_t regions = setting.host.region_count();
    ASSERT_TRUE(a.resize_cq(cq, 16));
    EXPECT_EQ(cq.info.capacity, 16u);
    EXPECT_EQ(setting.host.region_count(), regions);
    for (std::uint64_t i = 3; i < 12; ++i) a.post_send(mine, write(i, 8));
    setting.settle();
    for (std::uint64_t i = 1; i < 12; ++i) {
        const auto wc = a.poll(cq);
        ASSERT_TRUE(wc);
        EXPECT_EQ(wc->wr_id, i);
    }
}

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
