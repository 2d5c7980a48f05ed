#include "steer/dispatch_state.h"

#include <cerrno>

namespace rdmalab::steer {

DispatchState::DispatchState(const BucketSplit& installed) : applied_(installed) {
    for (std::uint32_t bucket = 0; bucket < installed.buckets(); ++bucket) {
        paths_.push_back(installed.path_of(bucket));
    }
}

ApplyResult DispatchState::apply(const BucketSplit& wanted, BucketUpdater& updater) {
    ApplyResult result;
    if (wanted.buckets() != applied_.buckets() || wanted.paths() != applied_.paths()) {
        result.error = {EINVAL, "the split is for a table of another size"};
        return result;
    }
    if (complete_ && wanted == applied_) return result;
    for (std::uint32_t bucket = 0; bucket < paths_.size(); ++bucket) {
        const std::uint32_t path = wanted.path_of(bucket);
        if (paths_[bucket] == path) continue;
        Status status = updater.update_bucket(bucket, path);
        if (!status.ok()) {
            complete_ = false;
            result.failed_bucket = bucket;
            result.error = status.error();
            return result;
        }
        paths_[bucket] = path;
        ++result.updates;
    }
    updater.drain();
    result.changed = !(wanted == applied_);
    applied_ = wanted;
    complete_ = true;
    return result;
}

}  // namespace rdmalab::steer
