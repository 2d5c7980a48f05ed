#include "rdmalab/quantity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "rdmalab/failure.h"

namespace rdmalab::launcher {
namespace {

std::string refusal(const std::function<void()>& call) {
    try {
        call();
    } catch (const Failure& failure) {
        EXPECT_EQ(failure.exit_status(), kExitBadInput);
        return failure.what();
    }
    return "accepted";
}

TEST(Quantity, seconds_may_carry_a_unit_but_are_never_zero) {
    EXPECT_DOUBLE_EQ(parse_seconds("--watch", "2"), 2);
    EXPECT_DOUBLE_EQ(parse_seconds("--watch", "500ms"), 0.5);
    for (const char* text : {"0", "-1", "soon", "2m", ""}) {
        EXPECT_THAT(refusal([&] { parse_seconds("--watch", text); }),
                    testing::StartsWith("--watch: expected a number of seconds"));
    }
}

TEST(Quantity, counts_are_whole_numbers_with_a_lower_limit) {
    EXPECT_EQ(parse_count("--count", "12", 1), 12u);
    for (const char* text : {"0", "-3", "1.5", "x", "", "99999999999999999999"}) {
        EXPECT_EQ(
            refusal([&] { parse_count("--count", text, 1); }),
            std::string("--count: expected a whole number of at least 1, found '") + text + "'");
    }
}

TEST(Quantity, values_are_printed_in_their_largest_unit) {
    EXPECT_EQ(print_rate(25'000'000'000u), "25 Gb/s");
    EXPECT_EQ(print_rate(0), "unlimited");
    EXPECT_EQ(print_duration(1'500), "1.5 us");
    EXPECT_EQ(print_duration(0), "0");
    EXPECT_EQ(print_probability(0.01), "1 %");
}

}  // namespace
}  // namespace rdmalab::launcher
