#include <cerrno>

#include "verbs/fixture.h"

namespace rdmalab::verbs::testing {

namespace {

class PostTest : public QpTest {};

TEST_F(PostTest, a_send_becomes_an_entry_and_rings_the_doorbell) {
    memcpy(buffer_.data() + 100, "hello", 5);
    ibv_sge list[] = {sge(100, 5)};
    ASSERT_EQ(send(42, list, 1, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE), 0);

    EXPECT_EQ(card_.send_producer(qpn()), 1u);
    const abi::SendEntry& entry = card_.send_entry(qpn(), 0);
    EXPECT_EQ(entry.wr_id, 42u);
    EXPECT_EQ(entry.opcode, static_cast<std::uint8_t>(abi::SendOpcode::kSend));
    EXPECT_EQ(entry.flags,
              abi::kSendSignaled | abi::kSendSolicited | abi::kSendFence | abi::kSendSmall);
    EXPECT_EQ(sge_of(entry, 0).lkey, mr_->lkey);
    EXPECT_TRUE(card_.doorbell(qpn()));
}

TEST_F(PostTest, small_payload_rides_along_gathered_from_all_sges) {
    memcpy(buffer_.data(), "abc", 3);
    memcpy(buffer_.data() + 1000, "defg", 4);
    ibv_sge list[] = {sge(0, 3), sge(1000, 4)};
    ASSERT_EQ(send(1, list, 2), 0);
    const abi::SendEntry& entry = card_.send_entry(qpn(), 0);
    EXPECT_EQ(entry.sge_count, 2);
    EXPECT_TRUE(entry.flags & abi::kSendSmall);
    EXPECT_EQ(payload_of(entry), "abcdefg");
}

TEST_F(PostTest, payload_above_the_limit_or_outside_a_registration_stays_where_it_is) {
    ibv_sge large[] = {sge(0, limits::kSmallPayloadMax + 1)};
    ASSERT_EQ(send(1, large, 1), 0);
    EXPECT_FALSE(card_.send_entry(qpn(), 0).flags & abi::kSendSmall);
    EXPECT_EQ(card_.send_entry(qpn(), 0).data_length, limits::kSmallPayloadMax + 1);

    ibv_sge wrong_key[] = {sge(0, 8)};
    wrong_key[0].lkey += 256;
    ASSERT_EQ(send(2, wrong_key, 1), 0);
    EXPECT_FALSE(card_.send_entry(qpn(), 1).flags & abi::kSendSmall);

    ibv_sge past_the_end[] = {sge(buffer_.size() - 4, 8)};
    ASSERT_EQ(send(3, past_the_end, 1), 0);
    EXPECT_FALSE(card_.send_entry(qpn(), 2).flags & abi::kSendSmall);
}

TEST_F(PostTest, a_read_never_takes_payload_along) {
    ibv_sge list[] = {sge(0, 8)};
    ibv_send_wr wr{};
    wr.sg_list = list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_READ;
    wr.wr.rdma = {.remote_addr = 0x1234, .rkey = 7};
    ASSERT_EQ(post_send(qp_, wr), 0);
    const abi::SendEntry& entry = card_.send_entry(qpn(), 0);
    EXPECT_EQ(entry.opcode, static_cast<std::uint8_t>(abi::SendOpcode::kRead));
    EXPECT_EQ(entry.flags, 0);
    EXPECT_EQ(entry.remote_address, 0x1234u);
    EXPECT_EQ(entry.rkey, 7u);
}

TEST_F(PostTest, inline_data_needs_no_registration) {
    char data[] = "inline";
    ibv_sge list[] = {{.addr = reinterpret_cast<std::uintptr_t>(data), .length = 6, .lkey = 0}};
    ASSERT_EQ(send(1, list, 1, IBV_SEND_INLINE), 0);
    const abi::SendEntry& entry = card_.send_entry(qpn(), 0);
    EXPECT_EQ(entry.flags, abi::kSendInline);
    EXPECT_EQ(entry.sge_count, 0);
    EXPECT_EQ(payload_of(entry), "inline");
}

TEST_F(PostTest, inline_data_above_what_the_qp_was_created_for_is_refused) {
    ibv_sge list[] = {sge(0, 301)};
    EXPECT_EQ(send(1, list, 1, IBV_SEND_INLINE), EINVAL);
    EXPECT_EQ(card_.send_producer(qpn()), 0u);
}

TEST_F(PostTest, an_atomic_carries_both_operands) {
    ibv_sge list[] = {sge(0, 8)};
    ibv_send_wr wr{};
    wr.sg_list = list;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic = {.remote_addr = 0x40, .compare_add = 5, .swap = 6, .rkey = 9};
    ASSERT_EQ(post_send(qp_, wr), 0);
    const abi::SendEntry& entry = card_.send_entry(qpn(), 0);
    EXPECT_EQ(entry.compare_add, 5u);
    EXPECT_EQ(entry.swap, 6u);
    EXPECT_EQ(entry.rkey, 9u);
    EXPECT_EQ(entry.remote_address, 0x40u);
    EXPECT_EQ(entry.flags, 0);
}

TEST_F(PostTest, a_list_is_posted_up_to_the_first_bad_request) {
    ibv_sge list[] = {sge(0, 8)};
    ibv_send_wr wr[3] = {};
    for (int i = 0; i < 3; ++i) {
        wr[i].wr_id = static_cast<std::uint64_t>(i);
        wr[i].next = i < 2 ? &wr[i + 1] : nullptr;
        wr[i].sg_list = list;
        wr[i].num_sge = 1;
        wr[i].opcode = IBV_WR_SEND;
    }
    wr[1].num_sge = 5;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(qp_, wr, &bad), EINVAL);
    EXPECT_EQ(bad, &wr[1]);
    EXPECT_EQ(card_.send_producer(qpn()), 1u);
    EXPECT_TRUE(card_.doorbell(qpn()));
}

TEST_F(PostTest, a_full_queue_answers_enomem_until_a_completion_was_polled) {
    ibv_sge list[] = {sge(0, 8)};
    for (std::uint32_t i = 0; i < kDepth; ++i) ASSERT_EQ(send(i, list, 1, 0), 0);
    EXPECT_EQ(send(99, list, 1), ENOMEM);

    // The completion of entry 3 also frees the unsignaled ones before it.
    card_.push(cqn(), send_completion(3, 3));
    ibv_wc wc{};
    ASSERT_EQ(ibv_poll_cq(cq_, 1, &wc), 1);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(send(100, list, 1), 0);
    EXPECT_EQ(send(99, list, 1), ENOMEM);
}

TEST_F(PostTest, work_is_refused_before_ready_to_send) {
    ibv_sge list[] = {sge(0, 8)};
    for (ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR}) {
        move_to(qp_, state);
        EXPECT_EQ(send(1, list, 1), EINVAL) << state;
    }
    for (ibv_qp_state state : {IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_ERR}) {
        move_to(qp_, state);
        EXPECT_EQ(send(1, list, 1), 0) << state;
    }
}

TEST_F(PostTest, each_service_refuses_what_it_does_not_define) {
    ibv_qp* ud = create_qp(IBV_QPT_UD);
    ibv_qp* uc = create_qp(IBV_QPT_UC);
    move_to(ud, IBV_QPS_RTS);
    move_to(uc, IBV_QPS_RTS);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    EXPECT_EQ(post_send(ud, wr), EINVAL);
    EXPECT_EQ(post_send(uc, wr), 0);
    wr.opcode = IBV_WR_RDMA_READ;
    EXPECT_EQ(post_send(uc, wr), EINVAL);
    wr.opcode = IBV_WR_TSO;
    EXPECT_EQ(post_send(qp_, wr), EINVAL);
    wr.opcode = static_cast<ibv_wr_opcode>(14);
    EXPECT_EQ(post_send(qp_, wr), EINVAL);
    wr.opcode = IBV_WR_ATOMIC_WRITE;
    EXPECT_EQ(post_send(uc, wr), EINVAL);
    wr.opcode = IBV_WR_SEND;  // without an address handle
    EXPECT_EQ(post_send(ud, wr), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(ud), 0);
    EXPECT_EQ(ibv_destroy_qp(uc), 0);
}

TEST_F(PostTest, a_bind_says_which_window_covers_what) {
    ibv_mw window{};
    window.context = context_;
    window.pd = pd_;
    window.rkey = 0x1234'5600;
    window.type = IBV_MW_TYPE_2;
    ibv_send_wr wr{};
    wr.wr_id = 5;
    wr.opcode = IBV_WR_BIND_MW;
    wr.bind_mw = {&window, 0x1234'5677, {mr_, 0x9000, 100, IBV_ACCESS_REMOTE_READ}};
    ASSERT_EQ(post_send(qp_, wr), 0);
    const abi::SendEntry& entry = card_.send_entry(qpn(), 0);
    EXPECT_EQ(entry.opcode, static_cast<std::uint8_t>(abi::SendOpcode::kBindMw));
    EXPECT_EQ(entry.rkey, 0x1234'5677u);
    EXPECT_EQ(entry.ah, mr_->lkey);
    EXPECT_EQ(entry.remote_address, 0x9000u);
    EXPECT_EQ(entry.compare_add, 100u);
    EXPECT_EQ(entry.remote_qkey, unsigned{IBV_ACCESS_REMOTE_READ});
    wr.bind_mw.rkey = 0x1234'5700;  // another window's
    EXPECT_EQ(post_send(qp_, wr), EINVAL);
    wr.bind_mw.rkey = 0x1234'5677;
    wr.bind_mw.bind_info.mr = nullptr;
    EXPECT_EQ(post_send(qp_, wr), EINVAL);
    EXPECT_EQ(card_.send_producer(qpn()), 1u);
}

TEST_F(PostTest, a_window_of_type_1_gets_its_next_key_when_it_is_bound) {
    ibv_mw window{};
    window.context = context_;
    window.pd = pd_;
    window.rkey = 0x1234'56ff;
    window.type = IBV_MW_TYPE_1;
    ibv_mw_bind bind{};
    bind.wr_id = 9;
    bind.bind_info = {mr_, reinterpret_cast<std::uintptr_t>(buffer_.data()), 64,
                      IBV_ACCESS_REMOTE_WRITE};
    ASSERT_EQ(ibv_bind_mw(qp_, &window, &bind), 0);
    EXPECT_EQ(window.rkey, 0x1234'5600u);
    EXPECT_EQ(card_.send_entry(qpn(), 0).rkey, 0x1234'5600u);
    bind.bind_info.mw_access_flags = IBV_ACCESS_ZERO_BASED;
    EXPECT_EQ(ibv_bind_mw(qp_, &window, &bind), EINVAL);
    EXPECT_EQ(window.rkey, 0x1234'5600u);
}

TEST_F(PostTest, an_xrc_send_names_the_remote_srq) {
    ibv_qp* xrc = create_qp(IBV_QPT_XRC_SEND);
    ASSERT_NE(xrc, nullptr);
    move_to(xrc, IBV_QPS_RTS);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma = {0x100, 7};
    wr.qp_type.xrc.remote_srqn = 0x55;
    ASSERT_EQ(post_send(xrc, wr), 0);
    EXPECT_EQ(card_.send_entry(xrc->qp_num, 0).ah, 0x55u);
    EXPECT_EQ(card_.send_entry(xrc->qp_num, 0).rkey, 7u);
    EXPECT_EQ(ibv_destroy_qp(xrc), 0);
}

TEST_F(PostTest, a_ud_send_names_the_address_handle) {
    ibv_qp* ud = create_qp(IBV_QPT_UD);
    move_to(ud, IBV_QPS_RTS);
    ibv_ah_attr address{};
    ibv_ah* ah = ibv_create_ah(pd_, &address);
    ASSERT_NE(ah, nullptr);
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_SEND;
    wr.wr.ud = {.ah = ah, .remote_qpn = 0x123, .remote_qkey = 0x111};
    ASSERT_EQ(post_send(ud, wr), 0);
    const abi::SendEntry& entry = card_.send_entry(ud->qp_num, 0);
    EXPECT_EQ(entry.ah, ah->handle);
    EXPECT_EQ(entry.remote_qpn, 0x123u);
    EXPECT_EQ(entry.remote_qkey, 0x111u);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
    EXPECT_EQ(ibv_destroy_qp(ud), 0);
}

TEST_F(PostTest, a_sleeping_card_is_woken_and_a_waking_one_is_not) {
    ibv_sge list[] = {sge(0, 8)};
    ASSERT_EQ(send(1, list, 1), 0);
    EXPECT_FALSE(card_.bell_rang());
    EXPECT_TRUE(card_.doorbell(qpn()));
    card_.set_sleeping(true);
    ASSERT_EQ(send(2, list, 1), 0);
    EXPECT_TRUE(card_.bell_rang());
}

TEST_F(PostTest, receives_are_refused_in_reset_and_when_full_or_with_too_many_sges) {
    ibv_sge list[5] = {sge(0, 8), sge(8, 8), sge(16, 8), sge(24, 8), sge(32, 8)};
    EXPECT_EQ(recv(1, list, 5), EINVAL);
    for (std::uint32_t i = 0; i < kDepth; ++i) ASSERT_EQ(recv(i, list, 4), 0);
    EXPECT_EQ(recv(99, list, 1), ENOMEM);
    EXPECT_EQ(card_.recv_producer(qpn()), kDepth);
    EXPECT_EQ(card_.recv_entry(qpn(), 5).wr_id, 5u);
    EXPECT_EQ(card_.recv_entry(qpn(), 5).sge_count, 4);
    EXPECT_FALSE(card_.doorbell(qpn()));
    move_to(qp_, IBV_QPS_RESET);
    EXPECT_EQ(recv(1, list, 1), EINVAL);
}

TEST_F(PostTest, after_reset_the_queues_are_empty_again) {
    ibv_sge list[] = {sge(0, 8)};
    for (std::uint32_t i = 0; i < kDepth; ++i) {
        ASSERT_EQ(send(i, list, 1), 0);
        ASSERT_EQ(recv(i, list, 1), 0);
    }
    move_to(qp_, IBV_QPS_RESET);
    move_to(qp_, IBV_QPS_RTS);
    for (std::uint32_t i = 0; i < kDepth; ++i) {
        EXPECT_EQ(send(i, list, 1), 0);
        EXPECT_EQ(recv(i, list, 1), 0);
    }
}

TEST_F(PostTest, receives_of_a_qp_in_error_ring_the_doorbell_so_that_they_are_flushed) {
    ibv_sge list[] = {sge(0, 8)};
    ASSERT_EQ(recv(1, list, 1), 0);
    Completion failed = send_completion(9, 0);
    failed.status = IBV_WC_RETRY_EXC_ERR;
    card_.push(cqn(), failed);
    ibv_wc wc{};
    ASSERT_EQ(ibv_poll_cq(cq_, 1, &wc), 1);
    EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_TRUE(card_.doorbell(qpn())) << "for what was posted before the error was seen";
    ASSERT_EQ(recv(2, list, 1), 0);
    EXPECT_TRUE(card_.doorbell(qpn()));
}

TEST_F(PostTest, srq_entries_come_back_in_any_order) {
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = 4, .max_sge = 2, .srq_limit = 0};
    ibv_srq* srq = ibv_create_srq(pd_, &init);
    ASSERT_NE(srq, nullptr);
    ibv_sge list[] = {sge(0, 64)};
    ibv_recv_wr wr{.wr_id = 0, .next = nullptr, .sg_list = list, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    for (int i = 0; i < 4; ++i) ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
    EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
    EXPECT_EQ(bad, &wr);

    std::uint32_t third = card_.srq_table_index(srq->handle, 2);
    Completion cqe = recv_completion(0, third, 0);
    cqe.flags |= abi::kCqeSrq;
    cqe.srq = srq->handle;
    card_.push(cqn(), cqe);
    ibv_wc wc{};
    ASSERT_EQ(ibv_poll_cq(cq_, 1, &wc), 1);
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
    EXPECT_EQ(card_.srq_producer(srq->handle), 5u);
    EXPECT_EQ(card_.srq_table_index(srq->handle, 4), third);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

}  // namespace

}  // namespace rdmalab::verbs::testing
