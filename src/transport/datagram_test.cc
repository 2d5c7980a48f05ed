// Datagrams, multicast, unreliable connections, addressing and congestion marks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/test_packet.h"

namespace rdmalab::transport {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;
using wire::PacketKind;
using wire::Position;

auto status(WcStatus expected) { return Field(&Completion::status, expected); }

struct DatagramTest : testing::Test {
    DatagramTest() {
        bench.ready_datagram(bench.a, qa, 0x11);
        bench.ready_datagram(bench.b, qb, 0x11);
    }
    SendWqe datagram(std::uint32_t length, std::uint32_t qkey = 0x11) {
        SendWqe wqe = send_wqe(WrOpcode::kSend, {ma.sge(0, length)});
        wqe.ah = ah;
        wqe.remote_qpn = qb;
        wqe.remote_qkey = qkey;
        return wqe;
    }
    void post_recv(std::uint32_t length = 5000) {
        bench.b.post_recv(qb, recv_wqe({mb.sge(0, length)}));
    }
    Bench bench;
    Qpn qa = bench.a.create_qp(QpType::kUd), qb = bench.b.create_qp(QpType::kUd);
    Host::Region& ma = bench.a.region(8192);
    Host::Region& mb = bench.b.region(8192);
    AhId ah = bench.address_of(bench.a, bench.b);
};

//= IBA 10.2.5 test
TEST_F(DatagramTest, a_wrong_qkey_is_dropped_and_a_controlled_one_is_the_qps_own) {
    post_recv();
    bench.a.post_send(qa, datagram(10, 0x12));
    bench.settle();
    EXPECT_THAT(bench.b.poll_recv(), IsEmpty());
    EXPECT_EQ(bench.b.engine.counters().rx_dropped, 1u);
    bench.a.post_send(qa, datagram(10, 0x8000'0000));
    bench.settle();
    EXPECT_THAT(bench.b.poll_recv(), SizeIs(1));
    // Sends of datagrams complete whatever becomes of them.
    EXPECT_THAT(bench.a.poll_send(), SizeIs(2));
}

//= IBA 9.8.3 test
TEST_F(DatagramTest, without_a_receive_wqe_or_with_one_too_small_it_is_dropped) {
    bench.a.post_send(qa, datagram(10));
    bench.settle();
    post_recv(49);
    bench.a.post_send(qa, datagram(10));
    bench.settle();
    EXPECT_THAT(bench.b.poll_recv(), IsEmpty());
    EXPECT_EQ(bench.b.engine.counters().rx_dropped, 2u);
    // The receive WQE is still there for one that fits.
    bench.a.post_send(qa, datagram(9));
    bench.settle();
    EXPECT_THAT(bench.b.poll_recv(), ElementsAre(Field(&Completion::byte_length, 49u)));
}

TEST_F(DatagramTest, a_datagram_is_one_packet) {
    bench.a.post_send(qa, datagram(4097));
    bench.a.post_send(qa, datagram(1));
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(),
                ElementsAre(status(WcStatus::kLocLenErr), status(WcStatus::kWrFlushErr)));
    EXPECT_EQ(bench.a.state(qa), QpState::kSqe);
}

//= IBA 10.3.1.6 test
TEST_F(DatagramTest, a_send_error_stops_the_sends_only_and_can_be_repaired) {
    SendWqe wrong = datagram(10);
    wrong.ah = AhId{55};
    bench.a.post_send(qa, wrong);
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kLocQpOpErr)));
    ASSERT_EQ(bench.a.state(qa), QpState::kSqe);
    // Work posted now is flushed; the QP still receives.
    bench.a.post_send(qa, datagram(10));
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kWrFlushErr)));
    bench.a.post_recv(qa, recv_wqe({ma.sge(0, 100)}));
    SendWqe back = send_wqe(WrOpcode::kSend, {mb.sge(0, 5)});
    back.ah = bench.address_of(bench.b, bench.a);
    back.remote_qpn = qa;
    back.remote_qkey = 0x11;
    bench.b.post_send(qb, back);
    bench.settle();
    EXPECT_THAT(bench.a.poll_recv(), ElementsAre(status(WcStatus::kSuccess)));
    QpAttributes attributes;
    attributes.state = QpState::kRts;
    ASSERT_EQ(bench.a.engine.modify_qp(Host::kOwner, qa, attributes, kQpState, bench.now), 0);
    bench.a.post_send(qa, datagram(10));
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kSuccess)));
}

TEST_F(DatagramTest, only_sends_are_possible) {
    bench.a.post_send(qa, rdma_wqe(WrOpcode::kWrite, {ma.sge(0, 10)}, mb));
    bench.settle();
    EXPECT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kLocQpOpErr)));
}

TEST_F(DatagramTest, an_ipv6_header_fills_the_grh) {
    const Gid gid_a = *Gid::parse("fd00::1"), gid_b = *Gid::parse("fd00::2");
    bench.a.engine.set_gid(1, gid_a);
    AddressVector av = bench.vector_to(gid_b, bench.b.mac);
    av.gid_index = 1;
    av.flow_label = 0xabcde;
    SendWqe wqe = datagram(3);
    wqe.ah = *bench.a.engine.create_ah(Host::kOwner, bench.a.pd, av);
    post_recv();
    bench.a.post_send(qa, wqe);
    bench.settle();
    ASSERT_THAT(bench.b.poll_recv(), SizeIs(1));
    const auto ip = load_bytes<wire::Ipv6Header>(mb.bytes.data());
    EXPECT_EQ(ip.version_class_label & 0xf'ffff, 0xabcdeu);
    EXPECT_EQ(Gid{ip.source}, gid_a);
    EXPECT_EQ(Gid{ip.destination}, gid_b);
}

TEST_F(DatagramTest, a_small_message_waits_in_the_small_area) {
    std::vector<std::byte> area(64);
    RecvWqe recv = recv_wqe({mb.sge(0, 5000)});
    recv.small_area = area;
    bench.b.post_recv(qb, recv);
    bench.b.post_recv(qb, recv);
    ma.bytes[0] = std::byte{9};
    bench.a.post_send(qa, datagram(24));
    bench.a.post_send(qa, datagram(25));
    bench.settle();
    EXPECT_THAT(bench.b.poll_recv(), ElementsAre(Field(&Completion::in_small_area, true),
                                                 Field(&Completion::in_small_area, false)));
    EXPECT_EQ(area[40], std::byte{9});
    EXPECT_EQ(area[20], std::byte{0x45});
    EXPECT_EQ(mb.bytes[40], std::byte{9});
}

TEST_F(DatagramTest, the_small_area_does_not_hide_a_wrong_sge) {
    std::vector<std::byte> area(64);
    Sge wrong = mb.sge(0, 100);
    wrong.lkey.value ^= 1;
    RecvWqe recv = recv_wqe({wrong});
    recv.small_area = area;
    bench.b.post_recv(qb, recv);
    bench.a.post_send(qa, datagram(10));
    bench.settle();
    EXPECT_THAT(bench.b.poll_recv(), ElementsAre(status(WcStatus::kLocProtErr)));
    EXPECT_EQ(bench.b.state(qb), QpState::kErr);
}

//= IBA 10.5.2 test
TEST_F(DatagramTest, every_member_of_a_group_gets_a_copy) {
    const Gid group = Gid::from_ipv4(0xe000'0101);
    std::vector<Qpn> members;
    for (int i = 0; i < 3; ++i) {
        const Qpn qpn = bench.b.create_qp(QpType::kUd);
        bench.ready_datagram(bench.b, qpn, 0x11);
        ASSERT_EQ(bench.b.engine.attach_multicast(Host::kOwner, qpn, group), 0);
        bench.b.post_recv(qpn, recv_wqe({mb.sge(0, 100)}));
        members.push_back(qpn);
    }
    // The sender belongs to the group too.
    ASSERT_EQ(bench.a.engine.attach_multicast(Host::kOwner, qa, group), 0);
    bench.a.post_recv(qa, recv_wqe({ma.sge(100, 100)}));
    SendWqe wqe = datagram(10);
    wqe.ah = *bench.a.engine.create_ah(Host::kOwner, bench.a.pd,
                                       bench.vector_to(group, group.multicast_mac()));
    wqe.remote_qpn = Qpn{0xff'ffff};
    bench.a.post_send(qa, wqe);
    bench.settle();
    EXPECT_THAT(bench.b.poll_recv(), ElementsAre(Field(&Completion::qpn, members[0]),
                                                 Field(&Completion::qpn, members[1]),
                                                 Field(&Completion::qpn, members[2])));
    EXPECT_THAT(bench.a.poll_recv(), ElementsAre(Field(&Completion::qpn, qa)));
    ASSERT_EQ(bench.b.engine.detach_multicast(Host::kOwner, members[1], group), 0);
    for (const Qpn qpn : members) bench.b.post_recv(qpn, recv_wqe({mb.sge(0, 100)}));
    bench.a.post_send(qa, wqe);
    bench.settle();
    EXPECT_THAT(bench.b.poll_recv(), SizeIs(2));
}

// --- Addressing.

TEST_F(DatagramTest, the_address_handle_is_what_stands_on_the_wire) {
    AddressVector av = bench.vector_to(bench.b.gid, bench.b.mac);
    av.traffic_class = 0x6b;
    av.hop_limit = 5;
    av.flow_label = 0x12345;
    SendWqe wqe = datagram(1);
    wqe.ah = *bench.a.engine.create_ah(Host::kOwner, bench.a.pd, av);
    wire::Frame frame;
    bench.a.post_send(qa, wqe);
    ASSERT_TRUE(bench.a.engine.poll_frame(bench.now, frame));
    // DSCP as given, ECN-capable.
    EXPECT_EQ(wire::traffic_class(frame), 0x6a);
    EXPECT_EQ(wire::hop_limit(frame), 5);
    EXPECT_EQ(wire::source_gid(frame), bench.a.gid);
    EXPECT_EQ(wire::destination_gid(frame), bench.b.gid);
    EXPECT_EQ(wire::source_mac(frame), bench.a.mac);
    EXPECT_EQ(wire::destination_mac(frame), bench.b.mac);
    EXPECT_EQ(look_at(frame, bench.now).source_port, wire::source_port_for(0x12345, Qpn{}, Qpn{}));
}

TEST_F(DatagramTest, without_a_flow_label_the_source_port_comes_from_the_qpns) {
    wire::Frame frame;
    bench.a.post_send(qa, datagram(1));
    ASSERT_TRUE(bench.a.engine.poll_frame(bench.now, frame));
    EXPECT_EQ(look_at(frame, bench.now).source_port, wire::source_port_for(0, qa, qb));
}

// --- Unreliable connections.

struct UcTest : testing::Test {
    UcTest() {
        Connection connection;
        connection.mtu = 256;
        connection.psn_a = Psn{100};
        bench.connect(qa, qb, connection);
    }
    void arrive(PacketKind kind, Position position, std::uint32_t psn, std::uint32_t length) {
        Packet packet(bench, bench.b, qb, wire::Service::kUc, kind, position);
        packet.psn(psn).payload(ma, 0, length);
        bench.inject(bench.b, packet.frame());
    }
    Bench bench;
    Qpn qa = bench.a.create_qp(QpType::kUc), qb = bench.b.create_qp(QpType::kUc);
    Host::Region& ma = bench.a.region(8192);
    Host::Region& mb = bench.b.region(8192);
};

//= IBA 9.8.2.2 test
TEST_F(UcTest, a_message_with_a_gap_is_dropped_and_its_receive_is_used_by_the_next) {
    bench.b.post_recv(qb, recv_wqe({mb.sge(0, 4096)}, 5));
    arrive(PacketKind::kSend, Position::kFirst, 100, 256);
    arrive(PacketKind::kSend, Position::kLast, 102, 10);
    EXPECT_THAT(bench.b.poll_recv(), IsEmpty());
    // Expect: the next whole message is taken, though its number is not the expected one.
    arrive(PacketKind::kSend, Position::kOnly, 200, 7);
    EXPECT_THAT(bench.b.poll_recv(), ElementsAre(AllOf(Field(&Completion::wr_id, 5u),
                                                       Field(&Completion::byte_length, 7u))));
}

TEST_F(UcTest, a_first_within_a_message_starts_anew) {
    bench.b.post_recv(qb, recv_wqe({mb.sge(0, 4096)}, 5));
    arrive(PacketKind::kSend, Position::kFirst, 100, 256);
    arrive(PacketKind::kSend, Position::kFirst, 101, 256);
    arrive(PacketKind::kSend, Position::kLast, 102, 3);
    EXPECT_THAT(bench.b.poll_recv(), ElementsAre(Field(&Completion::byte_length, 259u)));
}

TEST_F(UcTest, wrong_requests_are_dropped_without_an_answer) {
    Wiretap tap(bench);
    arrive(PacketKind::kSend, Position::kOnly, 100, 10);  // no receive WQE
    arrive(PacketKind::kSend, Position::kMiddle, 101, 256);
    Packet packet(bench, bench.b, qb, wire::Service::kUc, PacketKind::kWrite);
    packet.psn(102).reth(mb.address(), Rkey{mb.keys.rkey.value ^ 1}, 10).payload(ma, 0, 10);
    bench.inject(bench.b, packet.frame());
    EXPECT_THAT(tap.take(), IsEmpty());
    EXPECT_EQ(bench.b.engine.counters().rx_dropped, 3u);
    EXPECT_EQ(bench.b.state(qb), QpState::kRts);
}

// On a link with faults every message that arrives is whole, and every send completes.
TEST_F(UcTest, what_arrives_over_a_faulty_link_is_whole) {
    Prng prng(3);
    for (auto& byte : ma.bytes) byte = static_cast<std::byte>(prng.next());
    bench.fate = [&](const wire::Frame&) {
        Fate fate;
        fate.is_lost = prng.chance(0.05);
        fate.is_repeated = prng.chance(0.05);
        if (prng.chance(0.05)) fate.delay = microseconds(3);
        return fate;
    };
    std::size_t arrived = 0;
    for (int i = 0; i < 500; ++i) {
        std::fill(mb.bytes.begin(), mb.bytes.end(), std::byte{0});
        bench.b.post_recv(qb, recv_wqe({mb.sge(0, 8192)}));
        const auto length = static_cast<std::uint32_t>(prng.below(1500));
        bench.a.post_send(qa, send_wqe(WrOpcode::kSend, {ma.sge(0, length)}));
        bench.run(milliseconds(1));
        ASSERT_THAT(bench.a.poll_send(), ElementsAre(status(WcStatus::kSuccess)));
        for (const Completion& completion : bench.b.poll_recv()) {
            ++arrived;
            ASSERT_EQ(completion.status, WcStatus::kSuccess);
            ASSERT_EQ(completion.byte_length, length);
            ASSERT_TRUE(std::equal(ma.bytes.begin(), ma.bytes.begin() + length, mb.bytes.begin()));
        }
    }
    EXPECT_GT(arrived, 300u);
}

// --- Congestion.

struct NotificationTest : testing::Test {
    NotificationTest() {
        Connection connection;
        connection.traffic_class = 0x68;
        bench.connect(qa, qb, connection);
    }
    Bench bench;
    Wiretap tap{bench};
    Qpn qa = bench.a.create_qp(QpType::kRc), qb = bench.b.create_qp(QpType::kRc);
    Host::Region& ma = bench.a.region(8192);
    Host::Region& mb = bench.b.region(8192);
};

//= IBA A17.9.3 test
TEST_F(NotificationTest, a_marked_packet_is_answered_with_a_notification) {
    Packet packet(bench, bench.b, qb, wire::Service::kRc, PacketKind::kWrite);
    packet.psn(100).reth(mb.address(), mb.keys.rkey, 8).payload(ma, 0, 8).marked();
    bench.inject(bench.b, packet.frame());
    EXPECT_EQ(bench.b.engine.counters().np_ecn_marked_roce_packets, 1u);
    EXPECT_EQ(bench.b.engine.counters().np_cnp_sent, 1u);
    EXPECT_EQ(bench.a.engine.counters().rp_cnp_handled, 1u);
    ASSERT_THAT(tap.seen(), SizeIs(1));
    EXPECT_EQ(tap.seen()[0].name, "CNP");
    EXPECT_EQ(tap.seen()[0].destination, qa);
    EXPECT_EQ(tap.seen()[0].traffic_class, 48 << 2);
}

TEST_F(NotificationTest, packets_of_a_connection_carry_its_dscp_and_can_be_marked) {
    bench.a.post_send(qa, rdma_wqe(WrOpcode::kWrite, {ma.sge(0, 8)}, mb));
    bench.settle();
    ASSERT_THAT(tap.seen(), SizeIs(2));
    EXPECT_EQ(tap.seen()[0].traffic_class, 0x6a);
    EXPECT_EQ(tap.seen()[1].traffic_class, 0x6a);
}

TEST_F(NotificationTest, the_sender_of_a_marked_datagram_is_notified) {
    const Qpn ua = bench.a.create_qp(QpType::kUd), ub = bench.b.create_qp(QpType::kUd);
    bench.ready_datagram(bench.a, ua, 1);
    bench.ready_datagram(bench.b, ub, 1);
    Packet packet(bench, bench.b, ub, wire::Service::kUd, PacketKind::kSend);
    packet.deth(1, ua).payload(ma, 0, 8).marked();
    bench.inject(bench.b, packet.frame());
    EXPECT_EQ(bench.b.engine.counters().np_cnp_sent, 1u);
    EXPECT_EQ(bench.a.engine.counters().rp_cnp_handled, 1u);
}

}  // namespace
}  // namespace rdmalab::transport
