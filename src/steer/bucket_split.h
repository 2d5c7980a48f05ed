// Which path owns which bucket of the dispatch table. Buckets stand in one row and every path owns
// one run of it, path 0 the first: with two paths, bucket i is path 0's exactly if i is less than
// path 0's share. So a change of shares moves only the buckets at the boundaries.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>

namespace rdmalab::steer {

inline constexpr std::uint32_t kPathMin = 2, kPathMax = 16;
inline constexpr std::uint32_t kBucketMax = 1024;
inline constexpr std::uint32_t kDefaultBuckets = 64;

class BucketSplit {
public:
    BucketSplit() = default;
    // All buckets to path 0; set_end moves the boundaries.
    BucketSplit(std::uint32_t paths, std::uint32_t buckets) : paths_(paths), buckets_(buckets) {
        assert(paths >= 1 && paths <= kPathMax && buckets <= kBucketMax);
        ends_.fill(buckets);
    }
    // As even as it goes: 32:32; 11:11:10 of 32.
    static BucketSplit even(std::uint32_t paths, std::uint32_t buckets) {
        BucketSplit split(paths, buckets);
        for (std::uint32_t path = 0; path < paths; ++path) {
            split.ends_[path] = (buckets * (path + 1) + paths - 1) / paths;
        }
        return split;
    }
    // Every bucket to one path.
    static BucketSplit only(std::uint32_t path, std::uint32_t paths, std::uint32_t buckets) {
        BucketSplit split(paths, buckets);
        for (std::uint32_t before = 0; before < path; ++before) split.ends_[before] = 0;
        return split;
    }

    std::uint32_t paths() const { return paths_; }
    std::uint32_t buckets() const { return buckets_; }
    // Path `path` ends before this bucket.
    void set_end(std::uint32_t path, std::uint32_t bucket) { ends_[path] = bucket; }
    std::uint32_t end(std::uint32_t path) const { return ends_[path]; }
    std::uint32_t begin(std::uint32_t path) const { return path == 0 ? 0 : ends_[path - 1]; }
    std::uint32_t share(std::uint32_t path) const { return end(path) - begin(path); }
    std::uint32_t path_of(std::uint32_t bucket) const {
        std::uint32_t path = 0;
        while (path + 1 < paths_ && bucket >= ends_[path]) ++path;
        return path;
    }
    bool operator==(const BucketSplit&) const = default;

private:
    std::uint32_t paths_ = 0, buckets_ = 0;
    std::array<std::uint32_t, kPathMax> ends_{};
};

}  // namespace rdmalab::steer
