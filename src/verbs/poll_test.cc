#include <time.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "verbs/fixture.h"

namespace rdmalab::verbs::testing {

namespace {

class PollTest : public QpTest {
protected:
    void post_receives(int count) {
        ibv_sge list[] = {sge(0, 100), sge(200, 100)};
        for (int i = 0; i < count; ++i) ASSERT_EQ(recv(static_cast<std::uint64_t>(i), list, 2), 0);
    }
    int poll(int count) { return ibv_poll_cq(cq_, count, wc_); }

    ibv_wc wc_[64] = {};
};

TEST_F(PollTest, an_empty_queue_yields_nothing) {
    for (int i = 0; i < 500; ++i) ASSERT_EQ(poll(8), 0);
}

TEST_F(PollTest, completions_come_in_order_with_all_their_fields) {
    post_receives(1);
    Completion sent = send_completion(11, 0);
    sent.opcode = abi::CqeOpcode::kRead;
    sent.byte_length = 4096;
    card_.push(cqn(), sent);
    Completion received = recv_completion(12, 0, 77);
    received.opcode = abi::CqeOpcode::kRecvWriteImm;
    received.flags |= abi::kCqeImmediate | abi::kCqeGrh;
    received.immediate = 0xabcd;
    received.source_qpn = 0x99;
    card_.push(cqn(), received);

    ASSERT_EQ(poll(8), 2);
    EXPECT_EQ(wc_[0].wr_id, 11u);
    EXPECT_EQ(wc_[0].opcode, IBV_WC_RDMA_READ);
    EXPECT_EQ(wc_[0].byte_len, 4096u);
    EXPECT_EQ(wc_[0].qp_num, qpn());
    EXPECT_EQ(wc_[0].wc_flags, 0u);
    EXPECT_EQ(wc_[1].wr_id, 12u);
    EXPECT_EQ(wc_[1].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(wc_[1].wc_flags, 0u + IBV_WC_WITH_IMM + IBV_WC_GRH);
    EXPECT_EQ(wc_[1].imm_data, 0xabcdu);
    EXPECT_EQ(wc_[1].src_qp, 0x99u);
    EXPECT_EQ(card_.cq_header(cqn()).consumer, 2u);
    EXPECT_EQ(poll(8), 0);
}

TEST_F(PollTest, a_small_message_is_scattered_over_the_sges) {
    post_receives(1);
    std::string text(150, 'x');
    text.replace(98, 6, "abcdef");
    memcpy(card_.recv_small_area(qpn(), 0), text.data(), text.size());
    Completion cqe = recv_completion(0, 0, 150);
    cqe.flags |= abi::kCqeSmall;
    card_.push(cqn(), cqe);
    ASSERT_EQ(poll(1), 1);
    EXPECT_EQ(std::string(buffer_.data() + 98, 2), "ab");
    EXPECT_EQ(std::string(buffer_.data() + 200, 4), "cdef");
    EXPECT_EQ(buffer_[250], 0);
}

TEST_F(PollTest, a_small_message_for_memory_that_is_no_longer_registered_is_dropped) {
    post_receives(1);
    memcpy(card_.recv_small_area(qpn(), 0), "zzzz", 4);
    ASSERT_EQ(ibv_dereg_mr(mr_), 0);
    mr_ = nullptr;
    Completion cqe = recv_completion(0, 0, 4);
    cqe.flags |= abi::kCqeSmall;
    card_.push(cqn(), cqe);
    ASSERT_EQ(poll(1), 1);
    EXPECT_EQ(buffer_[0], 0);
}

TEST_F(PollTest, the_kind_of_packet_is_told_in_the_service_level) {
    post_receives(2);
    Completion ipv4 = recv_completion(0, 0, 100), ipv6 = recv_completion(1, 1, 100);
    ipv4.flags |= abi::kCqeGrh | abi::kCqeSmall;
    memset(card_.recv_small_area(qpn(), 0), 0, 40);
    card_.push(cqn(), ipv4);
    ASSERT_EQ(poll(1), 1);
    EXPECT_EQ(wc_[0].sl, 8 + 2);
    ipv6.flags |= abi::kCqeGrh;  // this one lies in the buffer
    buffer_[0] = 0x60;
    card_.push(cqn(), ipv6);
    ASSERT_EQ(poll(1), 1);
    EXPECT_EQ(wc_[0].sl, 8 + 1);
}

TEST_F(PollTest, receive_entries_are_reused_over_many_laps) {
    std::uint32_t posted = 0, completed = 0;
    ibv_sge list[] = {sge(0, 100)};
    for (int lap = 0; lap < 10; ++lap) {
        while (posted - completed < kDepth) ASSERT_EQ(recv(posted++, list, 1), 0);
        for (int i = 0; i < 5; ++i, ++completed) {
            const abi::RecvEntry& entry = card_.recv_entry(qpn(), completed);
            ASSERT_EQ(entry.wr_id, completed);
            card_.push(cqn(), recv_completion(entry.wr_id, completed % kDepth, 1));
        }
        ASSERT_EQ(poll(64), 5);
    }
}

TEST_F(PollTest, the_ring_wraps) {
    ibv_sge list[] = {sge(0, 8)};
    for (std::uint32_t i = 0; i < 1000; ++i) {
        ASSERT_EQ(send(i, list, 1), 0);
        card_.push(cqn(), send_completion(i, i));
        ASSERT_EQ(poll(8), 1);
        ASSERT_EQ(wc_[0].wr_id, i);
    }
}

TEST_F(PollTest, completions_of_a_destroyed_qp_are_not_seen_and_its_srq_entries_are_free) {
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0};
    ibv_srq* srq = ibv_create_srq(pd_, &init);
    ibv_qp* with_srq = create_qp(IBV_QPT_RC, srq);
    ASSERT_NE(with_srq, nullptr);
    ibv_sge list[] = {sge(0, 8)};
    ibv_recv_wr wr{.wr_id = 5, .next = nullptr, .sg_list = list, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
    Completion cqe = recv_completion(5, card_.srq_table_index(srq->handle, 0), 0);
    cqe.qpn = with_srq->qp_num;
    cqe.flags |= abi::kCqeSrq;
    cqe.srq = srq->handle;
    card_.push(cqn(), cqe);
    card_.push(cqn(), send_completion(6, 0));

    ASSERT_EQ(ibv_destroy_qp(with_srq), 0);
    ASSERT_EQ(poll(8), 1);
    EXPECT_EQ(wc_[0].wr_id, 6u);
    EXPECT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(PollTest, resizing_keeps_what_was_not_polled) {
    for (std::uint32_t i = 0; i < 6; ++i) card_.push(cqn(), send_completion(i, i));
    ASSERT_EQ(poll(2), 2);
    EXPECT_EQ(ibv_resize_cq(cq_, 2), EINVAL);
    ASSERT_EQ(ibv_resize_cq(cq_, 200), 0);
    EXPECT_EQ(cq_->cqe, 256);
    card_.push(cqn(), send_completion(6, 6));
    ASSERT_EQ(poll(64), 5);
    EXPECT_EQ(wc_[0].wr_id, 2u);
    EXPECT_EQ(wc_[4].wr_id, 6u);
}

TEST_F(PollTest, a_poller_that_has_gone_to_sleep_is_woken_by_a_completion) {
    std::thread pusher([this] {
        std::this_thread::sleep_for(std::chrono::microseconds(20'000));
        card_.push(cqn(), send_completion(1, 0));
    });
    bool was_asleep = false;
    int found = 0;
    while (found == 0) {
        found = poll(1);
        was_asleep |= card_.cq_header(cqn()).waiters.load() != 0;
    }
    pusher.join();
    EXPECT_EQ(found, 1);
    EXPECT_EQ(card_.cq_header(cqn()).waiters.load(), 0u);
}

std::int64_t cpu_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

TEST_F(PollTest, polling_an_idle_queue_leaves_the_processor_to_others) {
    for (int i = 0; i < 2000; ++i) ASSERT_EQ(poll(1), 0);  // yielding, then asleep
    timespec start{}, now{};
    clock_gettime(CLOCK_MONOTONIC, &start);
    std::int64_t cpu_before = cpu_ns();
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(poll(1), 0);
    clock_gettime(CLOCK_MONOTONIC, &now);
    std::int64_t elapsed =
        (now.tv_sec - start.tv_sec) * 1'000'000'000ll + now.tv_nsec - start.tv_nsec;
    EXPECT_LT(cpu_ns() - cpu_before, elapsed / 2);
}

TEST_F(PollTest, extended_polling_shows_one_completion_at_a_time) {
    ibv_cq_init_attr_ex init{};
    init.cqe = 16;
    init.wc_flags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
    ibv_cq_ex* cq = ibv_create_cq_ex(context_, &init);
    ASSERT_NE(cq, nullptr);
    EXPECT_EQ(ibv_start_poll(cq, nullptr), ENOENT);

    Completion first = send_completion(1, 0), second = send_completion(2, 1);
    first.timestamp_ns = 12345;
    second.status = IBV_WC_WR_FLUSH_ERR;
    card_.push(cq->handle, first);
    card_.push(cq->handle, second);
    ASSERT_EQ(ibv_start_poll(cq, nullptr), 0);
    EXPECT_EQ(cq->wr_id, 1u);
    EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_completion_ts(cq), 12345u);
    EXPECT_EQ(ibv_wc_read_qp_num(cq), qpn());
    ASSERT_EQ(ibv_next_poll(cq), 0);
    EXPECT_EQ(cq->wr_id, 2u);
    EXPECT_EQ(cq->status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(card_.cq_header(cq->handle).consumer, 0u) << "entries are in use until end_poll";
    EXPECT_EQ(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
    EXPECT_EQ(card_.cq_header(cq->handle).consumer, 2u);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(PollTest, threads_may_poll_one_queue_together) {
    constexpr std::uint32_t kCount = 20'000;
    std::atomic<std::uint32_t> polled{0};
    std::atomic<std::uint64_t> sum{0};
    auto poller = [&] {
        ibv_wc wc[4];
        while (polled.load() < kCount) {
            int n = ibv_poll_cq(cq_, 4, wc);
            for (int i = 0; i < n; ++i) sum += wc[i].wr_id;
            polled += static_cast<std::uint32_t>(n);
        }
    };
    std::thread one(poller), two(poller);
    for (std::uint32_t i = 0; i < kCount; ++i) {
        while (i - card_.cq_header(cqn()).consumer.load(std::memory_order_acquire) >= 64) {
            sched_yield();
        }
        card_.push(cqn(), send_completion(i, i));
    }
    one.join();
    two.join();
    EXPECT_EQ(polled, kCount);
    EXPECT_EQ(sum, std::uint64_t{kCount} * (kCount - 1) / 2);
}

}  // namespace

}  // namespace rdmalab::verbs::testing
