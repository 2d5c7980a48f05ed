// Distribution of latencies with a bounded relative error, in the manner of HDR histograms: every
// sample is counted, none is stored. Values below 2048 ns have a bucket each; above, each power of
// two is divided into 1024 buckets, so a value read back is wrong by less than 1/2048 of itself.
// Count, minimum, maximum, mean and standard deviation are exact. Histograms of several processes
// merge into what one process would have recorded.
//
// No packaged C or C++ library exists in Debian 12 (only Go and Java ones), so this is our own.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "perftest/json.h"

namespace rdmalab::perftest {

class Histogram {
public:
    Histogram();

    void record(std::int64_t ns) {
        std::uint64_t value = ns < 0 ? 0 : static_cast<std::uint64_t>(ns);
        if (value > kValueMax) value = kValueMax;
        if (count_ == 0) shift_ = static_cast<std::int64_t>(value);
        ++counts_[index_of(value)];
        ++count_;
        std::int64_t distance = static_cast<std::int64_t>(value) - shift_;
        sum_ += distance;
        square_sum_ += static_cast<__int128>(distance) * distance;
        if (value < min_) min_ = value;
        if (value > max_) max_ = value;
    }

    std::uint64_t count() const { return count_; }
    std::uint64_t min_ns() const { return count_ == 0 ? 0 : min_; }
    std::uint64_t max_ns() const { return max_; }
    double mean_ns() const;
    // Of the samples as a whole population: the root of the mean squared distance from the mean.
    double stdev_ns() const;
    // The smallest sample that at least `share` of all samples do not exceed (nearest rank).
    double percentile_ns(double share) const;
    // The middle sample, or the mean of the two in the middle.
    double median_ns() const;

    void merge(const Histogram& other);

    Json to_json() const;
    static Result<Histogram> from_json(const Json& json);

    static constexpr std::uint64_t kValueMax = (1ull << 42) - 1;  // 73 minutes

private:
    static constexpr unsigned kSubBits = 11;  // 2048 values one by one

    static std::size_t index_of(std::uint64_t value) {
        if (value < (1u << kSubBits)) return value;
        unsigned exponent = 63 - static_cast<unsigned>(__builtin_clzll(value)) - (kSubBits - 1);
        return (static_cast<std::size_t>(exponent) << (kSubBits - 1)) + (value >> exponent);
    }
    static double value_of(std::size_t index);
    double value_at_rank(std::uint64_t rank) const;

    std::vector<std::uint64_t> counts_;
    std::uint64_t count_ = 0;
    std::uint64_t min_ = UINT64_MAX, max_ = 0;
    // Sums of distances from the first sample: no digits are lost to a large common part.
    std::int64_t shift_ = 0;
    __int128 sum_ = 0, square_sum_ = 0;
};

}  // namespace rdmalab::perftest
