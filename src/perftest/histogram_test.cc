#include "perftest/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/prng.h"

namespace rdmalab::perftest {
namespace {

TEST(Histogram, small_samples_are_exact) {
    Histogram histogram;
    for (int ns : {5, 1, 4, 2, 3}) histogram.record(ns);
    EXPECT_EQ(histogram.count(), 5u);
    EXPECT_EQ(histogram.min_ns(), 1u);
    EXPECT_EQ(histogram.max_ns(), 5u);
    EXPECT_DOUBLE_EQ(histogram.mean_ns(), 3.0);
    EXPECT_DOUBLE_EQ(histogram.median_ns(), 3.0);
    EXPECT_DOUBLE_EQ(histogram.stdev_ns(), std::sqrt(2.0));
    EXPECT_DOUBLE_EQ(histogram.percentile_ns(0.99), 5.0);
}

TEST(Histogram, the_median_of_an_even_count_is_between_the_middle_two) {
    Histogram histogram;
    for (int ns : {10, 20, 30, 1000}) histogram.record(ns);
    EXPECT_DOUBLE_EQ(histogram.median_ns(), 25.0);
}

TEST(Histogram, no_sample_is_dropped_not_even_the_worst) {
    Histogram histogram;
    for (int i = 0; i < 999; ++i) histogram.record(2000);
    histogram.record(8'000'000);
    EXPECT_EQ(histogram.max_ns(), 8'000'000u);
    EXPECT_DOUBLE_EQ(histogram.percentile_ns(0.999), 2000.0);
    EXPECT_DOUBLE_EQ(histogram.percentile_ns(1.0), 8'000'000.0);
}

TEST(Histogram, deviations_below_a_microsecond_are_not_lost) {
    Histogram histogram;
    std::vector<double> samples;
    for (int i = 0; i < 90; ++i) {
        histogram.record(5000 + 10 * i);
        samples.push_back(5000 + 10 * i);
    }
    double mean = 0, squares = 0;
    for (double sample : samples) mean += sample / 90;
    for (double sample : samples) squares += (sample - mean) * (sample - mean) / 90;
    EXPECT_NEAR(histogram.stdev_ns(), std::sqrt(squares), 1e-9);
}

TEST(Histogram, percentiles_are_within_a_2048th_of_the_exact_ones) {
    Prng prng(7);
    Histogram histogram;
    std::vector<std::uint64_t> samples;
    for (int i = 0; i < 20'000; ++i) {
        std::uint64_t value = prng.next() >> (24 + prng.below(38));
        histogram.record(static_cast<std::int64_t>(value));
        samples.push_back(std::min(value, Histogram::kValueMax));
    }
    std::sort(samples.begin(), samples.end());
    for (double share : {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
        auto rank = static_cast<std::size_t>(std::ceil(share * 20'000)) - 1;
        auto exact = static_cast<double>(samples[rank]);
        EXPECT_NEAR(histogram.percentile_ns(share), exact, exact / 2048 + 1e-9) << share;
    }
}

TEST(Histogram, merged_is_the_same_as_recorded_together) {
    Prng prng(3);
    Histogram together, parts[3];
    for (int i = 0; i < 3000; ++i) {
        auto value = static_cast<std::int64_t>(1'000'000 + prng.below(1u << (3 + 8 * (i % 3))));
        together.record(value);
        parts[i % 3].record(value);
    }
    Histogram merged;
    for (const Histogram& part : parts) merged.merge(part);
    EXPECT_EQ(merged.count(), together.count());
    EXPECT_EQ(merged.min_ns(), together.min_ns());
    EXPECT_EQ(merged.max_ns(), together.max_ns());
    EXPECT_DOUBLE_EQ(merged.mean_ns(), together.mean_ns());
    EXPECT_NEAR(merged.stdev_ns(), together.stdev_ns(), 1e-6);
    for (double share : {0.1, 0.5, 0.99}) {
        EXPECT_DOUBLE_EQ(merged.percentile_ns(share), together.percentile_ns(share));
    }
}

TEST(Histogram, an_empty_one_has_no_numbers) {
    Histogram histogram, other;
    histogram.merge(other);
    EXPECT_TRUE(std::isnan(histogram.mean_ns()));
    EXPECT_TRUE(std::isnan(histogram.median_ns()));
    EXPECT_EQ(histogram.min_ns(), 0u);
}

TEST(Histogram, it_survives_the_way_through_json) {
    Histogram histogram;
    for (std::int64_t ns : {1ll, 2047ll, 2048ll, 5'000'000'000ll, 1ll << 41}) histogram.record(ns);
    Result<Histogram> back = Histogram::from_json(Json::parse(histogram.to_json().dump()));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->count(), 5u);
    EXPECT_DOUBLE_EQ(back->mean_ns(), histogram.mean_ns());
    EXPECT_DOUBLE_EQ(back->stdev_ns(), histogram.stdev_ns());
    EXPECT_DOUBLE_EQ(back->percentile_ns(0.6), histogram.percentile_ns(0.6));
}

TEST(Histogram, a_forged_one_is_refused) {
    Histogram histogram;
    histogram.record(100);
    for (const char* damage :
         {R"({"count": 2})", R"({"buckets": [[99999999, 1]]})", R"({"buckets": "x"})",
          R"({"min": 200})", R"({"max": 9e18})", R"({"shift": -5})", R"({"sum": []})"}) {
        Json json = histogram.to_json();
        json.update(Json::parse(damage));
        EXPECT_FALSE(Histogram::from_json(json).ok()) << damage;
    }
    EXPECT_FALSE(Histogram::from_json(Json::parse("[]")).ok());
}

}  // namespace
}  // namespace rdmalab::perftest
