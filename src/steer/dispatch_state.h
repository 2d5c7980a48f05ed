// Which path each entry of the dispatch table points to, as far as it is proven: an entry's record
// changes when its update has completed with success, the applied split when all have.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "steer/bucket_split.h"

namespace rdmalab::steer {

// Changes entries of a dispatch table that carries traffic.
class BucketUpdater {
public:
    virtual ~BucketUpdater() = default;
    // Points one entry to another path; success only after exactly one successful completion.
    virtual Status update_bucket(std::uint32_t bucket, std::uint32_t path) = 0;
    // Lets the rules that updates have replaced go.
    virtual void drain() = 0;
};

struct ApplyResult {
    std::uint32_t updates = 0;                   // entries changed
    std::optional<std::uint32_t> failed_bucket;  // the walk stopped here; `error` says why
    Error error;
    bool changed = false;  // another split is applied now
};

class DispatchState {
public:
    // The entries were installed like this.
    explicit DispatchState(const BucketSplit& installed);

    // Updates the entries that `wanted` gives to another path, lowest bucket first, and stops at
    // the first failure; the next call goes on from what is recorded. A split of another table is
    // refused with EINVAL and nothing is touched.
    ApplyResult apply(const BucketSplit& wanted, BucketUpdater& updater);

    const BucketSplit& applied() const { return applied_; }
    std::uint32_t recorded_path(std::uint32_t bucket) const { return paths_[bucket]; }

private:
    BucketSplit applied_;
    std::vector<std::uint32_t> paths_;  // by bucket
    bool complete_ = true;              // the records agree with `applied_`
};

}  // namespace rdmalab::steer
