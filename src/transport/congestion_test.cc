// What the engine tells of a QP's packets, and how it holds them back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/test_packet.h"
#include "transport/test_pair.h"

namespace rdmalab::transport {
namespace {

using ::testing::SizeIs;
using wire::PacketKind;

// Notes everything, allows CNPs while `notifies`, and spaces packets by `gap`.
struct FakePort final : CongestionPort {
    bool owes_notification(FlowPoint, Instant) override {
        ++marks;
        return notifies;
    }
    void handle_cnp(FlowPoint flow, Instant) override { cnps.push_back(flow.qpn); }
    Instant handle_sent(const SentPacket& packet, Instant now) override {
        sent.push_back(packet);
        return hold = now + gap;
    }
    Instant may_send(FlowPoint, Instant) override { return hold; }
    void handle_ack(FlowPoint, Psn end, Instant) override { acks.push_back(end); }
    void handle_nak(FlowPoint, NakKind kind, Psn, Instant) override { naks.push_back(kind); }
    void handle_gone(FlowPoint flow) override { gone.push_back(flow.qpn); }

    bool notifies = true;
    Duration gap{};
    Instant hold;
    int marks = 0;
    std::vector<Qpn> cnps, gone;
    std::vector<SentPacket> sent;
    std::vector<Psn> acks;
    std::vector<NakKind> naks;
};

struct CongestionTest : testing::Test {
    CongestionTest() {
        bench.connect(qa, qb);
        bench.a.engine.set_congestion_port(&port_a);
        bench.b.engine.set_congestion_port(&port_b);
    }
    void write(std::uint32_t length) {
        bench.a.post_send(qa, rdma_wqe(WrOpcode::kWrite, {ma.sge(0, length)}, mb));
    }
    FakePort port_a, port_b;
    Bench bench;
    Qpn qa = bench.a.create_qp(QpType::kRc), qb = bench.b.create_qp(QpType::kRc);
    Host::Region& ma = bench.a.region(65536);
    Host::Region& mb = bench.b.region(65536);
};

TEST_F(CongestionTest, the_port_decides_which_marks_are_answered) {
    const auto marked_write = [&](std::uint32_t psn) {
        Packet packet(bench, bench.b, qb, wire::Service::kRc, PacketKind::kWrite);
        packet.psn(psn).reth(mb.address(), mb.keys.rkey, 8).payload(ma, 0, 8).marked();
        bench.inject(bench.b, packet.frame());
    };
    marked_write(100);
    port_b.notifies = false;
    marked_write(101);
    EXPECT_EQ(port_b.marks, 2);
    EXPECT_EQ(bench.b.engine.counters().np_ecn_marked_roce_packets, 2u);
    EXPECT_EQ(bench.b.engine.counters().np_cnp_sent, 1u);
    EXPECT_THAT(port_a.cnps, testing::ElementsAre(qa));
}

TEST_F(CongestionTest, nothing_but_marks_and_cnps_is_told_of_a_qp_that_is_not_watched) {
    write(65536);
    bench.settle();
    EXPECT_TRUE(port_a.sent.empty());
    EXPECT_TRUE(port_a.acks.empty());
}

TEST_F(CongestionTest, packets_and_acknowledgements_of_a_watched_qp_are_told) {
    bench.a.engine.watch_qp(qa, true);
    write(65536);
    bench.settle();
    const std::uint32_t mtu = bench.a.engine.query_qp(Host::kOwner, qa)->path_mtu;
    EXPECT_THAT(port_a.sent, SizeIs(65536 / mtu));
    EXPECT_TRUE(port_a.sent.back().asks_ack);
    EXPECT_TRUE(port_a.sent.back().is_requester);
    EXPECT_GT(port_a.sent.back().bytes, mtu);
    ASSERT_FALSE(port_a.acks.empty());
    EXPECT_EQ(port_a.acks.back(), port_a.sent.back().psn + 1);
}

TEST_F(CongestionTest, answers_of_a_read_are_packets_of_the_responder) {
    bench.b.engine.watch_all(true);
    bench.a.post_send(qa, rdma_wqe(WrOpcode::kRead, {ma.sge(0, 65536)}, mb));
    bench.settle();
    ASSERT_FALSE(port_b.sent.empty());
    EXPECT_FALSE(port_b.sent.back().is_requester);
    EXPECT_EQ(port_b.sent.back().flow.qpn, qb);
}

TEST_F(CongestionTest, a_qp_that_is_held_back_sends_when_its_time_has_come) {
    bench.a.engine.watch_qp(qa, true);
    port_a.gap = milliseconds(1);
    const Instant start = bench.now;
    write(65536);
    bench.run(seconds(1));
    const auto packets = static_cast<std::int64_t>(port_a.sent.size());
    EXPECT_GE(bench.now - start, milliseconds(1) * (packets - 1));
    EXPECT_EQ(port_a.acks.back(), port_a.sent.back().psn + 1);
}

TEST_F(CongestionTest, acknowledgements_leave_a_qp_that_is_held_back) {
    bench.b.engine.watch_qp(qb, true);
    port_b.gap = seconds(10);
    bench.b.post_send(qb, rdma_wqe(WrOpcode::kWrite, {mb.sge(0, 65536)}, ma));
    bench.settle();
    EXPECT_THAT(port_b.sent, SizeIs(1));  // and all else waits
    bench.a.engine.watch_qp(qa, true);
    write(8);
    bench.settle();
    EXPECT_THAT(port_a.acks, SizeIs(1));
}

TEST_F(CongestionTest, a_qp_that_is_no_longer_watched_is_released) {
    bench.a.engine.watch_qp(qa, true);
    port_a.gap = seconds(10);
    write(65536);
    bench.settle();
    EXPECT_THAT(port_a.sent, SizeIs(1));
    bench.a.engine.watch_qp(qa, false);
    const Instant start = bench.now;
    bench.settle();
    EXPECT_EQ(bench.now, start);
    EXPECT_FALSE(bench.a.poll_send().empty());
}

TEST_F(CongestionTest, a_receiver_that_is_not_ready_is_told_as_nak) {
    bench.a.engine.watch_qp(qa, true);
    bench.a.post_send(qa, send_wqe(WrOpcode::kSend, {ma.sge(0, 8)}));
    bench.settle();
    EXPECT_THAT(port_a.naks, testing::ElementsAre(NakKind::kRnr));
}

TEST_F(CongestionTest, the_end_of_a_qp_is_told_and_its_way_is_known_until_then) {
    EXPECT_NE(bench.a.engine.probe_path(qa), nullptr);
    bench.a.engine.destroy_qp(Host::kOwner, qa);
    EXPECT_THAT(port_a.gone, testing::ElementsAre(qa));
    EXPECT_EQ(bench.a.engine.probe_path(qa), nullptr);
}

}  // namespace
}  // namespace rdmalab::transport
