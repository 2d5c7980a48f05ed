// Clients on a card, end to end: rings, engines, e-switch, cable, rings.
#include <gtest/gtest.h>

#include <algorithm>

#include "card/card_fixture.h"
#include "card/verbs_values.h"

namespace rdmalab::card {
namespace {

using namespace testing;
using abi::Op;
using transport::WcStatus;

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

}  // namespace
}  // namespace rdmalab::card
