#include "steer/sampling.h"

#include <gtest/gtest.h>

namespace rdmalab::steer {
namespace {

using Kind = Sampler::Kind;

Sampler of_intended(double percent) { return make_sampler(selected_percent(percent, 2)); }

TEST(Sampling, the_tutorial_values_are_a_factor_of_two_apart) {
    EXPECT_DOUBLE_EQ(selected_percent(0.025, 2), 0.05);
    EXPECT_EQ(of_intended(0.025), (Sampler{Kind::kRandom, 11}));  // 0.0488 %
    EXPECT_EQ(of_intended(0.05), (Sampler{Kind::kRandom, 10}));   // 0.0977 %
    EXPECT_DOUBLE_EQ(of_intended(0.05).probability(), 2 * of_intended(0.025).probability());
}

TEST(Sampling, percentages_round_down_to_a_power_of_two) {
    EXPECT_EQ(make_sampler(50), (Sampler{Kind::kRandom, 1}));
    EXPECT_EQ(make_sampler(99.9), (Sampler{Kind::kRandom, 1}));
    EXPECT_EQ(make_sampler(49.9), (Sampler{Kind::kRandom, 2}));
    EXPECT_EQ(make_sampler(25), (Sampler{Kind::kRandom, 2}));
    EXPECT_EQ(make_sampler(100.0 / 65536), (Sampler{Kind::kRandom, 16}));
    EXPECT_EQ(make_sampler(1e-9), (Sampler{Kind::kRandom, 16})) << "the full mask is the least";
}

TEST(Sampling, doubling_is_capped_and_the_ends_need_no_sampler) {
    EXPECT_DOUBLE_EQ(selected_percent(60, 2), 100);
    EXPECT_EQ(of_intended(50).kind, Kind::kAlways);
    EXPECT_EQ(of_intended(100).kind, Kind::kAlways);
    EXPECT_EQ(of_intended(0).kind, Kind::kNever);
    EXPECT_DOUBLE_EQ(of_intended(0).probability(), 0);
}

TEST(Sampling, with_more_paths_the_probe_is_a_smaller_part_of_the_traffic) {
    EXPECT_DOUBLE_EQ(selected_percent(0.025, 4), 0.1);
    EXPECT_EQ(make_sampler(selected_percent(0.025, 4)), (Sampler{Kind::kRandom, 10}));
}

TEST(Sampling, the_mask_leaves_bit_0_to_the_random_hash) {
    const Sampler sampler{Kind::kRandom, 10};
    EXPECT_EQ(sampler.mask(false), 0x03ff);
    EXPECT_EQ(sampler.mask(true), 0x07fe);
    EXPECT_EQ((Sampler{Kind::kRandom, 16}.mask(false)), 0xffff);
    EXPECT_EQ((Sampler{Kind::kRandom, 16}.mask(true)), 0xfffe) << "one bit is lost";
}

}  // namespace
}  // namespace rdmalab::steer
