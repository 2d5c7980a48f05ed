#include "card/host/quantity.h"

#include <gtest/gtest.h>

namespace rdmalab::card::host {
namespace {

TEST(Quantity, rates_have_decimal_units) {
    EXPECT_EQ(parse_rate("10Gbit")->bits_per_second, 10'000'000'000u);
    EXPECT_EQ(parse_rate("100Mbit")->bits_per_second, 100'000'000u);
    EXPECT_EQ(parse_rate("2.5Gbit")->bits_per_second, 2'500'000'000u);
    EXPECT_EQ(parse_rate("64Kbit")->bits_per_second, 64'000u);
    EXPECT_EQ(parse_rate("9600bit")->bits_per_second, 9'600u);
    EXPECT_EQ(parse_rate("1Tbit")->bits_per_second, 1'000'000'000'000u);
}

TEST(Quantity, zero_rate_is_not_limited_and_needs_no_unit) {
    EXPECT_TRUE(parse_rate("0")->is_unlimited());
    EXPECT_TRUE(parse_rate("0Gbit")->is_unlimited());
}

TEST(Quantity, durations_have_units_from_ns_to_s) {
    EXPECT_EQ(parse_duration("800ns")->ns, 800);
    EXPECT_EQ(parse_duration("5us")->ns, 5'000);
    EXPECT_EQ(parse_duration("1ms")->ns, 1'000'000);
    EXPECT_EQ(parse_duration("1.5ms")->ns, 1'500'000);
    EXPECT_EQ(parse_duration("2s")->ns, 2'000'000'000);
    EXPECT_EQ(parse_duration("0")->ns, 0);
}

TEST(Quantity, probabilities_are_fractions_or_percent) {
    EXPECT_DOUBLE_EQ(*parse_probability("1%"), 0.01);
    EXPECT_DOUBLE_EQ(*parse_probability("0.01"), 0.01);
    EXPECT_DOUBLE_EQ(*parse_probability("0.5%"), 0.005);
    EXPECT_DOUBLE_EQ(*parse_probability("100%"), 1.0);
    EXPECT_DOUBLE_EQ(*parse_probability("1"), 1.0);
    EXPECT_DOUBLE_EQ(*parse_probability("0"), 0.0);
}

TEST(Quantity, a_wrong_probability_names_what_was_expected_and_found) {
    EXPECT_EQ(parse_probability("1x%").error().text,
              "expected a probability from 0 to 1 such as \"1%\" or \"0.01\", found \"1x%\"");
    for (const char* bad : {"", "%", "101%", "1.01", "-1%", "1 %", "1%%", "nan", "inf", "1e-3",
                            "0x1", "0,5%", "1.2.3%", "1us", "."}) {
        EXPECT_FALSE(parse_probability(bad).ok()) << bad;
    }
}

TEST(Quantity, a_wrong_rate_names_what_was_expected_and_found) {
    EXPECT_EQ(parse_rate("10Gb").error().text,
              "expected a rate such as \"25Gbit\" or \"100Mbit\" (0: not limited), found \"10Gb\"");
    for (const char* bad : {"", "10", "Gbit", "10gbit", "-1Gbit", "10 Gbit", "0.1bit", "9999Tbit",
                            "10Gbit/s", "1e9bit"}) {
        EXPECT_FALSE(parse_rate(bad).ok()) << bad;
    }
}

TEST(Quantity, a_wrong_duration_names_what_was_expected_and_found) {
    EXPECT_EQ(parse_duration("10 us").error().text,
              "expected a duration such as \"10us\" or \"1.5ms\", up to one hour, found \"10 us\"");
    for (const char* bad : {"", "10", "us", "-1us", "10usec", "3601s", "1h", "1.0.0us"}) {
        EXPECT_FALSE(parse_duration(bad).ok()) << bad;
    }
}

}  // namespace
}  // namespace rdmalab::card::host
