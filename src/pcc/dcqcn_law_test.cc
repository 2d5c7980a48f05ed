// DCQCN against its published laws (Zhu et al., SIGCOMM 2015, section 4): the same written down
// again in floating point, event by event, and the values that can be computed by hand.
#include "pcc/dcqcn_law.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/prng.h"

namespace rdmalab::pcc {
namespace {

constexpr std::uint64_t kLineMbps = 100'000;
constexpr double kMax = DCQCN_RATE_MAX;

struct Flow {
    dcqcn_parameters laws = DCQCN_DEFAULTS;
    dcqcn_state state{};
    void advance(std::uint32_t now) { dcqcn_advance(&state, &laws, kLineMbps, now); }
    void cnp(std::uint32_t now) {
        advance(now);
        dcqcn_cnp(&state, &laws, kLineMbps, now);
    }
    void sent(std::uint32_t now, std::uint32_t bytes) {
        advance(now);
        dcqcn_sent(&state, &laws, kLineMbps, bytes);
    }
    double alpha() const { return state.alpha / double{DCQCN_ALPHA_ONE}; }
};

// The paper, in real numbers and with a step of time for each period.
struct Model {
    dcqcn_parameters laws = DCQCN_DEFAULTS;
    double current = kMax, target = kMax, alpha = 0;
    double alpha_at = 0, increase_at = 0, cut_at = -1e18, bytes = 0;
    int timers = 0, counters = 0;
    bool limited = false, seen = false;

    double part(double mbps) const { return std::max(1.0, mbps * kMax / kLineMbps); }
    void increase() {
        const int most = std::max(timers, counters), least = std::min(timers, counters);
        const int f = static_cast<int>(laws.threshold);
        if (most > f) target += least > f ? (least - f) * part(laws.hai_rate) : part(laws.ai_rate);
        target = std::min(target, kMax);
        current = (current + target) / 2;
        if (current >= kMax - 1) {
            limited = false;
            current = target = kMax;
        }
    }
    void advance(double us) {
        if (!limited) return;
        while (us - alpha_at >= laws.alpha_period_us) {
            alpha_at += laws.alpha_period_us;
            alpha = alpha * laws.g / 1024 + (seen ? 1 - laws.g / 1024.0 : 0);
            seen = false;
        }
        while (limited && us - increase_at >= laws.time_reset_us) {
            increase_at += laws.time_reset_us;
            ++timers;
            increase();
        }
    }
    void cnp(double us) {
        advance(us);
        if (!limited) {
            limited = true;
            alpha = laws.initial_alpha / 1024.0;
            alpha_at = us;
            cut_at = -1e18;
        }
        seen = true;
        if (us - cut_at >= laws.monitor_period_us) {
            target = current;
            current = std::max({current * (1 - alpha / 2), current * laws.min_dec_fac / 100.0,
                                part(laws.min_rate)});
            cut_at = us;
        }
        increase_at = us;
        timers = counters = 0;
        bytes = 0;
    }
    void sent(double us, double count) {
        advance(us);
        if (!limited) return;
        bytes += count;
        while (limited && bytes >= laws.byte_reset) {
            bytes -= laws.byte_reset;
            ++counters;
            increase();
        }
    }
};

TEST(DcqcnLaw, a_new_flow_has_line_rate_and_keeps_it) {
    Flow flow;
    flow.advance(1'000);
    EXPECT_EQ(flow.state.current, DCQCN_RATE_MAX);
    flow.sent(2'000, 1 << 30);
    EXPECT_EQ(flow.state.current, DCQCN_RATE_MAX);
    EXPECT_FALSE(flow.state.is_limited);
}

TEST(DcqcnLaw, the_first_cnp_cuts_by_half_of_the_initial_alpha) {
    Flow flow;
    flow.cnp(1'000'000);
    EXPECT_EQ(flow.state.target, DCQCN_RATE_MAX);
    EXPECT_EQ(flow.state.current, DCQCN_RATE_MAX - (DCQCN_RATE_MAX / 2 / 1024 * 1023));
}

TEST(DcqcnLaw, a_cut_leaves_at_least_half) {
    Flow flow;
    flow.laws.gd = 10;  // alpha itself
    flow.cnp(0);
    EXPECT_EQ(flow.state.current, DCQCN_RATE_MAX / 2);
}

TEST(DcqcnLaw, the_rate_on_the_first_cnp_can_be_set) {
    Flow flow;
    flow.laws.rate_on_first_cnp = 10'000;
    flow.cnp(0);
    EXPECT_NEAR(flow.state.current, kMax / 10 / 2, 100);
}

TEST(DcqcnLaw, cnps_within_the_monitor_period_cut_once) {
    Flow flow;
    flow.cnp(10'000);
    const std::uint32_t after = flow.state.current;
    flow.cnp(11'000);
    flow.cnp(13'999);
    EXPECT_EQ(flow.state.current, after);
    flow.cnp(14'000);
    EXPECT_LT(flow.state.current, after);
}

TEST(DcqcnLaw, alpha_decays_by_g_in_each_period_without_a_cnp) {
    Flow flow;
    flow.laws.initial_alpha = 512;
    flow.laws.time_reset_us = 0;
    flow.cnp(0);
    flow.advance(1'000);
    EXPECT_NEAR(flow.alpha(), 0.5 * 1019 / 1024 + 5.0 / 1024, 1e-5) << "one with a CNP";
    const double before = flow.alpha();
    flow.advance(101'000);
    EXPECT_NEAR(flow.alpha(), before * std::pow(1019.0 / 1024, 100), 1e-4);
    flow.advance(100'000'000);
    EXPECT_EQ(flow.state.alpha, 0u);
}

TEST(DcqcnLaw, alpha_approaches_one_when_every_period_has_a_cnp) {
    Flow flow;
    flow.laws.initial_alpha = 1;
    for (std::uint32_t us = 0; us < 3'000; ++us) flow.cnp(us * 1'000);
    EXPECT_NEAR(flow.alpha(), 1.0, 0.01);
}

TEST(DcqcnLaw, fast_recovery_halves_the_distance_to_the_target) {
    Flow flow;
    flow.laws.threshold = 5;
    flow.cnp(0);
    double distance = kMax - flow.state.current;
    for (std::uint32_t event = 1; event <= 5; ++event) {
        flow.advance(event * 300'000);
        EXPECT_NEAR(kMax - flow.state.current, distance / 2, 2) << "event " << event;
        EXPECT_EQ(flow.state.target, DCQCN_RATE_MAX);
        distance = kMax - flow.state.current;
    }
}

TEST(DcqcnLaw, additive_increase_follows_on_one_clock_and_hyper_increase_on_both) {
    Flow flow;
    flow.laws.initial_alpha = 1;
    flow.laws.rate_on_first_cnp = 1'000;
    flow.laws.byte_reset = 32'767;
    flow.cnp(0);
    const std::uint32_t target = flow.state.target;
    flow.advance(300'000);
    EXPECT_EQ(flow.state.target, target) << "the first event recovers";
    flow.advance(600'000);
    EXPECT_EQ(flow.state.target, target + 52) << "5 Mb/s of 100 Gb/s";
    flow.sent(600'001, 32'767);
    EXPECT_EQ(flow.state.target, target + 2 * 52);
    flow.sent(600'002, 32'767);
    EXPECT_EQ(flow.state.target, target + 2 * 52 + 524) << "both beyond the threshold";
    flow.advance(900'000);
    EXPECT_EQ(flow.state.target, target + 2 * 52 + 2 * 524);
    flow.sent(900'001, 32'767);
    EXPECT_EQ(flow.state.target, target + 2 * 52 + 4 * 524) << "twice beyond it";
}

TEST(DcqcnLaw, the_rate_never_falls_below_the_minimum) {
    Flow flow;
    flow.laws.min_rate = 10;
    for (std::uint32_t i = 0; i < 10'000; ++i) flow.cnp(i * 4'000);
    EXPECT_EQ(flow.state.current, dcqcn_part(10, kLineMbps));
}

TEST(DcqcnLaw, a_flow_left_alone_comes_back_to_line_rate_and_starts_anew) {
    Flow flow;
    for (std::uint32_t i = 0; i < 100; ++i) flow.cnp(i * 4'000);
    std::uint32_t now = 400'000;
    for (; flow.state.is_limited && now < 4'000'000'000; now += 10'000) flow.sent(now, 65'536);
    EXPECT_FALSE(flow.state.is_limited);
    EXPECT_EQ(flow.state.current, DCQCN_RATE_MAX);
    flow.cnp(now);
    EXPECT_NEAR(flow.state.current, kMax / 2, 1'024) << "with the initial alpha again";
}

TEST(DcqcnLaw, a_clock_that_wraps_does_not_matter) {
    Flow early, late;
    const std::uint32_t shift = 0xffff'ff00;
    for (std::uint32_t i = 0; i < 200; ++i) {
        early.cnp(i * 50'000);
        late.cnp(i * 50'000 + shift);
        early.sent(i * 50'000 + 20'000, 9'000);
        late.sent(i * 50'000 + 20'000 + shift, 9'000);
        ASSERT_EQ(early.state.current, late.state.current) << i;
    }
}

// Random streams of CNPs and packets: the integers stay within a percent of the real numbers.
TEST(DcqcnLaw, integers_follow_the_model) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        Prng prng(seed);
        Flow flow;
        Model model;
        if (seed % 2 == 0) {  // as in the paper
            flow.laws = {1020, 55, 1024, 0, 50, 10, 11, 50, 55, 10'000'000, 5, 40, 400};
            model.laws = flow.laws;
        } else if (seed % 4 == 1) {
            flow.laws.byte_reset = model.laws.byte_reset = 32'767;
        }
        std::uint32_t us = 0;
        for (int step = 0; step < 3'000; ++step) {
            us += static_cast<std::uint32_t>(1 + prng.below(40));
            if (prng.chance(0.03)) {
                flow.cnp(us * 1'000);
                model.cnp(us);
            } else {
                const auto bytes = static_cast<std::uint32_t>(prng.below(66'000));
                flow.sent(us * 1'000, bytes);
                model.sent(us, bytes);
            }
            ASSERT_NEAR(flow.state.current / model.current, 1.0, 0.02)
                << "seed " << seed << " step " << step;
        }
    }
}

}  // namespace
}  // namespace rdmalab::pcc
