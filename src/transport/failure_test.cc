// Failures: flushes, events, queues that overflow or run dry, states on the way out, and memory
// that goes away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/test_packet.h"

namespace rdmalab::transport {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;

auto status(WcStatus expected) { return Field(&Completion::status, expected); }
auto with_id(std::uint64_t id, WcStatus expected) {
    return AllOf(Field(&Completion::wr_id, id), Field(&Completion::status, expected));
}
auto event(AsyncEventType type) { return Field(&AsyncEvent::type, type); }

struct FailureTest : testing::Test {
    FailureTest() { setup({}); }
    void setup(Connection connection, QpType type = QpType::kRc, bool with_srq = false) {
        connection.mtu = 256;
        qa = bench.a.create_qp(type);
        qb = bench.b.create_qp(type, with_srq);
        bench.connect(qa, qb, connection);
    }
    SendWqe write(std::uint32_t length, std::uint64_t id = 1) {
        return rdma_wqe(WrOpcode::kWrite, {ma.sge(0, length)}, mb, 0, id);
    }
    SendWqe send(std::uint32_t length, std::uint64_t id = 1) {
        return send_wqe(WrOpcode::kSend, {ma.sge(0, length)}, id);
    }
    RecvWqe recv(std::uint32_t length, std::uint64_t id = 1) {
        return recv_wqe({mb.sge(0, length)}, id);
    }
    int modify(Host& host, Qpn qpn, QpState state, std::uint32_t mask = 0) {
        QpAttributes attributes;
        attributes.state = state;
        attributes.sqd_async_notify = true;
        return host.engine.modify_qp(Host::kOwner, qpn, attributes, mask | kQpState, bench.now);
    }

    Bench bench;
    Qpn qa, qb;
    Host::Region& ma = bench.a.region(64 * 1024);
    Host::Region& mb = bench.b.region(64 * 1024);
};

//= IBA 10.3.1.7 test
TEST_F(FailureTest, moving_to_err_flushes_sends_and_receives_in_their_order) {
    bench.fate = [](const wire::Frame&) { return Fate{.is_lost = true}; };
    for (std::uint64_t id = 1; id <= 3; ++id) bench.a.post_send(qa, write(10, id));
    bench.settle();
    bench.a.post_send(qa, write(10, 4));
    for (std::uint64_t id = 11; id <= 13; ++id) bench.a.post_recv(qa, recv_wqe({}, id));
    ASSERT_EQ(modify(bench.a, qa, QpState::kErr), 0);
    bench.settle();
    const auto flushed = [](std::uint64_t id) { return with_id(id, WcStatus::kWrFlushErr); };
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(flushed(1), flushed(2), flushed(3), flushed(4)));
    EXPECT_THAT(bench.a.poll_recv(), ElementsAre(flushed(11), flushed(12), flushed(13)));
    // Receives that are posted now come without a doorbell and are flushed soon.
    bench.a.post_recv(qa, recv_wqe({}, 14));
    bench.run(milliseconds(10));
    EXPECT_THAT(bench.a.poll_recv(), ElementsAre(flushed(14)));
    // ... and an idle QP in ERR hardly wakes the card.
    bench.run(seconds(10));
    bench.deadlines_met = 0;
    bench.run(seconds(10));
    EXPECT_LT(bench.deadlines_met, 20);
}

TEST_F(FailureTest, a_qp_in_err_answers_nothing) {
    ASSERT_EQ(modify(bench.b, qb, QpState::kErr), 0);
    bench.a.post_send(qa, write(10));
    bench.run(seconds(10));
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kRetryExcErr)));
}

TEST_F(FailureTest, the_nak_of_a_fatal_error_still_leaves) {
    SendWqe wrong = write(10);
    wrong.rkey.value ^= 1;
    bench.a.post_send(qa, wrong);
    bench.settle();
    EXPECT_EQ(bench.b.state(qb), QpState::kErr);
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kRemAccessErr)));
    EXPECT_EQ(bench.a.state(qa), QpState::kErr);
}

//= IBA 11.6.3.1 test
TEST_F(FailureTest, a_qp_with_srq_announces_its_last_wqe) {
    setup({}, QpType::kRc, true);
    bench.b.post_srq(recv(100));
    ASSERT_EQ(modify(bench.b, qb, QpState::kErr), 0);
    bench.settle();
    EXPECT_THAT(bench.b.poll_events(), ElementsAre(event(AsyncEventType::kQpLastWqeReached)));
    // The WQEs of the SRQ stay where they are.
    EXPECT_THAT(bench.b.poll_recv(), IsEmpty());
}

TEST_F(FailureTest, an_srq_that_runs_low_says_so_once) {
    setup({}, QpType::kRc, true);
    for (int i = 0; i < 4; ++i) bench.b.post_srq(recv(100));
    ASSERT_EQ(bench.b.engine.set_srq_limit(Host::kOwner, bench.b.srq, 3), 0);
    EXPECT_EQ(*bench.b.engine.srq_limit(Host::kOwner, bench.b.srq), 3u);
    bench.a.post_send(qa, send(10));
    bench.settle();
    EXPECT_THAT(bench.b.poll_events(), IsEmpty());
    bench.a.post_send(qa, send(10));
    bench.a.post_send(qa, send(10));
    bench.settle();
    EXPECT_THAT(bench.b.poll_events(), ElementsAre(event(AsyncEventType::kSrqLimitReached)));
    EXPECT_EQ(*bench.b.engine.srq_limit(Host::kOwner, bench.b.srq), 0u);
    EXPECT_THAT(bench.b.poll_recv(),
                testing::AllOf(SizeIs(3), Each(Field(&Completion::from_srq, true))));
}

//= IBA 11.6.3.2 test
TEST_F(FailureTest, a_cq_that_overflows_breaks_with_its_qp) {
    bench.a.cq_room = 1;
    for (std::uint64_t id = 1; id <= 3; ++id) bench.a.post_send(qa, write(10, id));
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(), SizeIs(1));
    EXPECT_THAT(bench.a.poll_events(),
                ElementsAre(event(AsyncEventType::kCqError), event(AsyncEventType::kQpFatal)));
    EXPECT_EQ(bench.a.state(qa), QpState::kErr);
}

//= IBA 10.3.1.5 test
TEST_F(FailureTest, sqd_ends_what_was_begun_and_starts_nothing) {
    bench.fate = [](const wire::Frame&) { return Fate{.is_lost = true}; };
    bench.a.post_send(qa, write(1000, 1));
    wire::Frame frame;
    ASSERT_TRUE(bench.a.engine.poll_frame(bench.now, frame));
    bench.a.post_send(qa, write(10, 2));
    ASSERT_EQ(modify(bench.a, qa, QpState::kSqd, kQpEnSqdAsyncNotify), 0);
    bench.settle();
    EXPECT_THAT(bench.a.poll_events(), IsEmpty());
    EXPECT_TRUE(bench.a.engine.query_qp(Host::kOwner, qa)->sq_draining);
    bench.fate = nullptr;
    bench.run(seconds(1));
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(with_id(1, WcStatus::kSuccess)));
    EXPECT_THAT(bench.a.poll_events(), ElementsAre(event(AsyncEventType::kSqDrained)));
    EXPECT_FALSE(bench.a.engine.query_qp(Host::kOwner, qa)->sq_draining);
    ASSERT_EQ(modify(bench.a, qa, QpState::kRts), 0);
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(with_id(2, WcStatus::kSuccess)));
}

TEST_F(FailureTest, an_idle_qp_is_drained_at_once) {
    ASSERT_EQ(modify(bench.a, qa, QpState::kSqd, kQpEnSqdAsyncNotify), 0);
    bench.settle();
    EXPECT_THAT(bench.a.poll_events(), ElementsAre(event(AsyncEventType::kSqDrained)));
}

TEST_F(FailureTest, a_peer_that_vanishes_is_missed_after_all_retries) {
    Connection connection;
    connection.timeout = 10;
    connection.retry_count = 2;
    setup(connection);
    bench.b.engine.release_owner(Host::kOwner);
    const Instant start = bench.now;
    bench.a.post_send(qa, write(10));
    bench.run(seconds(1));
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kRetryExcErr)));
    EXPECT_GT(bench.b.engine.counters().rx_unknown_qp, 0u);
    // Three intervals of 4.096 us * 2^10, and what the deadlines of ERR add is not waited for.
    EXPECT_GE(bench.now - start, nanoseconds(3 * (4'096 << 10)));
}

TEST_F(FailureTest, completions_of_a_destroyed_qp_do_not_appear) {
    bench.a.post_send(qa, write(10));
    wire::Frame frame;
    ASSERT_TRUE(bench.a.engine.poll_frame(bench.now, frame));
    bench.b.engine.handle_frame(frame, bench.now);
    bench.b.engine.commit({}, bench.now);
    ASSERT_TRUE(bench.b.engine.poll_frame(bench.now, frame));
    bench.a.engine.handle_frame(frame, bench.now);
    ASSERT_EQ(bench.a.engine.destroy_qp(Host::kOwner, qa), 0);
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(), IsEmpty());
}

// --- Memory that was registered and is gone.

TEST_F(FailureTest, a_write_from_lost_memory_is_a_local_protection_error) {
    bench.a.post_send(qa, write(10, 1));
    bench.settle();
    bench.a.poll_send();
    bench.memory.unmap(ma.bytes.data() + 1000, 100);
    bench.a.post_send(qa, write(10, 2));
    bench.a.post_send(qa, rdma_wqe(WrOpcode::kWrite, {ma.sge(900, 300)}, mb, 0, 3));
    bench.a.post_send(qa, write(10, 4));
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(),
                ElementsAre(with_id(2, WcStatus::kSuccess), with_id(3, WcStatus::kLocProtErr),
                            with_id(4, WcStatus::kWrFlushErr)));
    EXPECT_EQ(bench.b.state(qb), QpState::kRts);
}

TEST_F(FailureTest, the_receiver_of_lost_memory_learns_that_the_message_was_aborted) {
    bench.memory.unmap(ma.bytes.data(), 100);
    bench.b.post_recv(qb, recv(100, 7));
    bench.a.post_send(qa, send(50));
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kLocProtErr)));
    EXPECT_THAT(bench.b.poll_recv(), ElementsAre(with_id(7, WcStatus::kRemAbortErr)));
    EXPECT_EQ(bench.b.state(qb), QpState::kRts);
}

TEST_F(FailureTest, a_write_to_lost_memory_is_a_remote_access_error) {
    bench.memory.unmap(mb.bytes.data() + 256, 10);
    bench.a.post_send(qa, write(10, 1));
    bench.a.post_send(qa, write(1000, 2));
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(),
                ElementsAre(with_id(1, WcStatus::kSuccess), with_id(2, WcStatus::kRemAccessErr)));
    EXPECT_THAT(bench.b.poll_events(), testing::Contains(event(AsyncEventType::kQpAccessError)));
    EXPECT_EQ(bench.b.state(qb), QpState::kErr);
}

TEST_F(FailureTest, a_receive_into_lost_memory_fails_on_both_sides) {
    bench.memory.unmap(mb.bytes.data(), 10);
    bench.b.post_recv(qb, recv(100, 7));
    bench.b.post_recv(qb, recv(100, 8));
    bench.a.post_send(qa, send(50));
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kRemOpErr)));
    EXPECT_THAT(bench.b.poll_recv(),
                ElementsAre(with_id(7, WcStatus::kLocProtErr), with_id(8, WcStatus::kWrFlushErr)));
}

TEST_F(FailureTest, a_long_receive_into_lost_memory_fails_before_its_end) {
    bench.memory.unmap(mb.bytes.data(), 10);
    bench.b.post_recv(qb, recv(60'000, 7));
    wire::Frame frame;
    bench.a.post_send(qa, send(60'000));
    ASSERT_TRUE(bench.a.engine.poll_frame(bench.now, frame));
    bench.b.engine.handle_frame(frame, bench.now);
    bench.settle();
    EXPECT_THAT(bench.b.poll_recv(), ElementsAre(with_id(7, WcStatus::kLocProtErr)));
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kRemOpErr)));
}

TEST_F(FailureTest, a_read_into_lost_memory_is_a_local_protection_error) {
    bench.memory.unmap(ma.bytes.data() + 300, 10);
    bench.a.post_send(qa, rdma_wqe(WrOpcode::kRead, {ma.sge(0, 1000)}, mb, 0, 1));
    bench.a.post_send(qa, rdma_wqe(WrOpcode::kRead, {ma.sge(2000, 10)}, mb, 0, 2));
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(),
                ElementsAre(with_id(1, WcStatus::kLocProtErr), with_id(2, WcStatus::kWrFlushErr)));
}

TEST_F(FailureTest, a_read_of_lost_memory_is_a_remote_access_error) {
    bench.memory.unmap(mb.bytes.data() + 300, 10);
    bench.a.post_send(qa, rdma_wqe(WrOpcode::kRead, {ma.sge(0, 1000)}, mb));
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kRemAccessErr)));
    EXPECT_EQ(bench.b.state(qb), QpState::kErr);
}

TEST_F(FailureTest, an_atomic_on_lost_memory_is_a_remote_access_error) {
    bench.memory.unmap(mb.bytes.data(), 8);
    bench.a.post_send(qa, rdma_wqe(WrOpcode::kFetchAdd, {ma.sge(0, 8)}, mb));
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kRemAccessErr)));
}

TEST_F(FailureTest, a_datagram_from_lost_memory_harms_its_sender_only) {
    const Qpn ua = bench.a.create_qp(QpType::kUd), ub = bench.b.create_qp(QpType::kUd);
    bench.ready_datagram(bench.a, ua, 1);
    bench.ready_datagram(bench.b, ub, 1);
    bench.memory.unmap(ma.bytes.data(), 8);
    bench.b.post_recv(ub, recv(100, 7));
    SendWqe wqe = send(50);
    wqe.signaled = false;
    wqe.ah = bench.address_of(bench.a, bench.b);
    wqe.remote_qpn = ub;
    wqe.remote_qkey = 1;
    bench.a.post_send(ua, wqe);
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kLocProtErr)));
    EXPECT_EQ(bench.a.state(ua), QpState::kSqe);
    EXPECT_THAT(bench.b.poll_recv(), ElementsAre(with_id(7, WcStatus::kRemAbortErr)));
    EXPECT_EQ(bench.b.state(ub), QpState::kRts);
}

// On a link with delay the card copies the payload when the frame leaves.
TEST_F(FailureTest, lost_memory_behind_a_delayed_frame_is_blamed_on_its_emitter) {
    bench.memory.unmap(ma.bytes.data(), 8);
    bench.fate = [](const wire::Frame&) { return Fate{.delay = microseconds(5)}; };
    bench.a.post_send(qa, write(10));
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kLocProtErr)));
}

// --- Turns.

TEST_F(FailureTest, ready_qps_take_turns) {
    const Qpn other = bench.a.create_qp(QpType::kRc), other_b = bench.b.create_qp(QpType::kRc);
    bench.connect(other, other_b);
    bench.a.post_send(qa, write(60'000, 1));
    SendWqe wqe = write(60'000, 2);
    bench.a.post_send(other, wqe);
    std::vector<Qpn> order;
    wire::Frame frame;
    for (int i = 0; i < 128 && bench.a.engine.poll_frame(bench.now, frame); ++i)
        order.push_back(look_at(frame, bench.now).destination);
    for (std::size_t i = 0; i < 96; ++i) EXPECT_EQ(order[i], i / 32 % 2 == 0 ? qb : other_b) << i;
}

TEST_F(FailureTest, a_loopback_to_itself_works) {
    QpAttributes attributes;
    const Qpn self = bench.a.create_qp(QpType::kRc);
    attributes.access = Host::kEverything;
    attributes.path_mtu = 1024;
    attributes.destination_qpn = self;
    attributes.av = bench.vector_to(bench.a.gid, bench.a.mac);
    attributes.responder_resources = attributes.reads_outstanding = 1;
    attributes.rq_psn = attributes.sq_psn = Psn{9};
    const auto step = [&](QpState state, std::uint32_t mask) {
        attributes.state = state;
        ASSERT_EQ(
            bench.a.engine.modify_qp(Host::kOwner, self, attributes, kQpState | mask, bench.now),
            0);
    };
    step(QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags);
    step(QpState::kRtr,
         kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer);
    step(QpState::kRts, kQpSqPsn | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic);
    auto& target = bench.a.region(5000);
    ma.bytes[4999] = std::byte{5};
    bench.a.post_send(self, rdma_wqe(WrOpcode::kWrite, {ma.sge(0, 5000)}, target));
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kSuccess)));
    EXPECT_EQ(target.bytes[4999], std::byte{5});
}

}  // namespace
}  // namespace rdmalab::transport
