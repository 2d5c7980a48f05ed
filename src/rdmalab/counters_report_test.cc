#include "rdmalab/counters_report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rdmalab::launcher {
namespace {

using testing::HasSubstr;
using testing::Not;

Json sample(std::int64_t time_ns, int frames, int bytes, int out_of_sequence, int lost) {
    return Json::parse(fmt::format(R"({{"time_ns":{},
        "ports":{{"p0":{{"tx_frames":{},"tx_bytes":{},"rx_frames":0,"rx_bytes":0,"dropped":2}}}},
        "functions":{{"mlx5_2":{{"tx_frames":{},"tx_bytes":{},"rx_frames":0,"rx_bytes":0,
            "out_of_sequence":{},"vport_tx_frames":9}}}},
        "cables":{{"cable0":{{"a_to_b":{{"frames":{},"bytes":{},"lost":{}}}}}}}}})",
                                   time_ns, frames, bytes, frames, bytes, out_of_sequence, frames,
                                   bytes, lost));
}

TEST(CountersReport, totals_show_ports_cables_and_functions) {
    std::string text = print_counters(sample(0, 1'234, 5'678'901, 0, 7));
    EXPECT_THAT(text, HasSubstr("p0        1,234  5,678,901"));
    EXPECT_THAT(text, HasSubstr("cable0  a_to_b      1,234  5,678,901     7"));
    EXPECT_THAT(text, HasSubstr("mlx5_2      1,234  5,678,901"));
    EXPECT_THAT(text, Not(HasSubstr("events")));
}

TEST(CountersReport, events_are_listed_once_they_are_not_zero) {
    std::string text = print_counters(sample(0, 1, 1, 3, 0));
    EXPECT_THAT(text, HasSubstr("events\n  mlx5_2  out_of_sequence 3\n"));
    EXPECT_THAT(text, Not(HasSubstr("vport_")));
}

TEST(CountersReport, rates_divide_by_the_cards_own_time) {
    std::string text =
        print_rates(sample(0, 0, 0, 0, 0), sample(2'000'000'000, 4'000, 500'000'000, 10, 6));
    EXPECT_THAT(text, HasSubstr("p0      2.000    0.000        2,000            0"));
    EXPECT_THAT(text, HasSubstr("mlx5_2  out_of_sequence 5/s"));
    EXPECT_THAT(text, HasSubstr("cable0 a_to_b  lost 3/s"));
    EXPECT_THAT(text, Not(HasSubstr("dropped"))) << "it did not move";
}

TEST(CountersReport, a_reply_without_a_group_prints_an_empty_table) {
    EXPECT_THAT(print_counters(Json::object()), HasSubstr("ports\n"));
}

}  // namespace
}  // namespace rdmalab::launcher
