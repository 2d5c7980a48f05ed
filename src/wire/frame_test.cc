#include "wire/frame.h"

#include <gtest/gtest.h>

#include "wire/testing.h"

namespace rdmalab::wire {
namespace {

TEST(Frame, a_copy_holds_all_that_is_used) {
    Prng prng(2);
    const testing::Bytes payload(12);
    Frame frame;
    testing::make_frame(frame, false, *find_opcode(0x0a), payload, prng);
    frame.add_segment({SpaceId{3}, 40, 0x1000});
    set_ecn(frame, kEcnCe);
    frame.origin = 7;
    const Frame copy = frame;
    EXPECT_EQ(testing::to_hex(copy.header_bytes()),
              testing::to_hex(std::as_const(frame).header_bytes()));
    EXPECT_EQ(0, std::memcmp(copy.emitted_header.data(), frame.emitted_header.data(),
                             frame.header_length));
    EXPECT_EQ(copy.segment_count, 2);
    EXPECT_EQ(copy.segments[1].address, 0x1000u);
    EXPECT_EQ(copy.payload_length, 52u);
    EXPECT_EQ(copy.bth_offset, frame.bth_offset);
    EXPECT_EQ(copy.origin, 7u);
    EXPECT_TRUE(copy.header_kept);
}

TEST(Frame, the_header_is_kept_as_it_was_at_first) {
    Prng prng(2);
    Frame frame;
    testing::make_frame(frame, false, *find_opcode(0x11), {}, prng);
    const std::byte first = frame.header[0];
    frame.keep_emitted_header();
    frame.header[0] ^= std::byte{1};
    frame.keep_emitted_header();
    EXPECT_EQ(frame.emitted_header[0], first);
}

}  // namespace
}  // namespace rdmalab::wire
