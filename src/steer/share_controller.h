// From congestion signals to shares of the dispatch table: pure integer arithmetic, once per
// control interval.
//
// A *signal* is the rate that congestion control computed for a flow (20-bit fixed point, kFullRate
// = not congested). A flow is the probe of one path; a flow whose path is not known yet is counted
// as pending and has no influence. A flow at exactly kFullRate is "full", any other is "reduced";
// the sum of a path is over its reduced flows.
//
// The law, for N paths and B buckets with a minimum of m buckets (m = 3 B / 64, at least 1):
//
//   1. A path without flows          -> no decision; the shares stay.
//   2. No path has a reduced flow    -> equal shares.
//   3. Some paths have reduced flows, the others have only full ones
//                                    -> m buckets to each path with reduced flows, the rest in
//                                       equal shares to the others.
//   4. Every path has reduced flows  -> in proportion to the sums. A path that would get less than
//                                       m gets m, and the rest is divided among the others in
//                                       proportion. Boundaries between paths are rounded to the
//                                       nearest bucket, halves up.
//
// For N = 2 and B = 64 this is: 3 and 61 in case 3, round(64 s0 / (s0 + s1)) within [3, 61] in
// case 4, 32 in case 2.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "steer/bucket_split.h"

namespace rdmalab::steer {

inline constexpr std::uint32_t kFullRate = 1u << 20;

// What the flows of one path say together.
struct PathSignal {
    std::uint32_t total = 0, full = 0, reduced = 0;
    std::uint64_t sum = 0;  // of the reduced flows
    std::uint64_t average() const { return reduced == 0 ? 0 : sum / reduced; }
    void add(std::uint32_t rate) {
        ++total;
        if (rate == kFullRate) {
            ++full;
        } else {
            ++reduced;
            sum += rate;
        }
    }
    bool operator==(const PathSignal&) const = default;
};

struct Signals {
    std::array<PathSignal, kPathMax> paths{};
    std::uint32_t pending_map = 0;
};

std::uint32_t minimum_share(std::uint32_t buckets);

// The split that `signals` (one per path) ask for; nothing in case 1.
std::optional<BucketSplit> decide_split(std::span<const PathSignal> signals, std::uint32_t buckets);

}  // namespace rdmalab::steer
