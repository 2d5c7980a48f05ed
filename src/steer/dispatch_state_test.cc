#include "steer/dispatch_state.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <utility>

namespace rdmalab::steer {
namespace {

BucketSplit two_paths(std::uint32_t share) {
    BucketSplit split(2, 64);
    split.set_end(0, share);
    return split;
}

class Recorder : public BucketUpdater {
public:
    Status update_bucket(std::uint32_t bucket, std::uint32_t path) override {
        if (bucket == fails_at) return Error{EAGAIN, "no room"};
        updates.emplace_back(bucket, path);
        return {};
    }
    void drain() override { ++drains; }
    std::vector<std::pair<std::uint32_t, std::uint32_t>> updates;
    int drains = 0;
    std::optional<std::uint32_t> fails_at;
};

TEST(DispatchState, from_32_to_48_are_exactly_16_updates_and_a_repetition_is_none) {
    DispatchState state(two_paths(32));
    Recorder recorder;
    ApplyResult result = state.apply(two_paths(48), recorder);
    EXPECT_EQ(result.updates, 16u);
    EXPECT_TRUE(result.changed);
    ASSERT_EQ(recorder.updates.size(), 16u);
    for (std::uint32_t i = 0; i < 16; ++i) {
        EXPECT_EQ(recorder.updates[i], std::make_pair(32 + i, 0u));
    }
    EXPECT_EQ(recorder.drains, 1);

    result = state.apply(two_paths(48), recorder);
    EXPECT_EQ(result.updates, 0u);
    EXPECT_FALSE(result.changed);
    EXPECT_EQ(recorder.updates.size(), 16u);
}

TEST(DispatchState, the_way_back_moves_the_same_buckets) {
    DispatchState state(two_paths(48));
    Recorder recorder;
    EXPECT_EQ(state.apply(two_paths(40), recorder).updates, 8u);
    EXPECT_EQ(recorder.updates.front(), std::make_pair(40u, 1u));
    EXPECT_EQ(recorder.updates.back(), std::make_pair(47u, 1u));
}

TEST(DispatchState, a_failure_leaves_the_record_and_the_next_call_goes_on) {
    DispatchState state(two_paths(32));
    Recorder recorder;
    recorder.fails_at = 40;
    ApplyResult result = state.apply(two_paths(48), recorder);
    EXPECT_EQ(result.failed_bucket, 40u);
    EXPECT_EQ(result.error.code, EAGAIN);
    EXPECT_FALSE(result.changed);
    EXPECT_EQ(state.applied(), two_paths(32));
    EXPECT_EQ(state.recorded_path(39), 0u);
    EXPECT_EQ(state.recorded_path(40), 1u);
    EXPECT_EQ(recorder.drains, 0);

    recorder.fails_at.reset();
    recorder.updates.clear();
    result = state.apply(two_paths(48), recorder);
    EXPECT_EQ(result.updates, 8u);
    EXPECT_TRUE(result.changed);
    EXPECT_EQ(recorder.updates.front().first, 40u);
    EXPECT_EQ(state.applied(), two_paths(48));
}

TEST(DispatchState, after_a_failure_the_old_split_is_restored_by_updates) {
    DispatchState state(two_paths(32));
    Recorder recorder;
    recorder.fails_at = 40;
    state.apply(two_paths(48), recorder);
    const ApplyResult result = state.apply(two_paths(32), recorder);
    EXPECT_EQ(result.updates, 8u);
    EXPECT_FALSE(result.changed) << "32 was the applied share all the time";
    for (std::uint32_t bucket = 0; bucket < 64; ++bucket) {
        EXPECT_EQ(state.recorded_path(bucket), bucket < 32 ? 0u : 1u);
    }
}

TEST(DispatchState, shares_from_0_to_64_are_possible) {
    DispatchState state(two_paths(32));
    Recorder recorder;
    EXPECT_EQ(state.apply(two_paths(0), recorder).updates, 32u);
    EXPECT_EQ(state.apply(two_paths(64), recorder).updates, 64u);
}

TEST(DispatchState, a_split_of_another_table_is_refused) {
    DispatchState state(two_paths(32));
    Recorder recorder;
    EXPECT_EQ(state.apply(BucketSplit::even(2, 128), recorder).error.code, EINVAL);
    EXPECT_EQ(state.apply(BucketSplit::even(3, 64), recorder).error.code, EINVAL);
    EXPECT_TRUE(recorder.updates.empty());
}

TEST(DispatchState, with_more_paths_only_the_boundaries_move) {
    DispatchState state(BucketSplit::even(4, 64));  // 16:16:16:16
    BucketSplit wanted = BucketSplit::even(4, 64);
    wanted.set_end(0, 20);
    wanted.set_end(2, 44);  // 20:12:12:20
    Recorder recorder;
    EXPECT_EQ(state.apply(wanted, recorder).updates, 8u);
    EXPECT_EQ(recorder.updates.front(), std::make_pair(16u, 0u));
    EXPECT_EQ(recorder.updates.back(), std::make_pair(47u, 3u));
}

}  // namespace
}  // namespace rdmalab::steer
