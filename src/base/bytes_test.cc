#include "base/bytes.h"

#include <gtest/gtest.h>

namespace rdmalab {
namespace {

TEST(BigEndian, stores_most_significant_byte_first) {
    const Be24 value = 0x01'0203u;
    const auto bytes = std::bit_cast<std::array<std::uint8_t, 3>>(value);
    EXPECT_EQ(bytes, (std::array<std::uint8_t, 3>{1, 2, 3}));
    EXPECT_EQ(value, 0x01'0203u);
}

TEST(BigEndian, cuts_what_does_not_fit) { EXPECT_EQ(Be24(0xff00'0001u), 1u); }

TEST(Bytes, round_up_to_a_multiple) {
    EXPECT_EQ(round_up(0, 64), 0u);
    EXPECT_EQ(round_up(65, 64), 128u);
}

}  // namespace
}  // namespace rdmalab
