#include "perftest/histogram.h"

#include <algorithm>
#include <cmath>

namespace rdmalab::perftest {

namespace {

// 128-bit integers travel as two halves.
Json halves(__int128 value) {
    return {static_cast<std::int64_t>(value >> 64), static_cast<std::uint64_t>(value)};
}

__int128 joined(const Json& json) {
    auto high = static_cast<unsigned __int128>(json.at(0).get<std::int64_t>()) << 64;
    return static_cast<__int128>(high | json.at(1).get<std::uint64_t>());
}

}  // namespace

Histogram::Histogram() : counts_(index_of(kValueMax) + 1) {}

double Histogram::value_of(std::size_t index) {
    if (index < (1u << kSubBits)) return static_cast<double>(index);
    unsigned exponent = static_cast<unsigned>(index >> (kSubBits - 1)) - 1;
    std::size_t base = static_cast<std::size_t>(exponent) << (kSubBits - 1);
    auto low = static_cast<double>((index - base) << exponent);
    // The middle of the bucket.
    return low + static_cast<double>((1ull << exponent) - 1) / 2;
}

double Histogram::mean_ns() const {
    if (count_ == 0) return NAN;
    return static_cast<double>(static_cast<long double>(sum_) / count_ + shift_);
}

double Histogram::stdev_ns() const {
    if (count_ == 0) return NAN;
    long double mean = static_cast<long double>(sum_) / count_;
    long double variance = static_cast<long double>(square_sum_) / count_ - mean * mean;
    return std::sqrt(static_cast<double>(std::max(variance, 0.0L)));
}

double Histogram::value_at_rank(std::uint64_t rank) const {
    std::uint64_t seen = 0;
    for (std::size_t index = 0; index < counts_.size(); ++index) {
        seen += counts_[index];
        if (seen >= rank) {
            return std::clamp(value_of(index), static_cast<double>(min_),
                              static_cast<double>(max_));
        }
    }
    return static_cast<double>(max_);
}

double Histogram::percentile_ns(double share) const {
    if (count_ == 0) return NAN;
    auto rank =
        static_cast<std::uint64_t>(std::ceil(static_cast<long double>(share) * count_ - 1e-9L));
    return value_at_rank(std::clamp<std::uint64_t>(rank, 1, count_));
}

double Histogram::median_ns() const {
    if (count_ == 0) return NAN;
    return (value_at_rank((count_ + 1) / 2) + value_at_rank(count_ / 2 + 1)) / 2;
}

void Histogram::merge(const Histogram& other) {
    if (other.count_ == 0) return;
    if (count_ == 0) shift_ = other.shift_;
    for (std::size_t index = 0; index < counts_.size(); ++index) {
        counts_[index] += other.counts_[index];
    }
    // Distances from the other's first sample become distances from ours.
    __int128 move = other.shift_ - shift_;
    __int128 count = other.count_;
    square_sum_ += other.square_sum_ + 2 * move * other.sum_ + count * move * move;
    sum_ += other.sum_ + count * move;
    count_ += other.count_;
    min_ = std::min(min_, other.min_);
    max_ = std::max(max_, other.max_);
}

Json Histogram::to_json() const {
    Json buckets = Json::array();
    for (std::size_t index = 0; index < counts_.size(); ++index) {
        if (counts_[index] > 0) buckets.push_back({index, counts_[index]});
    }
    return {{"count", count_},
            {"min", min_},
            {"max", max_},
            {"shift", shift_},
            {"sum", halves(sum_)},
            {"squareSum", halves(square_sum_)},
            {"buckets", std::move(buckets)}};
}

Result<Histogram> Histogram::from_json(const Json& json) {
    Histogram out;
    try {
        out.count_ = json.at("count").get<std::uint64_t>();
        out.min_ = json.at("min").get<std::uint64_t>();
        out.max_ = json.at("max").get<std::uint64_t>();
        out.shift_ = json.at("shift").get<std::int64_t>();
        out.sum_ = joined(json.at("sum"));
        out.square_sum_ = joined(json.at("squareSum"));
        std::uint64_t total = 0;
        for (const Json& bucket : json.at("buckets")) {
            auto count = bucket.at(1).get<std::uint64_t>();
            out.counts_.at(bucket.at(0).get<std::size_t>()) += count;
            total += count;
        }
        bool sound = total == out.count_ && (total == 0 || out.min_ <= out.max_) &&
                     out.max_ <= kValueMax && out.shift_ >= 0 &&
                     out.shift_ <= static_cast<std::int64_t>(kValueMax);
        if (!sound) return Error{EPROTO, "a histogram whose counts do not add up"};
    } catch (const std::exception& error) {
        return Error{EPROTO, std::string("a histogram that cannot be read: ") + error.what()};
    }
    return out;
}

}  // namespace rdmalab::perftest
