#include "base/link_speed.h"

#include <gtest/gtest.h>

#include <string>

namespace rdmalab {
namespace {

TEST(LinkSpeed, a_rate_is_carried_by_the_slowest_link_that_can) {
    EXPECT_STREQ(link_speed_for(10 * link::kGiga).text, "10 Gb/sec (1X QDR)");
    EXPECT_STREQ(link_speed_for(10 * link::kGiga + 1).text, "25 Gb/sec (1X EDR)");
    EXPECT_STREQ(link_speed_for(1).text, "2.5 Gb/sec (1X SDR)");
    EXPECT_STREQ(link_speed_for(0).text, "100 Gb/sec (4X EDR)");
    EXPECT_STREQ(link_speed_for(900 * link::kGiga).text, "400 Gb/sec (4X NDR)");
}

TEST(LinkSpeed, speeds_are_in_order) {
    std::uint64_t before = 0;
    for (const LinkSpeed& speed : link::kSpeeds) {
        EXPECT_GT(speed.bits_per_second, before);
        before = speed.bits_per_second;
    }
}

}  // namespace
}  // namespace rdmalab
