#include <gtest/gtest.h>

#include "base/ids.h"

namespace rdmalab {
namespace {

TEST(Psn, wraps_at_24_bits) {
    EXPECT_EQ((Psn(0xff'ffff) + 1).value(), 0u);
    EXPECT_EQ((Psn(0) - 1).value(), 0xff'ffffu);
    EXPECT_EQ(Psn(0x1ff'ffff).value(), 0xff'ffffu);
}

TEST(Psn, distance_is_signed_and_crosses_the_wrap) {
    EXPECT_EQ(Psn(2).distance_from(Psn(0xff'fffe)), 4);
    EXPECT_EQ(Psn(0xff'fffe).distance_from(Psn(2)), -4);
    EXPECT_EQ(Psn(0x80'0000).distance_from(Psn(0)), 0x80'0000);
    EXPECT_EQ(Psn(0x80'0001).distance_from(Psn(0)), -0x7f'ffff);
}

TEST(Psn, window_membership_crosses_the_wrap) {
    EXPECT_TRUE(Psn(1).in_window(Psn(0xff'ffff), 3));
    EXPECT_FALSE(Psn(2).in_window(Psn(0xff'ffff), 3));
    EXPECT_FALSE(Psn(0).in_window(Psn(0), 0));
}

}  // namespace
}  // namespace rdmalab
