// The sender's side: every RoCE packet falls into a random bucket, and the bucket's entry in the
// dispatch table says which path it takes.
//
//   EGRESS_ROCE_CHECK --> EGRESS_CLASSIFY --> EGRESS_BUCKET_DISPATCH --> EGRESS_PATHk_REWRITE -->
//   wire
//       | not RoCE         HASH, B entries,    BASIC, B live entries,      private mark of path k,
//       v                  never changed;      forward changeable          counts
//      wire                entry i writes i
//                          to meta.u32[4]
//
// and on the way back EGRESS_CNP_COUNT counts the notifications of the QPs whose pairs are known.
//
// Shares change by updates of those dispatch entries whose bucket gets another owner; the table has
// room for twice the live entries because an update allocates its replacement first. HASH pipes use
// a part of meta.u32[3] themselves, hence word 4.
#pragma once

#include <map>
#include <vector>

#include "steer/cm_table.h"
#include "steer/dispatch_state.h"
#include "steer/path_marker.h"
#include "steer/pipe_builder.h"
#include "steer/steer_options.h"

namespace rdmalab::steer {

inline constexpr std::size_t kCnpCounterMax = 64;

struct EgressOptions {
    std::uint32_t paths = kPathMin, buckets = kDefaultBuckets;
    Compat compat = Compat::k3_4;
    std::optional<std::uint32_t> force_path;
    std::vector<flow::PipeId> wires;  // one for all paths, or one per path (next hops)
};

class EgressSteering : private BucketUpdater {
public:
    EgressSteering(flow::PipeControl& control, EgressOptions options);

    // Makes the pipes; the first one, for what a sender sends.
    flow::PipeId build(PipeBuilder& builder);
    // The first pipe for what comes back: counts CNPs (3.x) and goes on to `next`.
    flow::PipeId build_return(PipeBuilder& builder, flow::PipeId next);

    ApplyResult apply(const BucketSplit& wanted);
    const BucketSplit& applied() const { return state_.applied(); }
    bool has_classifier() const { return !options_.force_path; }

    // Counts the CNPs that come to this connection's sender. False: nothing was installed (no such
    // pipe in this release, no room, or it is there already).
    Result<bool> add_cnp_counter(const CmConnection& connection);
    Status remove_cnp_counter(Qpn sender);

    struct Counters {
        std::vector<std::uint64_t> packets, bytes;  // per path, assigned to it
        std::vector<std::uint64_t> cnps;            // per path; empty when not counted
    };
    Result<Counters> read();

private:
    Status update_bucket(std::uint32_t bucket, std::uint32_t path) override;
    void drain() override;
    void build_rewrites(PipeBuilder& builder);
    flow::PipeId build_dispatch(PipeBuilder& builder);
    flow::PipeId build_classifier(PipeBuilder& builder, flow::PipeId dispatch);

    flow::PipeControl& control_;
    EgressOptions options_;
    PathMarker marker_;
    DispatchState state_;
    std::vector<flow::PipeId> rewrites_;           // by path
    std::vector<flow::EntryId> rewrite_entries_;   // by path
    std::vector<flow::EntryId> dispatch_entries_;  // by bucket
    flow::PipeId cnp_pipe_;
    struct CnpCounter {
        flow::EntryId entry;
        std::uint32_t path;
    };
    std::map<Qpn, CnpCounter> cnp_counters_;
    std::vector<std::uint64_t> cnps_gone_;  // per path, of counters that were removed
};

}  // namespace rdmalab::steer
