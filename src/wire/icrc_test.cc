#include "wire/icrc.h"

#include <gtest/gtest.h>

#include "wire/testing.h"

namespace rdmalab::wire {
namespace {

using testing::Bytes;

constexpr std::size_t kL3 = 14;

std::uint32_t trailing_icrc(const Bytes& bytes) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i)
        value |= std::to_integer<std::uint32_t>(bytes[bytes.size() - 4 + i]) << (8 * i);
    return value;
}
ByteView covered(const Bytes& bytes) {
    return ByteView(bytes).subspan(kL3, bytes.size() - kL3 - 4);
}

TEST(Icrc, the_test_crc_has_the_check_value_of_crc32) {
    constexpr std::string_view kDigits = "123456789";
    EXPECT_EQ(testing::slow_crc32(std::as_bytes(std::span(kDigits))), 0xcbf4'3926u);
}

TEST(Icrc, of_frames_from_real_adapters) {
    for (const Bytes& bytes : {testing::connectx_cnp(), testing::uc_send_only()}) {
        EXPECT_EQ(testing::slow_icrc(covered(bytes), false), trailing_icrc(bytes));
        EXPECT_EQ(icrc_of_packet(covered(bytes), false), trailing_icrc(bytes));
    }
}

// A receiver that gets the frame as bytes.
bool receiver_finds_it_right(const Frame& sent, const Bytes& payload, bool ipv6) {
    const Bytes bytes = testing::written(sent, payload);
    return testing::slow_icrc(covered(bytes), ipv6) == trailing_icrc(bytes);
}

class IcrcOf : public ::testing::TestWithParam<bool> {
protected:
    bool ipv6() const { return GetParam(); }
    void make(std::uint8_t opcode, std::size_t length) {
        payload_.assign(length, std::byte{0x5a});
        testing::make_frame(frame_, ipv6(), *find_opcode(opcode), payload_, prng_);
    }
    bool right() const { return receiver_finds_it_right(frame_, payload_, ipv6()); }
    Prng prng_{7};
    Frame frame_;
    Bytes payload_;
};
INSTANTIATE_TEST_SUITE_P(Family, IcrcOf, ::testing::Bool(),
                         [](const auto& family) { return family.param ? "ipv6" : "ipv4"; });

TEST_P(IcrcOf, every_opcode_and_length_agrees_with_the_definition) {
    for (const OpcodeInfo* info : testing::all_opcodes()) {
        for (int run = 0; run < 20; ++run) {
            const Bytes payload = testing::random_payload(*info, 300, prng_);
            testing::make_frame(frame_, ipv6(), *info, payload, prng_);
            EXPECT_TRUE(receiver_finds_it_right(frame_, payload, ipv6())) << info->name;
        }
    }
}

TEST_P(IcrcOf, payload_may_be_fed_in_pieces) {
    make(0x0a, 100);
    Icrc icrc(frame_);
    const ByteView payload(payload_);
    icrc.add(payload.first(33));
    icrc.add(payload.subspan(33, 0));
    icrc.add(payload.subspan(33));
    EXPECT_EQ(icrc.value(), trailing_icrc(testing::written(frame_, payload_)));
}

TEST_P(IcrcOf, a_rewritten_invariant_field_makes_the_receiver_drop_it) {
    make(0x0a, 10);
    frame_.keep_emitted_header();
    header_at<Bth>(frame_, frame_.bth_offset)->psn = 1;
    EXPECT_FALSE(right());
    EXPECT_FALSE(invariants_unchanged(frame_));
}

TEST_P(IcrcOf, a_rewritten_variant_field_does_no_harm) {
    make(0x0a, 10);
    set_ecn(frame_, kEcnCe);
    frame_.keep_emitted_header();
    header_at<Bth>(frame_, frame_.bth_offset)->resv8a = 0x80;
    header_at<UdpHeader>(frame_, frame_.l4_offset)->checksum = 0x1234;
    EXPECT_TRUE(right());
    EXPECT_TRUE(invariants_unchanged(frame_));
}

TEST_P(IcrcOf, a_frame_that_nobody_rewrote_is_unchanged) {
    make(0x0a, 10);
    EXPECT_TRUE(invariants_unchanged(frame_));
    frame_.keep_emitted_header();
    EXPECT_TRUE(invariants_unchanged(frame_));
}

// The elided mode and the computed mode must agree whatever bit of the header is flipped.
TEST_P(IcrcOf, both_modes_agree_for_a_flip_of_every_header_bit) {
    for (const OpcodeInfo* info : testing::all_opcodes()) {
        const Bytes payload = testing::random_payload(*info, 60, prng_);
        Frame original;
        testing::make_frame(original, ipv6(), *info, payload, prng_);
        unsigned harmless = 0;
        for (unsigned bit = 0; bit < 8u * original.header_length; ++bit) {
            frame_ = original;
            frame_.keep_emitted_header();
            frame_.header[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
            const bool elided = invariants_unchanged(frame_);
            ASSERT_EQ(elided, receiver_finds_it_right(frame_, payload, ipv6()))
                << info->name << ", bit " << bit;
            harmless += elided ? 1 : 0;
        }
        // Ethernet; class, label and hop limit or ToS, TTL and checksum; UDP checksum; resv8a.
        EXPECT_EQ(harmless, 112u + (ipv6() ? 36u : 32u) + 16u + 8u) << info->name;
    }
}

TEST_P(IcrcOf, a_received_value_goes_out_as_it_came) {
    make(0x0a, 10);
    Bytes bytes = testing::written(frame_, payload_);
    bytes.back() ^= std::byte{1};
    Frame received;
    ASSERT_EQ(testing::parse(bytes, received), ParseError::kNone);
    EXPECT_EQ(testing::to_hex(testing::written(received, payload_)), testing::to_hex(bytes));
}

TEST_P(IcrcOf, keeping_the_header_of_a_received_frame_is_not_needed) {
    make(0x0a, 10);
    const Bytes bytes = testing::written(frame_, payload_);
    Frame received;
    ASSERT_EQ(testing::parse(bytes, received), ParseError::kNone);
    set_ecn(received, kEcnCe);
    EXPECT_FALSE(received.header_kept);
    EXPECT_TRUE(receiver_finds_it_right(received, payload_, ipv6()));
}

TEST_P(IcrcOf, a_frame_that_does_not_fit_is_not_written) {
    make(0x0a, 10);
    Bytes out(wire_length(frame_) - 1);
    EXPECT_EQ(write_frame(frame_, payload_, out), 0u);
}

}  // namespace
}  // namespace rdmalab::wire
