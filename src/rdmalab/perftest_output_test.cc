#include "rdmalab/perftest_output.h"

#include <gtest/gtest.h>

namespace rdmalab::launcher {
namespace {

constexpr char kOutput[] =
    " local address: LID 0000 QPN 0x0102 PSN 0x51d1\n"
    "---------------------------------------------------------------------------------------\n"
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    " 65536      112345           0.00               9.82             0.018731\n"
    "---------------------------------------------------------------------------------------\n";

TEST(PerftestOutput, the_result_line_follows_the_head) {
    auto result = parse_bandwidth(kOutput);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->bytes_per_message, 65'536u);
    EXPECT_EQ(result->messages, 112'345u);
    EXPECT_DOUBLE_EQ(result->gigabits_per_second, 9.82);
    EXPECT_EQ(result->bytes(), 65'536ull * 112'345);
}

TEST(PerftestOutput, a_run_that_failed_has_no_result) {
    EXPECT_FALSE(parse_bandwidth("Couldn't connect to 127.0.0.1:18515\n"));
    EXPECT_FALSE(parse_bandwidth(" #bytes  #iterations  BW peak[Gb/sec]  BW average[Gb/sec]\n"));
}

TEST(PerftestOutput, a_result_in_megabytes_is_not_taken_for_gigabits) {
    EXPECT_FALSE(
        parse_bandwidth(" #bytes #iterations BW peak[MB/sec] BW average[MB/sec]\n"
                        " 65536 100 1.0 1.0 1.0\n"));
}

}  // namespace
}  // namespace rdmalab::launcher
