#include "steer/flow_rates.h"

#include <gtest/gtest.h>

namespace rdmalab::steer {
namespace {

std::optional<std::uint32_t> by_parity(Qpn qpn) { return qpn.value % 2; }
std::optional<std::uint32_t> nobody(Qpn) { return std::nullopt; }

TEST(FlowRates, the_first_interval_is_the_average_and_later_ones_weigh_an_eighth) {
    FlowRates rates;
    rates.report(Qpn{0x10}, 800);
    rates.report(Qpn{0x10}, 1200);
    EXPECT_FALSE(rates.flows()[0].average);
    rates.close_interval();
    EXPECT_EQ(rates.flows()[0].average, 1000u);
    rates.report(Qpn{0x10}, 1800);
    rates.close_interval();
    EXPECT_EQ(rates.flows()[0].average, 1100u);
    EXPECT_EQ(rates.flows()[0].last, 1800u);
    EXPECT_EQ(rates.flows()[0].updates, 3u);
    EXPECT_EQ(rates.received(), 3u);
}

TEST(FlowRates, the_average_rounds_by_half) {
    EXPECT_EQ(smooth(1000, 1003), 1000u);
    EXPECT_EQ(smooth(1000, 1004), 1001u);
    EXPECT_EQ(smooth(1000, 996), 1000u);
    EXPECT_EQ(smooth(1000, 995), 999u);
    EXPECT_EQ(smooth(kFullRate, kFullRate), kFullRate);
}

TEST(FlowRates, a_silent_flow_repeats_its_latest_rate) {
    FlowRates rates;
    rates.report(Qpn{2}, 8000);
    rates.close_interval();
    rates.report(Qpn{2}, 1000);
    rates.report(Qpn{2}, 0);
    rates.close_interval();  // mean 500
    EXPECT_EQ(rates.flows()[0].average, 7063u);
    rates.close_interval();  // the latest report: 0
    EXPECT_EQ(rates.flows()[0].average, 6180u);
}

TEST(FlowRates, signals_are_per_path_and_full_means_exactly_full) {
    FlowRates rates;
    rates.report(Qpn{2}, kFullRate);
    rates.report(Qpn{4}, kFullRate - 1);
    rates.report(Qpn{3}, 500);
    rates.report(Qpn{5}, 700);
    rates.close_interval();
    const Signals signals = rates.signals(by_parity);
    EXPECT_EQ(signals.paths[0].total, 2u);
    EXPECT_EQ(signals.paths[0].full, 1u);
    EXPECT_EQ(signals.paths[0].sum, kFullRate - 1);
    EXPECT_EQ(signals.paths[1].reduced, 2u);
    EXPECT_EQ(signals.paths[1].average(), 600u);
    EXPECT_EQ(signals.pending_map, 0u);
}

TEST(FlowRates, flows_without_a_path_are_pending_and_count_for_no_path) {
    FlowRates rates;
    rates.report(Qpn{2}, 500);
    rates.report(Qpn{3}, 500);
    rates.close_interval();
    const Signals signals = rates.signals(nobody);
    EXPECT_EQ(signals.pending_map, 2u);
    EXPECT_EQ(signals.paths[0], PathSignal{});
}

TEST(FlowRates, a_forgotten_flow_starts_anew) {
    FlowRates rates;
    rates.report(Qpn{2}, 500);
    rates.close_interval();
    rates.forget(Qpn{2});
    EXPECT_TRUE(rates.flows().empty());
    rates.report(Qpn{2}, kFullRate);
    rates.close_interval();
    EXPECT_EQ(rates.flows()[0].average, kFullRate);
}

TEST(FlowRates, a_full_table_drops_the_flow_that_was_silent_longest) {
    FlowRates rates;
    for (std::uint32_t i = 0; i < kRateFlowMax; ++i) {
        rates.report(Qpn{i}, kFullRate);  // full flows do not die of silence
        rates.close_interval();
    }
    rates.report(Qpn{0}, kFullRate);
    rates.report(Qpn{1000}, 1);
    EXPECT_EQ(rates.flows().size(), kRateFlowMax);
    for (const FlowRate& flow : rates.flows()) EXPECT_NE(flow.qpn, Qpn{1});
}

TEST(FlowRates, a_reduced_flow_that_stays_silent_is_dead_but_a_full_one_has_nothing_to_say) {
    FlowRates rates;
    rates.report(Qpn{2}, 500);
    rates.report(Qpn{3}, kFullRate);
    for (std::uint64_t i = 0; i < kSilentIntervalMax; ++i) rates.close_interval();
    EXPECT_EQ(rates.flows().size(), 2u);
    rates.close_interval();
    ASSERT_EQ(rates.flows().size(), 1u);
    EXPECT_EQ(rates.flows()[0].qpn, Qpn{3});
}

TEST(FlowRates, a_rate_above_the_line_rate_counts_as_full) {
    FlowRates rates;
    rates.report(Qpn{2}, kFullRate + 1);
    rates.close_interval();
    EXPECT_EQ(rates.flows()[0].average, kFullRate);
}

}  // namespace
}  // namespace rdmalab::steer
