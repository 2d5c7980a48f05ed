// Rewriting: checksums against those computed anew, and what the ICRC says.
#include "flow/action_program.h"

#include <gtest/gtest.h>

#include "flow/pipeline_fixture.h"
#include "wire/checksum.h"
#include "wire/testing.h"

namespace rdmalab::flow {
namespace {

using wire::testing::Bytes;

constexpr std::uint64_t kSeed = 5;

// The one's complement sum over 16-bit words, as slowly as RFC 1071 has it.
std::uint16_t slow_sum(ByteView bytes, std::uint32_t sum = 0) {
    for (std::size_t i = 0; i < bytes.size(); i += 2) {
        const auto low = i + 1 < bytes.size() ? std::to_integer<unsigned>(bytes[i + 1]) : 0;
        sum += std::to_integer<unsigned>(bytes[i]) << 8 | low;
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return static_cast<std::uint16_t>(sum);
}

struct Layout {
    bool ipv6;
    std::uint8_t protocol;
};

constexpr std::size_t kL4Length = 40;

std::size_t checksum_at(std::uint8_t protocol) {
    return protocol == wire::kIpProtocolTcp ? 16 : protocol == wire::kIpProtocolUdp ? 6 : 2;
}

std::uint32_t pseudo_sum(const Bytes& bytes, const Layout& layout) {
    const ByteView addresses =
        layout.ipv6 ? ByteView(bytes).subspan(14 + 8, 32) : ByteView(bytes).subspan(14 + 12, 8);
    return slow_sum(addresses) + layout.protocol + std::uint32_t{kL4Length};
}

// A frame with random content whose checksums are right.
Bytes frame_of(const Layout& layout, Prng& random) {
    const std::size_t l3 = layout.ipv6 ? 40 : 20;
    Bytes bytes(14 + l3 + kL4Length);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
    const std::uint16_t type = layout.ipv6 ? wire::kEtherTypeIpv6 : wire::kEtherTypeIpv4;
    store_bytes(bytes.data() + 12, Be16(type));
    if (layout.ipv6) {
        bytes[14] = std::byte{0x60};
        store_bytes(bytes.data() + 18, Be16(kL4Length));
        bytes[20] = std::byte{layout.protocol};
    } else {
        bytes[14] = std::byte{0x45};
        store_bytes(bytes.data() + 16, Be16(20 + kL4Length));
        store_bytes(bytes.data() + 20, Be16(0));
        bytes[23] = std::byte{layout.protocol};
        store_bytes(bytes.data() + 24, Be16(0));
        const auto sum = slow_sum(ByteView(bytes).subspan(14, 20));
        store_bytes(bytes.data() + 24, Be16(static_cast<std::uint16_t>(~sum)));
    }
    const std::size_t l4 = 14 + l3;
    store_bytes(bytes.data() + l4 + checksum_at(layout.protocol), Be16(0));
    const bool has_pseudo = layout.protocol != wire::kIpProtocolIcmp;
    const auto sum =
        slow_sum(ByteView(bytes).subspan(l4), has_pseudo ? pseudo_sum(bytes, layout) : 0);
    store_bytes(bytes.data() + l4 + checksum_at(layout.protocol),
                Be16(static_cast<std::uint16_t>(~sum)));
    return bytes;
}

bool checksums_are_right(const Bytes& bytes, const Layout& layout) {
    if (!layout.ipv6 && slow_sum(ByteView(bytes).subspan(14, 20)) != 0xffff) return false;
    const std::size_t l4 = layout.ipv6 ? 54 : 34;
    const bool has_pseudo = layout.protocol != wire::kIpProtocolIcmp;
    return slow_sum(ByteView(bytes).subspan(l4), has_pseudo ? pseudo_sum(bytes, layout) : 0) ==
           0xffff;
}

FieldValues random_values(const Layout& layout, Prng& random) {
    FieldValues values;
    const auto number = [&](Field field) {
        const FieldValue value{random.next(), random.next()};
        values.set(field, value & all_ones(field));
    };
    for (const Field field : {Field::kEthDst, Field::kEthSrc}) number(field);
    if (layout.ipv6) {
        for (const Field field : {Field::kIpv6Src, Field::kIpv6Dst, Field::kIpv6TrafficClass,
                                  Field::kIpv6FlowLabel, Field::kIpv6HopLimit})
            number(field);
    } else {
        for (const Field field :
             {Field::kIpv4Src, Field::kIpv4Dst, Field::kIpv4DscpEcn, Field::kIpv4Ttl})
            number(field);
    }
    if (layout.protocol == wire::kIpProtocolTcp || layout.protocol == wire::kIpProtocolUdp) {
        number(Field::kTransportSrc);
        number(Field::kTransportDst);
    }
    return values;
}

TEST(ActionProgram, rewritten_fields_have_their_values_and_all_checksums_stay_right) {
    Prng random(kSeed);
    const Layout layouts[] = {{false, wire::kIpProtocolTcp},  {false, wire::kIpProtocolUdp},
                              {false, wire::kIpProtocolIcmp}, {true, wire::kIpProtocolTcp},
                              {true, wire::kIpProtocolUdp},   {true, wire::kIpProtocolIcmp6}};
    for (int run = 0; run < 3'000; ++run) {
        SCOPED_TRACE("seed " + std::to_string(kSeed) + " run " + std::to_string(run));
        const Layout layout = layouts[random.below(std::size(layouts))];
        const Bytes bytes = frame_of(layout, random);
        wire::Frame frame;
        ASSERT_EQ(wire::testing::parse(bytes, frame), wire::ParseError::kNone);
        ASSERT_TRUE(checksums_are_right(bytes, layout));
        const FieldValues values = random_values(layout, random);
        ActionTemplate form;
        for (const auto& item : values.items()) form.values.set_all_ones(item.field);
        const auto plan = ActionPlan::make(form);
        ASSERT_TRUE(plan.ok()) << plan.error().text;
        Packet packet;
        packet.start(frame, PortId{1}, bytes.size(), true);
        plan->fill(values)->run(packet);
        for (const auto& item : values.items()) {
            EXPECT_EQ(read_field(packet, item.field), item.value) << name_of(item.field);
        }
        const Bytes payload(bytes.begin() + frame.header_length, bytes.end());
        EXPECT_TRUE(checksums_are_right(wire::testing::written(frame, payload), layout));
    }
}

TEST(ActionProgram, a_udp_checksum_of_zero_means_none_and_stays) {
    Prng random(kSeed);
    Bytes bytes = frame_of({false, wire::kIpProtocolUdp}, random);
    store_bytes(bytes.data() + 40, Be16(0));
    wire::Frame frame;
    ASSERT_EQ(wire::testing::parse(bytes, frame), wire::ParseError::kNone);
    Packet packet;
    packet.start(frame, PortId{1}, bytes.size(), false);
    const auto plan = ActionPlan::make({{{Field::kUdpDst, 77}}, std::nullopt, {}});
    plan->fill({})->run(packet);
    EXPECT_EQ(wire::header_at<wire::UdpHeader>(frame, frame.l4_offset)->checksum, 0);
    EXPECT_EQ(wire::header_at<wire::UdpHeader>(frame, frame.l4_offset)->destination_port, 77);
}

TEST(ActionProgram, of_a_packet_without_the_header_nothing_is_written) {
    wire::Frame frame = arp_frame();
    const wire::Frame before = frame;
    Packet packet;
    packet.start(frame, PortId{1}, 60, false);
    const auto plan = ActionPlan::make({{{Field::kIpv4Ttl, 77}}, std::nullopt, {}});
    plan->fill({})->run(packet);
    EXPECT_EQ(0, std::memcmp(frame.header.data(), before.header.data(), before.header_length));
}

wire::Frame rewritten(const ActionTemplate& form, const RoceOptions& options = {}) {
    wire::Frame frame = roce_frame(options);
    Packet packet;
    packet.start(frame, PortId{1}, 60, false);
    const auto plan = ActionPlan::make(form);
    EXPECT_TRUE(plan.ok()) << plan.error().text;
    plan->fill({})->run(packet);
    return frame;
}

TEST(ActionProgram, only_a_rewrite_of_what_the_icrc_covers_breaks_it) {
    const auto survives = [](const FieldValues& values, const RoceOptions& options = {}) {
        return wire::invariants_unchanged(rewritten({values, std::nullopt, {}}, options));
    };
    EXPECT_TRUE(survives({{Field::kIpv4DscpEcn, 0x07}}));
    EXPECT_TRUE(survives({{Field::kIpv4Ttl, 1}}));
    EXPECT_TRUE(survives({{Field::kEthDst, 0x0200'0000'0077}}));
    EXPECT_FALSE(survives({{Field::kUdpDst, 4792}}));
    EXPECT_FALSE(survives({{Field::kUdpSrc, 1}}));
    EXPECT_FALSE(survives({{Field::kIpv4Dst, 0x0a000063}}));
    const RoceOptions v6{.destination = "fd00::1", .source = "fd00::2"};
    EXPECT_TRUE(survives({{Field::kIpv6TrafficClass, 0x07}, {Field::kIpv6HopLimit, 1}}, v6));
    EXPECT_TRUE(survives({{Field::kIpv6FlowLabel, 5}}, v6));
    EXPECT_FALSE(survives({{Field::kIpv6Dst, FieldValue::of(*Gid::parse("fd00::9"))}}, v6));
}

TEST(ActionProgram, descriptors_add_and_copy) {
    ActionTemplate form;
    form.descriptors.push_back(
        {DescriptorKind::kAdd, Field::kIpv4Ttl, 0, 0xff, {}, 0, 0});  // minus one
    form.descriptors.push_back(
        {DescriptorKind::kCopy, Field::kIpv4DscpEcn, 2, 0, Field::kBthDestQp, 4, 3});
    const wire::Frame frame = rewritten(form, {.destination_qp = 0x102fd5, .traffic_class = 0xff});
    EXPECT_EQ(wire::hop_limit(frame), 63);
    EXPECT_EQ(wire::traffic_class(frame), 0xf7);  // bits 6:4 of 0xd5 are 5
    EXPECT_EQ(wire::checksum_sum(frame.header.data() + frame.l3_offset, 5), 0xffff);
    ActionTemplate wide;
    wide.descriptors.push_back(
        {DescriptorKind::kCopy, Field::kIpv4Ttl, 4, 0, Field::kBthPsn, 0, 5});
    EXPECT_EQ(ActionPlan::make(wide).error().code, EINVAL);
}

}  // namespace
}  // namespace rdmalab::flow
