// XRC: an initiator at one side, a target QP with SRQs of its domain at the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "transport/test_packet.h"

namespace rdmalab::transport {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

struct XrcTest : testing::Test {
    XrcTest() {
        xrcd = *bench.b.engine.create_xrcd(Host::kOwner);
        srq = bench.b.create_xrc_srq(xrcd);
        initiator = bench.a.create_qp(QpType::kXrcSend);
        target = bench.b.create_target(xrcd);
        bench.connect(initiator, target, {.mtu = 1024});
    }
    SendWqe to(SrqId number, SendWqe wqe) {
        wqe.remote_srq = number;
        return wqe;
    }
    WcStatus after(const SendWqe& wqe) {
        bench.a.post_send(initiator, wqe);
        bench.run(seconds(1));
        const auto completions = bench.a.poll_send();
        return completions.empty() ? WcStatus::kGeneralErr : completions[0].status;
    }

    Bench bench;
    XrcdId xrcd;
    SrqId srq;
    Qpn initiator, target;
    Host::Region& source = bench.a.region(8192);
    Host::Region& memory = bench.b.region(8192);
};

//= IBA A14 test
TEST_F(XrcTest, a_message_goes_to_the_srq_that_it_names) {
    Wiretap tap(bench);
    source.bytes.assign(source.bytes.size(), std::byte{7});
    bench.b.post_srq(recv_wqe({memory.sge(0, 4096)}, 42));
    EXPECT_EQ(after(to(srq, send_wqe(WrOpcode::kSend, {source.sge(0, 2500)}))), WcStatus::kSuccess);
    const auto received = bench.b.poll_recv();
    ASSERT_THAT(received, SizeIs(1));
    EXPECT_EQ(received[0].wr_id, 42u);
    EXPECT_EQ(received[0].byte_length, 2500u);
    EXPECT_EQ(received[0].qpn, target);
    EXPECT_TRUE(received[0].from_srq);
    EXPECT_EQ(received[0].srq, srq);
    EXPECT_EQ(memory.bytes[2499], std::byte{7});
    EXPECT_THAT(tap.names(), ElementsAre("XRC SEND First", "XRC SEND Middle", "XRC SEND Last",
                                         "XRC Acknowledge"));
}

TEST_F(XrcTest, reads_writes_and_atomics_work_in_the_domain_of_the_srq) {
    source.bytes[0] = std::byte{1};
    memory.bytes[100] = std::byte{5};
    EXPECT_EQ(after(to(srq, rdma_wqe(WrOpcode::kWrite, {source.sge(0, 3000)}, memory, 200))),
              WcStatus::kSuccess);
    EXPECT_EQ(memory.bytes[200], std::byte{1});
    EXPECT_EQ(after(to(srq, rdma_wqe(WrOpcode::kRead, {source.sge(0, 3000)}, memory, 100))),
              WcStatus::kSuccess);
    EXPECT_EQ(source.bytes[0], std::byte{5});
    SendWqe add = rdma_wqe(WrOpcode::kFetchAdd, {source.sge(0, 8)}, memory, 4096);
    add.remote_address &= ~7ull;
    add.compare = 3;
    EXPECT_EQ(after(to(srq, add)), WcStatus::kSuccess);
    EXPECT_EQ(after(to(srq, rdma_wqe(WrOpcode::kAtomicWrite, {source.sge(0, 8)}, memory, 64))),
              WcStatus::kSuccess);
}

TEST_F(XrcTest, the_key_is_checked_with_the_pd_of_the_srq) {
    const PdId other = *bench.b.engine.create_pd(Host::kOwner);
    const SrqId stranger =
        *bench.b.engine.create_srq({Host::kOwner, other, 16, 4, xrcd, bench.b.recv_cq});
    EXPECT_EQ(after(to(stranger, rdma_wqe(WrOpcode::kWrite, {source.sge(0, 10)}, memory))),
              WcStatus::kRemAccessErr);
}

//= IBA A14 test
TEST_F(XrcTest, an_srq_of_another_domain_or_none_is_an_invalid_request) {
    const XrcdId elsewhere = *bench.b.engine.create_xrcd(Host::kOwner);
    for (const SrqId wrong : {bench.b.create_xrc_srq(elsewhere), bench.b.srq, SrqId{777}}) {
        const Qpn from = bench.a.create_qp(QpType::kXrcSend);
        const Qpn here = bench.b.create_target(xrcd);
        bench.connect(from, here, {.mtu = 1024});
        bench.a.post_send(from, to(wrong, send_wqe(WrOpcode::kSend, {source.sge(0, 10)})));
        bench.settle();
        const auto completions = bench.a.poll_send();
        ASSERT_THAT(completions, SizeIs(1));
        EXPECT_EQ(completions[0].status, WcStatus::kRemInvReqErr);
        EXPECT_EQ(bench.b.state(here), QpState::kErr);
    }
}

//= IBA A14 test
TEST_F(XrcTest, an_empty_srq_asks_the_initiator_to_wait) {
    bench.a.post_send(initiator, to(srq, send_wqe(WrOpcode::kSend, {source.sge(0, 10)})));
    bench.settle();
    EXPECT_EQ(bench.b.engine.counters().rnr_nak_sent, 1u);
    bench.b.post_srq(recv_wqe({memory.sge(0, 100)}));
    bench.run(seconds(1));
    EXPECT_THAT(bench.b.poll_recv(), SizeIs(1));
}

TEST_F(XrcTest, the_packets_of_a_message_name_one_srq) {
    const SrqId second = bench.b.create_xrc_srq(xrcd);
    bench.b.post_srq(recv_wqe({memory.sge(0, 4096)}));
    const auto packet = [&](wire::Position position, std::uint32_t psn, SrqId number) {
        Packet made(bench, bench.b, target, wire::Service::kXrc, wire::PacketKind::kSend, position);
        made.psn(psn).xrceth(number).payload(source, 0, 1024);
        return made.frame();
    };
    bench.inject(bench.b, packet(wire::Position::kFirst, 100, srq));
    bench.inject(bench.b, packet(wire::Position::kLast, 101, second));
    EXPECT_EQ(bench.b.state(target), QpState::kErr);
    const auto received = bench.b.poll_recv();
    ASSERT_THAT(received, SizeIs(1));
    EXPECT_EQ(received[0].status, WcStatus::kRemInvReqErr);
    EXPECT_EQ(received[0].srq, srq);
}

TEST_F(XrcTest, an_srq_that_goes_in_the_middle_of_a_message_leaves_nothing_behind) {
    bench.b.post_srq(recv_wqe({memory.sge(0, 4096)}));
    Packet first(bench, bench.b, target, wire::Service::kXrc, wire::PacketKind::kSend,
                 wire::Position::kFirst);
    bench.inject(bench.b, first.psn(100).xrceth(srq).payload(source, 0, 1024).frame());
    ASSERT_EQ(bench.b.engine.destroy_srq(Host::kOwner, srq), 0);
    Packet last(bench, bench.b, target, wire::Service::kXrc, wire::PacketKind::kSend,
                wire::Position::kLast);
    bench.inject(bench.b, last.psn(101).xrceth(srq).payload(source, 0, 10).frame());
    EXPECT_THAT(bench.b.poll_recv(), IsEmpty());
    EXPECT_EQ(bench.b.state(target), QpState::kErr);
}

TEST_F(XrcTest, a_side_drops_what_only_the_other_may_hear) {
    Packet request(bench, bench.a, initiator, wire::Service::kXrc, wire::PacketKind::kSend);
    bench.inject(bench.a, request.psn(500).xrceth(srq).frame());
    Packet answer(bench, bench.b, target, wire::Service::kXrc, wire::PacketKind::kAck);
    bench.inject(bench.b, answer.psn(0).aeth(0x1f).frame());
    EXPECT_EQ(bench.a.engine.counters().rx_dropped, 1u);
    EXPECT_EQ(bench.b.engine.counters().rx_dropped, 1u);
}

TEST_F(XrcTest, a_domain_is_shared_and_stays_while_it_is_used) {
    Engine& engine = bench.b.engine;
    constexpr OwnerId kOther{8};
    EXPECT_EQ(engine.close_xrcd(Host::kOwner, xrcd), EBUSY);
    EXPECT_EQ(engine.close_xrcd(kOther, xrcd), EINVAL);
    ASSERT_EQ(engine.open_xrcd(kOther, xrcd), 0);
    EXPECT_EQ(engine.close_xrcd(kOther, xrcd), 0);
    ASSERT_EQ(engine.open_xrcd(kOther, xrcd), 0);
    // Expect: the target QP goes on under its new owner, and the domain with it.
    EXPECT_EQ(engine.pass_on_qp(Host::kOwner, target, OwnerId{9}), EINVAL);
    ASSERT_EQ(engine.pass_on_qp(Host::kOwner, target, kOther), 0);
    engine.release_owner(Host::kOwner);
    EXPECT_TRUE(engine.has_xrcd(xrcd));
    EXPECT_EQ(engine.close_xrcd(kOther, xrcd), EBUSY);
    EXPECT_EQ(engine.destroy_qp(kOther, target), 0);
    EXPECT_EQ(engine.close_xrcd(kOther, xrcd), 0);
    EXPECT_FALSE(engine.has_xrcd(xrcd));
}

TEST_F(XrcTest, what_is_made_needs_what_its_type_calls_for) {
    Engine& engine = bench.b.engine;
    QpInit init;
    init.owner = Host::kOwner;
    init.type = QpType::kXrcRecv;
    EXPECT_EQ(engine.create_qp(init).error().code, EINVAL);
    init.xrcd = XrcdId{55};
    EXPECT_EQ(engine.create_qp(init).error().code, EINVAL);
    init.type = QpType::kRc;
    init.pd = bench.b.pd;
    init.send_cq = init.recv_cq = bench.b.recv_cq;
    init.srq = srq;
    EXPECT_EQ(engine.create_qp(init).error().code, EINVAL);
    EXPECT_EQ(engine.create_srq({Host::kOwner, bench.b.pd, 16, 4, XrcdId{55}, bench.b.recv_cq})
                  .error()
                  .code,
              EINVAL);
}

TEST_F(XrcTest, a_lossy_link_is_recovered_from) {
    Prng prng(5);
    bench.fate = [&](const wire::Frame&) {
        Fate fate;
        fate.is_lost = prng.below(5) == 0;
        return fate;
    };
    for (int i = 0; i < 20; ++i) {
        bench.b.post_srq(recv_wqe({memory.sge(0, 4096)}));
        bench.a.post_send(initiator, to(srq, send_wqe(WrOpcode::kSend, {source.sge(0, 3000)})));
    }
    bench.run(seconds(100));
    EXPECT_THAT(bench.b.poll_recv(), SizeIs(20));
    EXPECT_THAT(bench.a.poll_send(), SizeIs(20));
}

}  // namespace
}  // namespace rdmalab::transport
