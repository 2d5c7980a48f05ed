#include "perftest/quantity.h"

#include <gtest/gtest.h>

namespace rdmalab::perftest {
namespace {

TEST(Quantity, a_count_is_decimal_digits_within_its_range) {
    EXPECT_EQ(*parse_count("0", 0, 10), 0u);
    EXPECT_EQ(*parse_count("18446744073709551615", 0, UINT64_MAX), UINT64_MAX);
    for (const char* bad : {"", "-1", "+1", " 1", "1 ", "1e3", "0x10", "1.0", "64k", "11",
                            "18446744073709551616", "99999999999999999999999"}) {
        EXPECT_FALSE(parse_count(bad, 0, 10).ok()) << bad;
    }
}

TEST(Quantity, a_wrong_count_says_what_was_expected_and_found) {
    EXPECT_EQ(parse_count("300", 0, 255).error().text,
              "expected a whole number, 0 to 255, found '300'");
}

TEST(Quantity, a_size_takes_suffixes_of_powers_of_1024) {
    const std::pair<const char*, std::uint64_t> good[] = {
        {"0", 0},         {"64k", 65536},   {"64K", 65536},   {"64Ki", 65536},   {"64KiB", 65536},
        {"1M", 1u << 20}, {"1m", 1u << 20}, {"1G", 1u << 30}, {"2g", 1ull << 31}};
    for (auto [text, value] : good) EXPECT_EQ(*parse_size(text, 0, 1ull << 31), value) << text;
    for (const char* bad : {"k", "1kk", "1T", "1kB", "1 k", "-1k", "3G", "17179869184G", "1.5k"}) {
        EXPECT_FALSE(parse_size(bad, 0, 1ull << 31).ok()) << bad;
    }
}

TEST(Quantity, a_decimal_has_no_sign_and_no_exponent) {
    EXPECT_EQ(*parse_decimal("0.5", 0, 10), 0.5);
    EXPECT_EQ(*parse_decimal("10", 0, 10), 10.0);
    for (const char* bad : {"", ".", ".5", "5.", "1.2.3", "1e1", "-1", "inf", "nan", "0x1", "11"}) {
        EXPECT_FALSE(parse_decimal(bad, 0, 10).ok()) << bad;
    }
}

TEST(Quantity, cores_are_lists_and_ranges_each_once) {
    EXPECT_EQ(*parse_cores("5"), std::vector<int>({5}));
    EXPECT_EQ(*parse_cores("5,7"), std::vector<int>({5, 7}));
    EXPECT_EQ(*parse_cores("5-7,1"), std::vector<int>({5, 6, 7, 1}));
    for (const char* bad : {"", ",", "5,", "-", "0-", "-3", "7-5", "1,1", "1-3,2", "a", "99999"}) {
        EXPECT_FALSE(parse_cores(bad).ok()) << bad;
    }
}

TEST(Quantity, the_nearest_word_is_near_or_none) {
    EXPECT_EQ(nearest("msgsize", {"msgSize", "metric"}), "msgSize");
    EXPECT_EQ(nearest("zzzzz", {"msgSize", "metric"}), "");
}

}  // namespace
}  // namespace rdmalab::perftest
