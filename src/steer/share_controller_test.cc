#include "steer/share_controller.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/prng.h"

namespace rdmalab::steer {
namespace {

PathSignal full_path() {
    PathSignal path;
    path.add(kFullRate);
    return path;
}
PathSignal reduced_path(std::uint32_t rate) {
    PathSignal path;
    path.add(rate);
    return path;
}
std::vector<std::uint32_t> shares(const std::vector<PathSignal>& signals,
                                  std::uint32_t buckets = 64) {
    std::vector<std::uint32_t> result;
    const auto split = decide_split(signals, buckets);
    if (!split) return result;
    for (std::uint32_t path = 0; path < split->paths(); ++path) {
        result.push_back(split->share(path));
    }
    return result;
}
using Shares = std::vector<std::uint32_t>;

TEST(ShareController, a_path_without_flows_leaves_the_shares_alone) {
    EXPECT_EQ(shares({PathSignal{}, full_path()}), Shares{});
    EXPECT_EQ(shares({reduced_path(1000), PathSignal{}}), Shares{});
}

TEST(ShareController, full_rates_everywhere_ask_for_halves) {
    EXPECT_EQ(shares({full_path(), full_path()}), (Shares{32, 32}));
}

TEST(ShareController, the_constrained_path_keeps_three_buckets) {
    EXPECT_EQ(shares({full_path(), reduced_path(5)}), (Shares{61, 3}));
    EXPECT_EQ(shares({reduced_path(kFullRate - 1), full_path()}), (Shares{3, 61}));
}

TEST(ShareController, a_path_with_one_reduced_flow_is_constrained) {
    PathSignal mixed = full_path();
    mixed.add(5000);
    EXPECT_EQ(shares({mixed, full_path()}), (Shares{3, 61}));
    EXPECT_EQ(shares({mixed, reduced_path(5000)}), (Shares{32, 32}));
}

TEST(ShareController, reduced_rates_divide_in_proportion) {
    EXPECT_EQ(shares({reduced_path(3000), reduced_path(1000)}), (Shares{48, 16}));
    EXPECT_EQ(shares({reduced_path(1), reduced_path(1)}), (Shares{32, 32}));
    EXPECT_EQ(shares({reduced_path(1'000'000), reduced_path(1)}), (Shares{61, 3}));
    EXPECT_EQ(shares({reduced_path(1), reduced_path(1'000'000)}), (Shares{3, 61}));
}

// The rule as written down for two paths and 64 buckets, with floating point as the judge.
TEST(ShareController, two_paths_follow_the_rounded_and_clamped_quotient) {
    Prng random(1);
    for (int i = 0; i < 100'000; ++i) {
        const auto a = static_cast<std::uint32_t>(random.below(kFullRate));
        const auto b = static_cast<std::uint32_t>(random.below(kFullRate) >> random.below(20));
        if (a + b == 0) continue;
        const double exact = 64.0 * a / (static_cast<double>(a) + b);
        const auto expected =
            static_cast<std::uint32_t>(std::min(61.0, std::max(3.0, std::floor(exact + 0.5))));
        ASSERT_EQ(shares({reduced_path(a), reduced_path(b)}), (Shares{expected, 64 - expected}))
            << a << " " << b;
    }
}

TEST(ShareController, a_rate_of_zero_on_every_path_still_keeps_the_minimum) {
    const Shares result = shares({reduced_path(0), reduced_path(0)});
    ASSERT_EQ(result.size(), 2u);
    EXPECT_GE(result[0], 3u);
    EXPECT_GE(result[1], 3u);
}

TEST(ShareController, more_paths_generalise) {
    EXPECT_EQ(shares({full_path(), full_path(), full_path(), full_path()}),
              (Shares{16, 16, 16, 16}));
    EXPECT_EQ(shares({reduced_path(9), full_path(), full_path(), reduced_path(9)}),
              (Shares{3, 29, 29, 3}));
    EXPECT_EQ(shares({reduced_path(400), reduced_path(100), reduced_path(200), reduced_path(100)}),
              (Shares{32, 8, 16, 8}));
    // Two paths are lifted to the minimum; the others share the rest.
    EXPECT_EQ(shares({reduced_path(1), reduced_path(1000), reduced_path(1), reduced_path(1000)}),
              (Shares{3, 29, 3, 29}));
}

TEST(ShareController, every_split_is_complete_and_keeps_the_minimum) {
    Prng random(2);
    for (int i = 0; i < 20'000; ++i) {
        const auto paths = static_cast<std::uint32_t>(2 + random.below(15));
        const std::uint32_t buckets = 1u << (4 + random.below(7));
        std::vector<PathSignal> signals;
        for (std::uint32_t path = 0; path < paths; ++path) {
            signals.push_back(random.below(4) == 0
                                  ? full_path()
                                  : reduced_path(static_cast<std::uint32_t>(
                                        random.below(kFullRate) >> random.below(20))));
        }
        std::uint32_t sum = 0;
        for (std::uint32_t share : shares(signals, buckets)) {
            ASSERT_GE(share, minimum_share(buckets)) << paths << " paths, " << buckets;
            sum += share;
        }
        ASSERT_EQ(sum, buckets);
    }
}

TEST(BucketSplit, a_bucket_belongs_to_path_0_when_its_index_is_below_the_share) {
    BucketSplit split = BucketSplit::even(2, 64);
    EXPECT_EQ(split.path_of(31), 0u);
    EXPECT_EQ(split.path_of(32), 1u);
    split.set_end(0, 48);
    EXPECT_EQ(split.share(0), 48u);
    EXPECT_EQ(split.share(1), 16u);
    EXPECT_EQ(split.path_of(47), 0u);
    EXPECT_EQ(split.path_of(48), 1u);
}

TEST(BucketSplit, a_single_owner_leaves_the_others_nothing) {
    const BucketSplit split = BucketSplit::only(1, 3, 64);
    EXPECT_EQ(split.share(0), 0u);
    EXPECT_EQ(split.share(1), 64u);
    EXPECT_EQ(split.share(2), 0u);
    EXPECT_EQ(split.path_of(0), 1u);
}

}  // namespace
}  // namespace rdmalab::steer
