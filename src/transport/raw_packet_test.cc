#include "transport/raw_packet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "transport/test_pair.h"
#include "wire/icrc.h"

namespace rdmalab::transport {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr std::uint32_t kTag = 0x1234;

// An IPv4 UDP datagram in an Ethernet frame of the given length, its payload a count.
std::vector<std::byte> udp_frame(std::size_t length, std::uint16_t port) {
    std::vector<std::byte> bytes(length);
    for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(i);
    store_bytes(bytes.data(), wire::EthernetHeader{{2, 0, 0, 0, 0, 9}, {2, 0, 0, 0, 0, 8}, 0x0800});
    wire::Ipv4Header ip{};
    ip.version_ihl = 0x45;
    ip.total_length = static_cast<std::uint16_t>(length - 14);
    ip.ttl = 64;
    ip.protocol = wire::kIpProtocolUdp;
    ip.source = 0x0a00'0001u;
    ip.destination = 0x0a00'0002u;
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < sizeof ip; i += 2)
        sum += load_bytes<Be16>(reinterpret_cast<const std::byte*>(&ip) + i);
    sum = (sum & 0xffff) + (sum >> 16);
    ip.checksum = static_cast<std::uint16_t>(~sum);
    store_bytes(bytes.data() + 14, ip);
    const auto udp_length = static_cast<std::uint16_t>(length - 34);
    store_bytes(bytes.data() + 34, wire::UdpHeader{5000, port, udp_length, 0});
    return bytes;
}

struct RawPacketTest : ::testing::Test {
    RawPacketTest() {
        ready(bench.a, qa);
        ready(bench.b, qb);
    }
    void ready(Host& host, Qpn qpn) {
        QpAttributes attributes;
        const auto move = [&](QpState state, std::uint32_t mask) {
            attributes.state = state;
            return host.engine.modify_qp(Host::kOwner, qpn, attributes, kQpState | mask, bench.now);
        };
        ASSERT_EQ(move(QpState::kInit, kQpPort), 0);
        ASSERT_EQ(move(QpState::kRtr, 0), 0);
        ASSERT_EQ(move(QpState::kRts, 0), 0);
    }
    // What host a sends when the bytes lie in its memory, as SGEs of `pieces` bytes.
    void post(const std::vector<std::byte>& bytes, std::size_t pieces = 100'000) {
        std::memcpy(ma.bytes.data(), bytes.data(), bytes.size());
        std::vector<Sge> sges;
        for (std::size_t at = 0; at < bytes.size(); at += pieces)
            sges.push_back(
                ma.sge(at, static_cast<std::uint32_t>(std::min(pieces, bytes.size() - at))));
        bench.a.post_send(qa, send_wqe(WrOpcode::kSend, sges));
    }
    bool poll(wire::Frame& out) { return bench.a.engine.poll_frame(bench.now, out); }
    void commit(Host& host) {
        std::vector<CopyFault> faults;
        bench.memory.flush(faults);
        host.engine.commit(faults, bench.now);
    }
    // The bytes of a frame, with the ICRC that a RoCEv2 frame has.
    std::vector<std::byte> bytes_of(const wire::Frame& frame) {
        std::vector<std::byte> payload;
        for (unsigned i = 0; i < frame.segment_count; ++i) {
            const auto* const from = reinterpret_cast<const std::byte*>(frame.segments[i].address);
            payload.insert(payload.end(), from, from + frame.segments[i].length);
        }
        std::vector<std::byte> out(wire::wire_length(frame));
        wire::write_frame(frame, payload, out);
        return out;
    }
    std::vector<Completion> steer(const wire::Frame& frame, std::uint32_t room = 10'000) {
        bench.b.post_recv(qb, recv_wqe({mb.sge(0, room)}));
        bench.b.engine.handle_steered(qb, frame, kTag, bench.now);
        commit(bench.b);
        return bench.b.poll_recv();
    }

    Bench bench;
    Qpn qa = bench.a.create_qp(QpType::kRaw), qb = bench.b.create_qp(QpType::kRaw);
    Host::Region& ma = bench.a.region(16384);
    Host::Region& mb = bench.b.region(16384);
};

TEST_F(RawPacketTest, a_frame_leaves_as_it_lies_in_memory) {
    for (const std::size_t length : {60, 127, 128, 129, 1514, 9216}) {
        SCOPED_TRACE(length);
        const auto bytes = udp_frame(length, 9);
        post(bytes, 400);
        wire::Frame frame;
        ASSERT_TRUE(poll(frame));
        EXPECT_EQ(bytes_of(frame), bytes);
        EXPECT_EQ(frame.header_length, 42u);
        EXPECT_FALSE(wire::is_roce(frame));
        EXPECT_EQ(bench.a.engine.sender_of(frame), qa);
        commit(bench.a);
        EXPECT_THAT(bench.a.poll_send(), SizeIs(1));
    }
}

TEST_F(RawPacketTest, a_short_frame_is_padded) {
    post(udp_frame(43, 9));
    wire::Frame frame;
    ASSERT_TRUE(poll(frame));
    auto expected = udp_frame(43, 9);
    expected.resize(60);
    EXPECT_EQ(bytes_of(frame), expected);
}

TEST_F(RawPacketTest, what_is_no_frame_by_its_length_is_an_error) {
    for (const std::uint32_t length : {13u, limits::kRawFrameMax + 1}) {
        SCOPED_TRACE(length);
        bench.a.post_send(qa, send_wqe(WrOpcode::kSend, {ma.sge(0, length)}));
        wire::Frame frame;
        EXPECT_FALSE(poll(frame));
        commit(bench.a);
        const auto done = bench.a.poll_send();
        ASSERT_THAT(done, SizeIs(1));
        EXPECT_EQ(done[0].status, WcStatus::kLocLenErr);
        EXPECT_EQ(bench.a.state(qa), QpState::kSqe);
        QpAttributes attributes;
        attributes.state = QpState::kRts;
        bench.a.engine.modify_qp(Host::kOwner, qa, attributes, kQpState, bench.now);
    }
}

TEST_F(RawPacketTest, a_head_that_came_along_is_what_is_sent) {
    const auto bytes = udp_frame(500, 9), other = udp_frame(500, 77);
    std::memcpy(ma.bytes.data(), bytes.data(), bytes.size());
    SendWqe wqe = send_wqe(WrOpcode::kSend, {ma.sge(0, 500)});
    wqe.head = ByteView(other).first(128);
    bench.a.post_send(qa, wqe);
    wire::Frame frame;
    ASSERT_TRUE(poll(frame));
    EXPECT_EQ(std::uint16_t{wire::header_at<wire::UdpHeader>(frame, 34)->destination_port}, 77);
}

TEST_F(RawPacketTest, memory_that_has_gone_fails_the_send) {
    post(udp_frame(500, 9));
    bench.memory.unmap(ma.bytes.data(), 64);
    wire::Frame frame;
    EXPECT_FALSE(poll(frame));
    commit(bench.a);
    const auto done = bench.a.poll_send();
    ASSERT_THAT(done, SizeIs(1));
    EXPECT_EQ(done[0].status, WcStatus::kLocProtErr);
}

TEST_F(RawPacketTest, a_roce_frame_made_by_hand_is_one_and_nonsense_on_its_port_is_not) {
    post(udp_frame(300, wire::kRoceUdpPort));
    wire::Frame frame;
    ASSERT_TRUE(poll(frame));
    EXPECT_FALSE(wire::is_roce(frame));
    EXPECT_EQ(bytes_of(frame), udp_frame(300, wire::kRoceUdpPort));
}

TEST_F(RawPacketTest, the_whole_frame_arrives_with_the_tag_of_the_rule) {
    for (const std::size_t length : {60, 300, 1514, 9216}) {
        SCOPED_TRACE(length);
        const auto bytes = udp_frame(length, 9);
        post(bytes);
        wire::Frame frame;
        ASSERT_TRUE(poll(frame));
        const auto done = steer(frame);
        ASSERT_THAT(done, SizeIs(1));
        EXPECT_EQ(done[0].status, WcStatus::kSuccess);
        EXPECT_EQ(done[0].byte_length, length);
        EXPECT_EQ(done[0].flow_tag, kTag);
        EXPECT_FALSE(done[0].has_grh);
        EXPECT_EQ(std::memcmp(mb.bytes.data(), bytes.data(), length), 0);
        commit(bench.a);
    }
}

TEST_F(RawPacketTest, a_roce_frame_arrives_with_pad_and_icrc) {
    const Qpn ud = bench.a.create_qp(QpType::kUd);
    bench.ready_datagram(bench.a, ud, 0x11);
    SendWqe wqe = send_wqe(WrOpcode::kSend, {ma.sge(0, 101)});
    wqe.ah = bench.address_of(bench.a, bench.b);
    wqe.remote_qpn = Qpn{77};
    bench.a.post_send(ud, wqe);
    wire::Frame frame;
    ASSERT_TRUE(poll(frame));
    ASSERT_TRUE(wire::is_roce(frame));
    const auto expected = bytes_of(frame);
    const auto done = steer(frame);
    ASSERT_THAT(done, SizeIs(1));
    EXPECT_EQ(done[0].byte_length, expected.size());
    EXPECT_EQ(std::memcmp(mb.bytes.data(), expected.data(), expected.size()), 0);
}

TEST_F(RawPacketTest, a_frame_that_does_not_fit_is_dropped_and_the_receive_stays) {
    post(udp_frame(1000, 9));
    wire::Frame frame;
    ASSERT_TRUE(poll(frame));
    EXPECT_THAT(steer(frame, 999), IsEmpty());
    EXPECT_EQ(bench.b.engine.counters().rx_dropped, 1u);
    EXPECT_EQ(bench.b.state(qb), QpState::kRts);
}

TEST_F(RawPacketTest, a_rule_gives_a_datagram_to_any_ud_qp_and_nothing_else) {
    const Qpn sender = bench.a.create_qp(QpType::kUd), receiver = bench.b.create_qp(QpType::kUd);
    bench.ready_datagram(bench.a, sender, 0x11);
    bench.ready_datagram(bench.b, receiver, 0x11);
    bench.b.post_recv(receiver, recv_wqe({mb.sge(0, 1000)}));
    SendWqe wqe = send_wqe(WrOpcode::kSend, {ma.sge(0, 100)});
    wqe.ah = bench.address_of(bench.a, bench.b);
    wqe.remote_qpn = Qpn{77};
    wqe.remote_qkey = 0x11;
    bench.a.post_send(sender, wqe);
    wire::Frame frame;
    ASSERT_TRUE(poll(frame));
    bench.b.engine.handle_steered(receiver, frame, kTag, bench.now);
    commit(bench.b);
    const auto done = bench.b.poll_recv();
    ASSERT_THAT(done, SizeIs(1));
    EXPECT_TRUE(done[0].has_grh);
    EXPECT_EQ(done[0].flow_tag, kTag);
    post(udp_frame(100, 9));
    ASSERT_TRUE(poll(frame));
    bench.b.engine.handle_steered(receiver, frame, kTag, bench.now);
    commit(bench.b);
    EXPECT_THAT(bench.b.poll_recv(), IsEmpty());
}

TEST_F(RawPacketTest, checksums_are_filled_in_on_demand_and_checked_on_arrival) {
    for (const std::size_t length : {100, 1400}) {
        SCOPED_TRACE(length);
        auto bytes = udp_frame(length, 9);
        bytes[40] = bytes[41] = std::byte{0x55};
        for (const bool fills : {true, false}) {
            std::memcpy(ma.bytes.data(), bytes.data(), length);
            SendWqe wqe =
                send_wqe(WrOpcode::kSend, {ma.sge(0, static_cast<std::uint32_t>(length))});
            wqe.fills_checksums = fills;
            bench.a.post_send(qa, wqe);
            wire::Frame frame;
            ASSERT_TRUE(poll(frame));
            const auto done = steer(frame);
            ASSERT_THAT(done, SizeIs(1));
            EXPECT_EQ(done[0].byte_length, length);
            EXPECT_EQ(done[0].checksums_right, fills);
            EXPECT_TRUE(std::equal(bytes.begin() + 42, bytes.end(), mb.bytes.begin() + 42));
            commit(bench.a);
        }
    }
}

TEST_F(RawPacketTest, a_rate_limit_spaces_the_frames) {
    QpAttributes attributes;
    attributes.state = QpState::kRts;
    attributes.rate_limit_kbps = 8'000;  // a byte each microsecond
    ASSERT_EQ(
        bench.a.engine.modify_qp(Host::kOwner, qa, attributes, kQpState | kQpRateLimit, bench.now),
        0);
    for (int i = 0; i < 10; ++i) post(udp_frame(1000, 9));
    wire::Frame frame;
    int sent = 0;
    while (poll(frame)) ++sent;
    EXPECT_LE(sent, 2);  // what a millisecond makes up for
    const Instant start = bench.now;
    while (sent < 10) {
        ASSERT_FALSE(bench.a.engine.next_deadline().is_never());
        bench.now = bench.a.engine.next_deadline();
        bench.a.engine.handle_timeout(bench.now);
        while (poll(frame)) ++sent;
    }
    EXPECT_GE((bench.now - start).ns, 7'000'000);
    EXPECT_LE((bench.now - start).ns, 10'000'000);
    commit(bench.a);
}

TEST_F(RawPacketTest, no_transport_packet_reaches_a_raw_packet_qp_by_its_number) {
    const Qpn sender = bench.a.create_qp(QpType::kUd);
    bench.ready_datagram(bench.a, sender, 0x11);
    bench.b.post_recv(qb, recv_wqe({mb.sge(0, 1000)}));
    SendWqe wqe = send_wqe(WrOpcode::kSend, {ma.sge(0, 100)});
    wqe.ah = bench.address_of(bench.a, bench.b);
    wqe.remote_qpn = qb;
    bench.a.post_send(sender, wqe);
    bench.settle();
    EXPECT_THAT(bench.b.poll_recv(), IsEmpty());
    EXPECT_EQ(bench.b.engine.counters().rx_dropped, 1u);
}

}  // namespace
}  // namespace rdmalab::transport
