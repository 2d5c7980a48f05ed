#include "wire/burst.h"

#include <gtest/gtest.h>

#include "wire/checksum.h"
#include "wire/testing.h"

namespace rdmalab::wire {
namespace {

using testing::Bytes;

// Frames of one flow, and the burst that they are packed into.
class Burst : public ::testing::TestWithParam<bool> {
protected:
    bool ipv6() const { return GetParam(); }

    void add(const OpcodeInfo& info, const Bytes& payload) {
        Frame frame;
        start_roce(frame, make_lower_template(testing::path_of(ipv6())), info);
        header_at<Bth>(frame, frame.bth_offset)->psn = count_;
        frame.add_segment({kCardSpace, static_cast<std::uint32_t>(payload.size()), 1});
        finish_roce(frame);
        if (!head_) head_.emplace(frame);
        EXPECT_EQ(*head_, LowerHead(frame)) << "lengths do not tell flows apart";
        Bytes udp = testing::written(frame, payload);
        udp.erase(udp.begin(), udp.begin() + frame.bth_offset);
        const ByteView covered = ByteView(udp).first(udp.size() - kIcrcLength);
        const std::uint32_t icrc =
            icrc_in_burst(*head_, static_cast<std::uint16_t>(count_), covered);
        for (std::size_t i = 0; i < kIcrcLength; ++i)
            udp[covered.size() + i] = static_cast<std::byte>(icrc >> (8 * i));
        payloads_.insert(payloads_.end(), udp.begin(), udp.end());
        ++count_;
    }

    Bytes sealed() {
        LowerHead head = *head_;
        seal(head, payloads_.size(), count_ > 1);
        Bytes all(head.bytes.begin(), head.bytes.begin() + head.length);
        all.insert(all.end(), payloads_.begin(), payloads_.end());
        return all;
    }

    // As the interface would: the frame at a place with lower headers of its own, as bytes.
    static Bytes cut_out(const Frame& frame) {
        Bytes bytes(frame.header.begin(), frame.header.begin() + frame.header_length);
        const std::size_t pad = (0u - frame.payload_length) & 3;
        if (frame.segment_count > 0) {
            const auto* const payload =
                reinterpret_cast<const std::byte*>(frame.segments[0].address);
            bytes.insert(bytes.end(), payload, payload + frame.payload_length + pad + kIcrcLength);
        }
        return bytes;
    }

    std::optional<LowerHead> head_;
    Bytes payloads_;
    std::uint32_t count_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Family, Burst, ::testing::Bool(),
                         [](const auto& family) { return family.param ? "ipv6" : "ipv4"; });

std::optional<ParseError> take(const Bytes& burst, std::uint32_t segment, std::uint32_t index,
                               Frame& out) {
    return parse_burst(burst, segment, index,
                       {kCardSpace, 0, reinterpret_cast<std::uintptr_t>(burst.data())}, out);
}

TEST_P(Burst, every_frame_that_is_cut_out_is_right_by_itself) {
    constexpr std::uint32_t kPayload = 1024, kSegment = 12 + kPayload + 4;
    const OpcodeInfo& middle = *find_opcode(0x07);
    for (int i = 0; i < 5; ++i) add(middle, Bytes(kPayload, static_cast<std::byte>(i)));
    add(middle, Bytes(99, std::byte{0x77}));
    const Bytes burst = sealed();
    for (std::uint32_t index = 0; index < 6; ++index) {
        Frame frame;
        ASSERT_EQ(take(burst, kSegment, index, frame), ParseError::kNone);
        EXPECT_EQ(header_at<Bth>(frame, frame.bth_offset)->psn, index);
        const Bytes alone = cut_out(frame);
        Frame again;
        ASSERT_EQ(testing::parse(alone, again), ParseError::kNone) << index;
        EXPECT_EQ(again.payload_length, index < 5 ? kPayload : 99);
        const ByteView l3 = ByteView(alone).subspan(again.l3_offset);
        EXPECT_EQ(again.icrc, testing::slow_icrc(l3.first(l3.size() - kIcrcLength), ipv6()));
        if (ipv6()) continue;
        EXPECT_EQ(header_at<Ipv4Header>(again, again.l3_offset)->identification, index);
    }
    Frame beyond;
    EXPECT_EQ(take(burst, kSegment, 6, beyond), std::nullopt);
}

TEST_P(Burst, the_checksum_is_begun_with_the_pseudo_header) {
    add(*find_opcode(0x07), Bytes(256));
    add(*find_opcode(0x07), Bytes(256));
    const Bytes burst = sealed();
    const std::size_t l4 = ipv6() ? 54 : 34;
    const auto udp = load_bytes<UdpHeader>(burst.data() + l4);
    const std::size_t addresses = ipv6() ? 32 : 8;
    std::uint32_t sum = kIpProtocolUdp + udp.length;
    for (std::size_t at = l4 - addresses; at < l4; at += 2)
        sum += load_bytes<Be16>(burst.data() + at);
    while (sum > 0xffff) sum = (sum >> 16) + (sum & 0xffff);
    EXPECT_EQ(udp.checksum, sum);
}

TEST_P(Burst, a_frame_alone_is_what_it_was) {
    const Bytes payload(64, std::byte{5});
    add(*find_opcode(0x04), payload);
    Frame frame;
    start_roce(frame, make_lower_template(testing::path_of(ipv6())), *find_opcode(0x04));
    frame.add_segment({kCardSpace, 64, 1});
    finish_roce(frame);
    EXPECT_EQ(sealed(), testing::written(frame, payload));
}

TEST_P(Burst, damage_is_found_where_it_is) {
    constexpr std::uint32_t kSegment = 12 + 64 + 4;
    for (int i = 0; i < 3; ++i) add(*find_opcode(0x07), Bytes(64));
    Bytes burst = sealed();
    burst[head_->length + kSegment] = std::byte{0x1f};  // an opcode that does not exist
    Frame frame;
    EXPECT_EQ(take(burst, kSegment, 0, frame), ParseError::kNone);
    EXPECT_EQ(take(burst, kSegment, 1, frame), ParseError::kUnknownOpcode);
    EXPECT_EQ(take(burst, kSegment, 2, frame), ParseError::kNone);
    for (std::size_t length = burst.size(); length-- > 0;) {
        burst.resize(length);
        take(burst, kSegment, 0, frame);
        take(burst, kSegment, 1, frame);
    }
}

}  // namespace
}  // namespace rdmalab::wire
