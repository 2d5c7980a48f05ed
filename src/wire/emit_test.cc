#include <gtest/gtest.h>

#include "wire/checksum.h"
#include "wire/headers.h"
#include "wire/testing.h"

namespace rdmalab::wire {
namespace {

using testing::Bytes;

class Emit : public ::testing::TestWithParam<bool> {
protected:
    bool ipv6() const { return GetParam(); }
    void make(const OpcodeInfo& info, const Bytes& payload) {
        testing::make_frame(frame_, ipv6(), info, payload, prng_);
    }
    Prng prng_{1};
    Frame frame_;
};
INSTANTIATE_TEST_SUITE_P(Family, Emit, ::testing::Bool(),
                         [](const auto& family) { return family.param ? "ipv6" : "ipv4"; });

TEST_P(Emit, the_lower_headers_are_those_of_the_path) {
    const Path path = testing::path_of(ipv6());
    make(*find_opcode(0x04), Bytes(8));
    EXPECT_EQ(source_mac(frame_), path.source_mac);
    EXPECT_EQ(destination_mac(frame_), path.destination_mac);
    EXPECT_EQ(source_gid(frame_), path.source);
    EXPECT_EQ(destination_gid(frame_), path.destination);
    EXPECT_EQ(traffic_class(frame_), path.traffic_class);
    EXPECT_EQ(ecn(frame_), kEcnEct0);
    EXPECT_EQ(hop_limit(frame_), path.hop_limit);
    const auto& udp = *header_at<UdpHeader>(frame_, frame_.l4_offset);
    EXPECT_EQ(udp.source_port, path.source_port);
    EXPECT_EQ(udp.destination_port, kRoceUdpPort);
    EXPECT_EQ(udp.checksum, 0);
    if (ipv6())
        EXPECT_EQ(header_at<Ipv6Header>(frame_, frame_.l3_offset)->version_class_label & 0xf'ffff,
                  path.flow_label);
    else
        EXPECT_EQ(header_at<Ipv4Header>(frame_, frame_.l3_offset)->flags_fragment, 0x4000)
            << "do not fragment";
}

TEST_P(Emit, the_bth_has_the_default_pkey_and_version_0) {
    make(*find_opcode(0x04), {});
    const auto& bth = *header_at<Bth>(frame_, frame_.bth_offset);
    EXPECT_EQ(bth.pkey, 0xffff);
    EXPECT_EQ(bth.flags, 0x40) << "migration request only";
    EXPECT_EQ(bth.resv8a, 0);
}

TEST_P(Emit, lengths_and_pad_fit_every_payload) {
    for (const std::size_t length : {0u, 1u, 2u, 3u, 4u, 5u, 255u, 256u, 4095u, 4096u}) {
        make(*find_opcode(0x0a), Bytes(length));
        const std::size_t pad = (4 - length % 4) % 4;
        EXPECT_EQ(header_at<Bth>(frame_, frame_.bth_offset)->pad_count(), pad);
        const std::size_t udp_length = 8 + 12 + 16 + length + pad + 4;
        EXPECT_EQ(header_at<UdpHeader>(frame_, frame_.l4_offset)->length, udp_length);
        EXPECT_EQ(wire_length(frame_), frame_.l4_offset + udp_length);
        if (ipv6()) {
            EXPECT_EQ(header_at<Ipv6Header>(frame_, frame_.l3_offset)->payload_length, udp_length);
        } else {
            EXPECT_EQ(header_at<Ipv4Header>(frame_, frame_.l3_offset)->total_length,
                      20 + udp_length);
        }
    }
}

TEST_P(Emit, finishing_twice_changes_nothing) {
    make(*find_opcode(0x04), Bytes(5));
    const std::string once = testing::to_hex(frame_.header_bytes());
    finish_roce(frame_);
    EXPECT_EQ(testing::to_hex(frame_.header_bytes()), once);
}

TEST_P(Emit, reserved_bits_of_extension_headers_start_as_zero) {
    frame_.header.fill(std::byte{0xee});
    start_roce(frame_, make_lower_template(testing::path_of(ipv6())), *find_opcode(0xb3));
    for (std::size_t at = frame_.bth_offset + sizeof(Bth); at < frame_.header_length; ++at)
        EXPECT_EQ(frame_.header[at], std::byte{0}) << at;
}

TEST_P(Emit, a_reused_frame_keeps_nothing_of_the_last_one) {
    make(*find_opcode(0x04), Bytes(5));
    set_ecn(frame_, kEcnCe);
    frame_.origin = 7;
    make(*find_opcode(0x11), {});
    EXPECT_FALSE(frame_.header_kept);
    EXPECT_EQ(frame_.segment_count, 0);
    EXPECT_EQ(frame_.origin, 0u);
    EXPECT_EQ(frame_.payload_length, 0u);
    EXPECT_EQ(frame_.icrc_state, IcrcState::kElided);
}

TEST_P(Emit, the_traffic_class_can_be_set_before_and_after_finishing) {
    for (const bool before : {true, false}) {
        start_roce(frame_, make_lower_template(testing::path_of(ipv6())), *find_opcode(0x11));
        if (before) set_traffic_class(frame_, 0x2b);
        finish_roce(frame_);
        if (!before) set_traffic_class(frame_, 0x2b);
        EXPECT_EQ(traffic_class(frame_), 0x2b);
        Frame parsed;
        EXPECT_EQ(testing::parse(testing::written(frame_, {}), parsed), ParseError::kNone);
    }
}

TEST_P(Emit, setting_the_ecn_keeps_dscp_and_the_other_fields) {
    make(*find_opcode(0x04), {});
    const Frame before = frame_;
    set_ecn(frame_, kEcnCe);
    EXPECT_EQ(ecn(frame_), kEcnCe);
    EXPECT_EQ(traffic_class(frame_), (traffic_class(before) & ~3) | kEcnCe);
    EXPECT_TRUE(frame_.header_kept);
    EXPECT_EQ(
        0, std::memcmp(frame_.emitted_header.data(), before.header.data(), before.header_length));
    set_ecn(frame_, ecn(before));
    EXPECT_EQ(testing::to_hex(frame_.header_bytes()), testing::to_hex(before.header_bytes()));
}

TEST_P(Emit, cnp_is_as_annex_a17_has_it) {
    emit_cnp(frame_, make_lower_template(testing::path_of(ipv6())), Qpn{0x118});
    EXPECT_EQ(testing::to_hex(frame_.header_bytes().subspan(frame_.bth_offset)),
              "8100ffff4000011800000000");
    ASSERT_EQ(frame_.segment_count, 1);
    EXPECT_EQ(frame_.segments[0].space, kCardSpace);
    EXPECT_EQ(frame_.payload_length, 16u);
    const auto* const payload = reinterpret_cast<const std::byte*>(frame_.segments[0].address);
    EXPECT_EQ(testing::to_hex({payload, 16}), std::string(32, '0'));
}

TEST(EmitKnown, the_frame_of_a_real_adapter_is_made_bit_for_bit) {
    Path path;
    path.source_mac = *MacAddress::parse("7c:fe:90:64:3b:32");
    path.destination_mac = *MacAddress::parse("e4:1d:2d:ab:2b:c2");
    path.source = *Gid::parse("10.0.17.1");
    path.destination = *Gid::parse("10.0.18.1");
    path.traffic_class = 0xc2;
    path.source_port = 0;
    Frame frame;
    emit_cnp(frame, make_lower_template(path), Qpn{0x118});
    Bytes ours = testing::written(frame, Bytes(16));
    Bytes theirs = testing::connectx_cnp();
    // It numbers its datagrams; identification, checksum and ICRC follow from that.
    auto& ip = *reinterpret_cast<Ipv4Header*>(ours.data() + 14);
    EXPECT_EQ(ip.identification, 0);
    ip.checksum = updated_checksum(ip.checksum, 0, 0x718c);
    ip.identification = 0x718c;
    const std::uint32_t icrc = icrc_of_packet(ByteView(ours).subspan(14, ours.size() - 18), false);
    std::memcpy(ours.data() + ours.size() - 4, &icrc, 4);
    EXPECT_EQ(testing::to_hex(ours), testing::to_hex(theirs));
}

TEST(Checksum, updating_equals_summing_up) {
    Prng prng(3);
    for (int run = 0; run < 20'000; ++run) {
        std::array<Be16, 10> words;
        for (Be16& word : words)
            word = static_cast<std::uint16_t>(prng.chance(0.3) ? 0xffff * prng.below(2)
                                                               : prng.below(65'536));
        words[0] = 0x4500;  // a header is never all zero
        const auto sum = [&] {
            return checksum_sum(reinterpret_cast<const std::byte*>(words.data()), 5);
        };
        words[5] = 0;
        words[5] = static_cast<std::uint16_t>(~sum());
        ASSERT_EQ(sum(), 0xffff);
        const auto value = static_cast<std::uint16_t>(prng.below(65'536));
        const std::uint16_t updated = updated_checksum(words[5], words[1], value);
        words[1] = value;
        words[5] = 0;
        ASSERT_EQ(updated, static_cast<std::uint16_t>(~sum())) << "run " << run;
    }
}

TEST(SourcePort, folds_the_flow_label_into_the_dynamic_range) {
    EXPECT_EQ(source_port_for(0x0'3fff, Qpn{1}, Qpn{2}), 0xffff);
    EXPECT_EQ(source_port_for(0x0'4000, Qpn{1}, Qpn{2}), 0xc001);
    EXPECT_EQ(source_port_for(0xf'ffff, Qpn{1}, Qpn{2}), 0xc000 | (0x3fff ^ 0x3f));
}

TEST(SourcePort, is_derived_from_the_qpns_when_there_is_no_flow_label) {
    EXPECT_EQ(source_port_for(0, Qpn{0x11}, Qpn{0x12}), 0xc000 | 0x132);
    EXPECT_EQ(source_port_for(0, Qpn{0x11}, Qpn{0x12}), source_port_for(0, Qpn{0x12}, Qpn{0x11}));
    EXPECT_NE(source_port_for(0, Qpn{0x11}, Qpn{0x12}), source_port_for(0, Qpn{0x11}, Qpn{0x13}));
}

}  // namespace
}  // namespace rdmalab::wire
