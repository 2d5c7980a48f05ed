// The responder against a peer played by hand. Each step says what arrives and what is expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/test_packet.h"

namespace rdmalab::transport {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using wire::PacketKind;
using wire::Position;

constexpr std::uint32_t kMtu = 256;
constexpr std::uint32_t kFirst = 100;  // PSN that the responder expects
constexpr std::uint8_t kAck = 0x1f, kNakSequence = 0x60, kNakInvalid = 0x61, kNakAccess = 0x62,
                       kNakOperational = 0x63;

struct ResponderTest : testing::Test {
    ResponderTest() : tap(bench, false) { setup({}); }
    void setup(Connection connection) {
        connection.mtu = kMtu;
        connection.psn_a = Psn{kFirst};
        qa = bench.a.create_qp(QpType::kRc);
        qb = bench.b.create_qp(QpType::kRc);
        bench.connect(qa, qb, connection);
        tap.take();
    }
    Packet request(PacketKind kind, Position position, std::uint32_t psn, bool imm = false) {
        Packet packet(bench, bench.b, qb, wire::Service::kRc, kind, position, imm);
        packet.psn(psn).asking_ack();
        return packet;
    }
    Packet write(std::uint32_t psn, std::uint32_t length) {
        auto packet = request(PacketKind::kWrite, Position::kOnly, psn);
        packet.reth(target.address(), target.keys.rkey, length);
        if (length > 0) packet.payload(source, 0, length);
        return packet;
    }
    Packet read(std::uint32_t psn, std::uint32_t length) {
        auto packet = request(PacketKind::kReadRequest, Position::kOnly, psn);
        packet.reth(target.address(), target.keys.rkey, length);
        return packet;
    }
    Packet send(std::uint32_t psn, Position position, std::uint32_t length) {
        auto packet = request(PacketKind::kSend, position, psn);
        if (length > 0) packet.payload(source, 0, length);
        return packet;
    }
    Packet fetch_add(std::uint32_t psn, std::uint64_t address, Rkey rkey) {
        auto packet = request(PacketKind::kFetchAdd, Position::kOnly, psn);
        packet.atomic(address, rkey, 1);
        return packet;
    }
    // What the responder answers to the packet.
    std::vector<Seen> answer(const Packet& packet) {
        bench.inject(bench.b, packet.frame());
        return tap.take();
    }
    void expect_nak(const Packet& packet, std::uint8_t syndrome, std::uint32_t psn = kFirst) {
        const auto answers = answer(packet);
        ASSERT_THAT(answers, SizeIs(1));
        EXPECT_EQ(answers[0].name, "RC Acknowledge");
        EXPECT_EQ(answers[0].syndrome, syndrome);
        EXPECT_EQ(answers[0].psn, psn);
    }
    void expect_fatal(const Packet& packet, std::uint8_t syndrome, AsyncEventType event) {
        expect_nak(packet, syndrome);
        EXPECT_TRUE(bench.b.has_event(event));
        EXPECT_EQ(bench.b.state(qb), QpState::kErr);
    }
    void post_recv(std::uint32_t length) { bench.b.post_recv(qb, recv_wqe({recv.sge(0, length)})); }
    WcStatus recv_status() {
        const auto completions = bench.b.poll_recv();
        return completions.empty() ? WcStatus::kGeneralErr : completions[0].status;
    }

    Bench bench;
    Wiretap tap;
    Qpn qa, qb;
    Host::Region& source = bench.a.region(4096);
    Host::Region& target = bench.b.region(4096);
    Host::Region& recv = bench.b.region(4096);
};

//= IBA 9.7.5.1.1 test
TEST_F(ResponderTest, acknowledges_a_write_that_asks_for_it) {
    const auto answers = answer(write(kFirst, 10));
    ASSERT_THAT(answers, SizeIs(1));
    EXPECT_EQ(answers[0].name, "RC Acknowledge");
    EXPECT_EQ(answers[0].psn, kFirst);
    EXPECT_EQ(answers[0].syndrome, kAck);
    EXPECT_EQ(answers[0].msn, 1u);
    EXPECT_EQ(answers[0].destination, qa);
}

TEST_F(ResponderTest, one_ack_covers_all_that_a_round_has_placed) {
    for (std::uint32_t i = 0; i < 5; ++i) {
        wire::Frame frame = write(kFirst + i, 10).frame();
        bench.b.engine.handle_frame(frame, bench.now);
    }
    bench.settle();
    const auto answers = tap.take();
    ASSERT_THAT(answers, SizeIs(1));
    EXPECT_EQ(answers[0].psn, kFirst + 4);
    EXPECT_EQ(answers[0].msn, 5u);
}

TEST_F(ResponderTest, no_ack_leaves_before_the_data_is_in_place) {
    wire::Frame arriving = write(kFirst, 10).frame(), leaving;
    bench.b.engine.handle_frame(arriving, bench.now);
    EXPECT_FALSE(bench.b.engine.poll_frame(bench.now, leaving));
    bench.b.engine.commit({}, bench.now);
    EXPECT_TRUE(bench.b.engine.poll_frame(bench.now, leaving));
}

//= IBA 9.7.5.1.2 test
TEST_F(ResponderTest, a_gap_is_reported_once_until_it_is_closed) {
    expect_nak(write(kFirst + 2, 10), kNakSequence, kFirst);
    EXPECT_THAT(answer(write(kFirst + 3, 10)), IsEmpty());
    EXPECT_THAT(answer(write(kFirst, 10)), SizeIs(1));
    expect_nak(write(kFirst + 2, 10), kNakSequence, kFirst + 1);
}

//= IBA 9.7.1 test
TEST_F(ResponderTest, packet_numbers_wrap) {
    Connection connection;
    bench.b.engine.destroy_qp(Host::kOwner, qb);
    connection.mtu = kMtu;
    connection.psn_a = Psn{0xff'ffff};
    qb = bench.b.create_qp(QpType::kRc);
    bench.connect(bench.a.create_qp(QpType::kRc), qb, connection);
    EXPECT_EQ(answer(write(0xff'ffff, 10)).at(0).psn, 0xff'ffffu);
    EXPECT_EQ(answer(write(0, 10)).at(0).psn, 0u);
    // A duplicate from before the wrap is still known as one.
    EXPECT_EQ(answer(write(0xff'ffff, 10)).at(0).psn, 0u);
    EXPECT_EQ(bench.b.engine.counters().duplicate_request, 1u);
}

//= IBA 9.7.5.1.5 test
TEST_F(ResponderTest, a_duplicate_write_is_acknowledged_and_not_executed) {
    source.bytes[0] = std::byte{1};
    answer(write(kFirst, 10));
    answer(write(kFirst + 1, 0));
    source.bytes[0] = std::byte{2};
    expect_nak(write(kFirst, 10), kAck, kFirst + 1);
    EXPECT_EQ(target.bytes[0], std::byte{1});
}

//= IBA 9.7.5.1.5 test
TEST_F(ResponderTest, a_duplicate_read_is_answered_again) {
    EXPECT_THAT(answer(read(kFirst, 3 * kMtu)), SizeIs(3));
    EXPECT_THAT(answer(read(kFirst, 3 * kMtu)), SizeIs(3));
    // From the middle: the rest of the response.
    auto rest = request(PacketKind::kReadRequest, Position::kOnly, kFirst + 1);
    rest.reth(target.address(kMtu), target.keys.rkey, 2 * kMtu);
    const auto answers = answer(rest);
    ASSERT_THAT(answers, SizeIs(2));
    EXPECT_EQ(answers[0].name, "RC RDMA READ Response First");
    EXPECT_EQ(answers[0].psn, kFirst + 1);
    EXPECT_EQ(answers[1].name, "RC RDMA READ Response Last");
}

//= IBA 9.7.5.1.5 test
TEST_F(ResponderTest, a_duplicate_atomic_is_answered_from_memory_and_not_executed) {
    answer(fetch_add(kFirst, target.address(), target.keys.rkey));
    const auto answers = answer(fetch_add(kFirst, target.address(), target.keys.rkey));
    ASSERT_THAT(answers, SizeIs(1));
    EXPECT_EQ(answers[0].name, "RC ATOMIC Acknowledge");
    EXPECT_EQ(load_bytes<std::uint64_t>(target.bytes.data()), 1u);
}

TEST_F(ResponderTest, a_duplicate_that_is_older_than_the_resources_is_dropped) {
    for (std::uint32_t i = 0; i < 20; ++i)
        answer(fetch_add(kFirst + i, target.address(), target.keys.rkey));
    EXPECT_THAT(answer(fetch_add(kFirst, target.address(), target.keys.rkey)), IsEmpty());
    EXPECT_EQ(load_bytes<std::uint64_t>(target.bytes.data()), 20u);
}

//= IBA 9.7.5.2.8 test
TEST_F(ResponderTest, without_a_receive_wqe_the_requester_is_told_to_wait) {
    expect_nak(send(kFirst, Position::kOnly, 10), 0x20 | 12);
    // What follows is dropped without a word.
    EXPECT_THAT(answer(send(kFirst + 1, Position::kOnly, 10)), IsEmpty());
    post_recv(100);
    EXPECT_EQ(answer(send(kFirst, Position::kOnly, 10)).at(0).syndrome, kAck);
    EXPECT_EQ(recv_status(), WcStatus::kSuccess);
}

//= IBA 9.7.4.1.2 test
TEST_F(ResponderTest, a_middle_without_a_first_is_an_invalid_request) {
    expect_fatal(send(kFirst, Position::kMiddle, kMtu), kNakInvalid,
                 AsyncEventType::kQpRequestError);
}

//= IBA 9.7.4.1.2 test
TEST_F(ResponderTest, a_new_message_within_another_is_an_invalid_request) {
    post_recv(4096);
    answer(send(kFirst, Position::kFirst, kMtu));
    expect_nak(send(kFirst + 1, Position::kOnly, 10), kNakInvalid, kFirst + 1);
    EXPECT_EQ(recv_status(), WcStatus::kRemInvReqErr);
    EXPECT_EQ(bench.b.state(qb), QpState::kErr);
}

//= IBA 9.7.4.1.2 test
TEST_F(ResponderTest, the_end_of_a_write_does_not_end_a_send) {
    post_recv(4096);
    answer(send(kFirst, Position::kFirst, kMtu));
    auto last = request(PacketKind::kWrite, Position::kLast, kFirst + 1);
    last.payload(source, 0, 10);
    expect_nak(last, kNakInvalid, kFirst + 1);
}

//= IBA 9.7.4.1.6 test
TEST_F(ResponderTest, packets_within_a_message_are_full) {
    post_recv(4096);
    expect_fatal(send(kFirst, Position::kFirst, kMtu - 1), kNakInvalid,
                 AsyncEventType::kQpRequestError);
}

//= IBA 9.7.4.1.6 test
TEST_F(ResponderTest, a_last_packet_is_not_empty) {
    post_recv(4096);
    answer(send(kFirst, Position::kFirst, kMtu));
    expect_nak(send(kFirst + 1, Position::kLast, 0), kNakInvalid, kFirst + 1);
}

//= IBA 9.7.4.1.6 test
TEST_F(ResponderTest, no_packet_is_longer_than_the_mtu) {
    post_recv(4096);
    expect_fatal(send(kFirst, Position::kOnly, kMtu + 1), kNakInvalid,
                 AsyncEventType::kQpRequestError);
}

//= IBA 9.7.4.1.6 test
TEST_F(ResponderTest, a_write_has_the_length_that_its_reth_says) {
    auto packet = request(PacketKind::kWrite, Position::kOnly, kFirst);
    packet.reth(target.address(), target.keys.rkey, 11).payload(source, 0, 10);
    expect_fatal(packet, kNakInvalid, AsyncEventType::kQpRequestError);
}

//= IBA 9.7.4.1.6 test
TEST_F(ResponderTest, a_read_is_not_longer_than_two_gibibytes) {
    auto packet = request(PacketKind::kReadRequest, Position::kOnly, kFirst);
    packet.reth(target.address(), target.keys.rkey, (1u << 31) + 1);
    expect_fatal(packet, kNakInvalid, AsyncEventType::kQpRequestError);
}

// A key that is wrong in each way that there is.
//= IBA 9.7.4.1.3 test
TEST_F(ResponderTest, a_write_with_a_wrong_key_is_a_remote_access_error) {
    auto& read_only = bench.b.region(4096, kAccessRemoteRead);
    const Rkey stale{target.keys.rkey.value ^ 1}, unknown{0x7fff'ff01};
    const PdId other_pd = *bench.b.engine.create_pd(Host::kOwner);
    const auto other =
        bench.b.engine.register_mr({Host::kOwner, Host::kSpace, other_pd, target.address(), 4096,
                                    target.address(), Host::kEverything});
    struct Case {
        const char* what;
        Rkey rkey;
        std::uint64_t address;
    };
    const Case cases[] = {
        {"stale tag", stale, target.address()},
        {"no such region", unknown, target.address()},
        {"no write right", read_only.keys.rkey, read_only.address()},
        {"other protection domain", other->rkey, target.address()},
        {"before the start", target.keys.rkey, target.address() - 1},
        {"beyond the end", target.keys.rkey, target.address(4096 - 9)},
        {"around the end of the address space", target.keys.rkey, UINT64_MAX - 3},
    };
    for (const Case& wrong : cases) {
        SCOPED_TRACE(wrong.what);
        setup({});
        auto packet = request(PacketKind::kWrite, Position::kOnly, kFirst);
        packet.reth(wrong.address, wrong.rkey, 10).payload(source, 0, 10);
        expect_fatal(packet, kNakAccess, AsyncEventType::kQpAccessError);
    }
}

//= IBA 9.7.4.1.3 test
TEST_F(ResponderTest, reads_and_atomics_need_their_rights) {
    auto& no_read = bench.b.region(4096, kAccessLocalWrite | kAccessRemoteWrite);
    auto packet = request(PacketKind::kReadRequest, Position::kOnly, kFirst);
    packet.reth(no_read.address(), no_read.keys.rkey, 10);
    expect_fatal(packet, kNakAccess, AsyncEventType::kQpAccessError);
    setup({});
    expect_fatal(fetch_add(kFirst, no_read.address(), no_read.keys.rkey), kNakAccess,
                 AsyncEventType::kQpAccessError);
}

//= IBA 9.7.4.1.3 test
TEST_F(ResponderTest, the_key_of_an_empty_write_or_read_is_not_looked_at) {
    auto empty = request(PacketKind::kWrite, Position::kOnly, kFirst);
    empty.reth(1, Rkey{1}, 0);
    EXPECT_EQ(answer(empty).at(0).syndrome, kAck);
    auto nothing = request(PacketKind::kReadRequest, Position::kOnly, kFirst + 1);
    nothing.reth(1, Rkey{1}, 0);
    EXPECT_EQ(answer(nothing).at(0).name, "RC RDMA READ Response Only");
}

//= IBA 9.4.5 test
TEST_F(ResponderTest, an_atomic_that_is_not_aligned_is_an_invalid_request) {
    expect_fatal(fetch_add(kFirst, target.address(4), target.keys.rkey), kNakInvalid,
                 AsyncEventType::kQpRequestError);
}

//= IBA 9.7.4.1.5 test
TEST_F(ResponderTest, what_the_qp_does_not_permit_is_an_invalid_request) {
    Connection connection;
    connection.access = kAccessLocalWrite;
    setup(connection);
    expect_fatal(write(kFirst, 10), kNakInvalid, AsyncEventType::kQpRequestError);
    setup(connection);
    expect_fatal(read(kFirst, 10), kNakInvalid, AsyncEventType::kQpRequestError);
    setup(connection);
    expect_fatal(fetch_add(kFirst, target.address(), target.keys.rkey), kNakInvalid,
                 AsyncEventType::kQpRequestError);
}

//= IBA 9.7.4.1.4 test
TEST_F(ResponderTest, more_reads_than_resources_are_an_invalid_request) {
    Connection connection;
    connection.resources = 2;
    setup(connection);
    for (std::uint32_t i = 0; i < 3; ++i) {
        wire::Frame frame = read(kFirst + i, 10).frame();
        bench.b.engine.handle_frame(frame, bench.now);
    }
    bench.settle();
    const auto answers = tap.take();
    ASSERT_THAT(answers, SizeIs(3));
    EXPECT_EQ(answers[1].name, "RC RDMA READ Response Only");
    EXPECT_EQ(answers[2].syndrome, kNakInvalid);
    EXPECT_EQ(answers[2].psn, kFirst + 2);
}

TEST_F(ResponderTest, a_replay_does_not_use_up_the_resources) {
    Connection connection;
    connection.resources = 1;
    setup(connection);
    answer(read(kFirst, 10));
    for (const std::uint32_t psn : {kFirst, kFirst + 1}) {
        wire::Frame frame = read(psn, 10).frame();
        bench.b.engine.handle_frame(frame, bench.now);
    }
    bench.settle();
    EXPECT_EQ(bench.b.state(qb), QpState::kRts);
    EXPECT_EQ(tap.take().back().psn, kFirst + 1);
}

//= IBA 9.9.3 test
TEST_F(ResponderTest, a_message_that_does_not_fit_fails_on_both_sides) {
    post_recv(9);
    expect_nak(send(kFirst, Position::kOnly, 10), kNakInvalid);
    EXPECT_EQ(recv_status(), WcStatus::kLocLenErr);
    EXPECT_EQ(bench.b.state(qb), QpState::kErr);
}

//= IBA 9.9.3 test
TEST_F(ResponderTest, a_receive_into_foreign_memory_fails_on_both_sides) {
    auto& read_only = bench.b.region(100, kAccessRemoteRead);
    bench.b.post_recv(qb, recv_wqe({read_only.sge(0, 100)}));
    expect_nak(send(kFirst, Position::kOnly, 10), kNakOperational);
    EXPECT_EQ(recv_status(), WcStatus::kLocProtErr);
    EXPECT_EQ(bench.b.state(qb), QpState::kErr);
}

TEST_F(ResponderTest, answers_come_in_the_order_of_the_requests) {
    for (const Packet& packet :
         {write(kFirst, 10), read(kFirst + 1, 2 * kMtu),
          fetch_add(kFirst + 3, target.address(), target.keys.rkey), write(kFirst + 4, 10)}) {
        wire::Frame frame = packet.frame();
        bench.b.engine.handle_frame(frame, bench.now);
    }
    bench.settle();
    EXPECT_THAT(tap.names(),
                ElementsAre("RC RDMA READ Response First", "RC RDMA READ Response Last",
                            "RC ATOMIC Acknowledge", "RC Acknowledge"));
    EXPECT_EQ(tap.seen().back().psn, kFirst + 4);
    EXPECT_EQ(tap.seen().back().msn, 4u);
}

TEST_F(ResponderTest, a_region_that_goes_away_under_a_read_is_a_remote_access_error) {
    wire::Frame frame = read(kFirst, 100).frame();
    bench.b.engine.handle_frame(frame, bench.now);
    ASSERT_EQ(bench.b.engine.deregister_mr(Host::kOwner, target.keys.lkey), 0);
    bench.settle();
    EXPECT_EQ(tap.take().at(0).syndrome, kNakAccess);
    EXPECT_EQ(bench.b.state(qb), QpState::kErr);
}

//= IBA 11.6.3.1 test
TEST_F(ResponderTest, the_first_packet_in_rtr_is_announced) {
    const Qpn early = bench.b.create_qp(QpType::kRc);
    QpAttributes attributes;
    attributes.access = Host::kEverything;
    attributes.path_mtu = kMtu;
    attributes.destination_qpn = qa;
    attributes.av = bench.vector_to(bench.a.gid, bench.a.mac);
    attributes.rq_psn = Psn{kFirst};
    attributes.responder_resources = 1;
    const auto modify = [&](QpState state, std::uint32_t mask) {
        attributes.state = state;
        ASSERT_EQ(
            bench.b.engine.modify_qp(Host::kOwner, early, attributes, kQpState | mask, bench.now),
            0);
    };
    modify(QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags);
    modify(QpState::kRtr,
           kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer);
    qb = early;
    EXPECT_EQ(answer(write(kFirst, 10)).at(0).syndrome, kAck);
    EXPECT_THAT(bench.b.poll_events(),
                ElementsAre(testing::Field(&AsyncEvent::type, AsyncEventType::kCommEstablished)));
    answer(write(kFirst + 1, 10));
    EXPECT_THAT(bench.b.poll_events(), IsEmpty());
}

// Frames that do not reach a QP.
TEST_F(ResponderTest, frames_for_nobody_are_counted_and_dropped) {
    const Qpn dead = bench.b.create_qp(QpType::kRc);
    ASSERT_EQ(bench.b.engine.destroy_qp(Host::kOwner, dead), 0);
    Packet unknown(bench, bench.b, dead, wire::Service::kRc, PacketKind::kSend);
    EXPECT_THAT(answer(unknown), IsEmpty());
    EXPECT_EQ(bench.b.engine.counters().rx_unknown_qp, 1u);
    // Expect: dropped, the service is not that of the QP.
    Packet other(bench, bench.b, qb, wire::Service::kUc, PacketKind::kSend);
    EXPECT_THAT(answer(other.psn(kFirst)), IsEmpty());
    // Expect: dropped, the partition key is not the default one.
    EXPECT_THAT(answer(write(kFirst, 10).pkey(0x8001)), IsEmpty());
    EXPECT_EQ(bench.b.engine.counters().rx_dropped, 2u);
    // Expect: a limited member of the default partition is let in.
    EXPECT_THAT(answer(write(kFirst, 10).pkey(0x7fff)), SizeIs(1));
}

TEST_F(ResponderTest, a_rewritten_header_is_an_icrc_error) {
    wire::Frame frame = write(kFirst, 10).frame();
    frame.keep_emitted_header();
    frame.header[frame.header_length - 1u] ^= std::byte{1};
    bench.inject(bench.b, frame);
    EXPECT_THAT(tap.take(), IsEmpty());
    EXPECT_EQ(bench.b.engine.counters().rx_icrc_errors, 1u);
}

}  // namespace
}  // namespace rdmalab::transport
