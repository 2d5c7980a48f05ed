#include "steer/share_controller.h"

#include <algorithm>

namespace rdmalab::steer {

namespace {

// Divides all buckets in proportion to `weights`; `floors` are buckets that a path gets besides.
BucketSplit divide(std::span<const std::uint64_t> weights, std::span<const std::uint32_t> floors,
                   std::uint32_t buckets) {
    std::uint64_t total = 0;
    std::uint32_t free_buckets = buckets;
    for (std::size_t path = 0; path < weights.size(); ++path) {
        total += weights[path];
        free_buckets -= floors[path];
    }
    BucketSplit split(static_cast<std::uint32_t>(weights.size()), buckets);
    std::uint64_t sum = 0;
    std::uint32_t fixed = 0;
    for (std::uint32_t path = 0; path < weights.size(); ++path) {
        sum += weights[path];
        fixed += floors[path];
        // Nearest, halves up, of free_buckets * sum / total.
        std::uint64_t rounded = total == 0 ? 0 : (2 * free_buckets * sum + total) / (2 * total);
        split.set_end(path, fixed + static_cast<std::uint32_t>(rounded));
    }
    return split;
}

BucketSplit divide_in_proportion(std::span<const PathSignal> signals, std::uint32_t buckets) {
    const std::uint32_t minimum = minimum_share(buckets);
    std::array<std::uint64_t, kPathMax> weights{};
    std::array<std::uint32_t, kPathMax> floors{};
    std::uint64_t total = 0;
    for (std::size_t path = 0; path < signals.size(); ++path) {
        weights[path] = signals[path].sum;
        total += weights[path];
    }
    if (total == 0) return BucketSplit::even(static_cast<std::uint32_t>(signals.size()), buckets);
    std::uint32_t free_buckets = buckets;
    // Each turn fixes at least one path at the minimum, or is the last.
    for (bool again = true; again;) {
        again = false;
        for (std::size_t path = 0; path < signals.size(); ++path) {
            if (floors[path] != 0 || weights[path] * free_buckets >= minimum * total) continue;
            floors[path] = minimum;
            free_buckets -= minimum;
            total -= weights[path];
            weights[path] = 0;
            again = true;
        }
    }
    return divide(std::span(weights).first(signals.size()), std::span(floors).first(signals.size()),
                  buckets);
}

}  // namespace

std::uint32_t minimum_share(std::uint32_t buckets) {
    return std::max<std::uint32_t>(1, 3 * buckets / kDefaultBuckets);
}

std::optional<BucketSplit> decide_split(std::span<const PathSignal> signals,
                                        std::uint32_t buckets) {
    const auto paths = static_cast<std::uint32_t>(signals.size());
    std::array<std::uint64_t, kPathMax> weights{};
    std::array<std::uint32_t, kPathMax> floors{};
    std::uint32_t constrained = 0;
    for (std::uint32_t path = 0; path < paths; ++path) {
        if (signals[path].total == 0) return std::nullopt;
        const bool is_reduced = signals[path].reduced > 0;
        weights[path] = is_reduced ? 0 : 1;
        floors[path] = is_reduced ? minimum_share(buckets) : 0;
        constrained += is_reduced ? 1 : 0;
    }
    if (constrained == 0) return BucketSplit::even(paths, buckets);
    if (constrained == paths) return divide_in_proportion(signals, buckets);
    return divide(std::span(weights).first(paths), std::span(floors).first(paths), buckets);
}

}  // namespace rdmalab::steer
