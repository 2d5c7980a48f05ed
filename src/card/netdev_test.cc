// Frames of network interfaces on their way through the card.
#include <gtest/gtest.h>

#include "card/test_client.h"
#include "card/testing.h"
#include "wire/testing.h"

namespace rdmalab::card {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kSf2 = 2, kSf3 = 3, kSf4 = 4;
constexpr std::uint16_t kSomePort = 5353;

Bytes bytes_of(const void* data, std::size_t length) {
    const auto* const start = static_cast<const std::byte*>(data);
    return {start, start + length};
}

class Netdevs : public ::testing::Test {
protected:
    Netdevs() { setting.host.netdevs = {kSf2, kSf3, kSf4}; }

    Bytes ethernet(std::uint32_t from, const MacAddress& to, std::uint16_t type) const {
        wire::EthernetHeader header{};
        header.destination = to.bytes;
        header.source = config().functions[from].mac.bytes;
        header.type = type;
        return bytes_of(&header, sizeof header);
    }
    Bytes arp(std::uint32_t from) const {
        Bytes frame = ethernet(from, MacAddress::broadcast(), 0x0806);
        frame.resize(frame.size() + 28, std::byte{7});
        return frame;
    }
    // A RoCE frame without its claim to be one: as the kernel sends a UDP datagram.
    Bytes udp(std::uint32_t from, std::uint32_t to, std::uint16_t port) const {
        wire::Path path = wire::testing::path_of(false);
        path.source_mac = config().functions[from].mac;
        path.destination_mac = config().functions[to].mac;
        wire::Frame frame;
        Prng prng(3);
        const auto* const info = wire::find_opcode(
            wire::opcode_value(wire::Service::kUc, wire::PacketKind::kSend, wire::Position::kOnly));
        const Bytes payload(32, std::byte{9});
        frame = {};
        wire::start_roce(frame, wire::make_lower_template(path), *info);
        frame.add_segment({kCardSpace, 32, reinterpret_cast<std::uintptr_t>(payload.data())});
        wire::finish_roce(frame);
        Bytes bytes = wire::testing::written(frame, payload);
        auto* const header = reinterpret_cast<wire::UdpHeader*>(bytes.data() + frame.l4_offset);
        header->destination_port = port;
        return bytes;
    }
    bool send(std::uint32_t from, const Bytes& bytes) {
        return card().handle_netdev_frame(from, bytes, setting.now);
    }
    std::vector<std::uint32_t> receivers() const {
        std::vector<std::uint32_t> all;
        for (const auto& frame : setting.host.netdev_frames) all.push_back(frame.function);
        return all;
    }
    Card& card() { return setting.card; }
    const CardConfig& config() const { return setting.card.config(); }
    std::uint64_t received_by_engine(std::uint32_t function) const {
        return setting.card.engine(function).counters().rx_frames;
    }
    using Receivers = std::vector<std::uint32_t>;

    testing::TestCard setting;
};

TEST_F(Netdevs, a_broadcast_reaches_every_interface_but_the_senders) {
    const Bytes frame = arp(kSf2);
    ASSERT_TRUE(send(kSf2, frame));
    EXPECT_EQ(receivers(), (Receivers{kSf3, kSf4}));
    for (const auto& received : setting.host.netdev_frames) EXPECT_EQ(received.bytes, frame);
}

TEST_F(Netdevs, a_datagram_arrives_whole_and_only_at_its_destination) {
    const Bytes frame = udp(kSf3, kSf2, kSomePort);
    ASSERT_TRUE(send(kSf3, frame));
    ASSERT_EQ(receivers(), Receivers{kSf2});
    EXPECT_EQ(setting.host.netdev_frames[0].bytes, frame);
    EXPECT_EQ(received_by_engine(kSf2), 0u);
    EXPECT_EQ(card().vport_counters(kSf3).tx_frames, 1u);
    EXPECT_EQ(card().port_counters(0).rx_frames, 1u);
}

TEST_F(Netdevs, a_roce_frame_goes_to_the_engine_and_never_to_the_interface) {
    ASSERT_TRUE(send(kSf3, udp(kSf3, kSf2, wire::kRoceUdpPort)));
    setting.settle();
    EXPECT_EQ(receivers(), Receivers{});
    EXPECT_EQ(received_by_engine(kSf2), 1u);
    EXPECT_EQ(card().engine(kSf2).counters().rx_unknown_qp, 1u);  // its ICRC is right
}

TEST_F(Netdevs, a_function_without_an_interface_drops_the_frame) {
    setting.host.netdevs = {kSf3};
    ASSERT_TRUE(send(kSf3, udp(kSf3, kSf2, kSomePort)));
    EXPECT_EQ(receivers(), Receivers{});
    EXPECT_EQ(card().engine(kSf2).counters().rx_dropped, 1u);
}

TEST_F(Netdevs, what_does_not_parse_is_refused) {
    Bytes frame = udp(kSf3, kSf2, kSomePort);
    frame.resize(20);
    EXPECT_FALSE(send(kSf3, frame));
    EXPECT_FALSE(send(kSf3, {}));
    EXPECT_EQ(receivers(), Receivers{});
}

TEST_F(Netdevs, a_delayed_frame_keeps_its_bytes_when_the_senders_buffer_changes) {
    Impairments impairments;
    impairments.delay = microseconds(5);
    ASSERT_TRUE(card().set_impairments("cable0", std::nullopt, impairments, setting.now));
    Bytes frame = udp(kSf3, kSf2, kSomePort);
    const Bytes sent = frame;
    ASSERT_TRUE(send(kSf3, frame));
    std::fill(frame.begin(), frame.end(), std::byte{0});
    EXPECT_EQ(receivers(), Receivers{});
    EXPECT_EQ(card().next_deadline(), setting.now + microseconds(5));
    setting.run_for(microseconds(10));
    ASSERT_EQ(receivers(), Receivers{kSf2});
    EXPECT_EQ(setting.host.netdev_frames[0].bytes, sent);
}

TEST_F(Netdevs, a_lossy_cable_loses_frames_of_interfaces_too) {
    Impairments impairments;
    impairments.loss = 0.5;
    ASSERT_TRUE(card().set_impairments("cable0", std::nullopt, impairments, setting.now));
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(send(kSf3, udp(kSf3, kSf2, kSomePort)));
    EXPECT_GT(receivers().size(), 60u);
    EXPECT_LT(receivers().size(), 140u);
    EXPECT_EQ(card().cable_counters(0, false).lost, 200 - receivers().size());
}

}  // namespace
}  // namespace rdmalab::card
