// The loop of the sender's side: connection management packets and rate reports come in, path
// shares go out, once per interval. No clock and no waiting in here; the program (or a simulation)
// says when.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "steer/cm_table.h"
#include "steer/console.h"
#include "steer/egress_steering.h"
#include "steer/flow_rates.h"

namespace rdmalab::steer {

// An interval that has just ended.
struct Interval {
    double time_s = 0;   // its end, Unix time
    double seconds = 1;  // its length
};

// What the last interval said, for records and metrics.
struct EgressSnapshot {
    EgressSteering::Counters counters;
    std::vector<std::uint64_t> packets_delta, cnps_delta;
    Signals signals;
    std::optional<BucketSplit> target;
    BucketSplit applied;
    std::vector<FlowRate> flows;
    std::vector<std::optional<std::uint32_t>> flow_paths;  // of `flows`
    std::uint32_t updates = 0;                             // entries changed in this interval
    std::uint64_t updates_total = 0, failures_total = 0, reports_total = 0;
};

class EgressController {
public:
    // `steers`: shares follow the reports. Without it they stay (no congestion control here).
    EgressController(EgressSteering& steering, std::vector<std::uint32_t> receiver_ips, bool steers,
                     Console& console);

    // A frame that the pipeline has copied to the program.
    void handle_frame(ByteView frame, bool from_wire);
    void report(Qpn sender, std::uint32_t rate);
    // An error: the card has gone.
    Status end_interval(const Interval& interval);

    // By hand; holds until `release_split`.
    ApplyResult force_split(const BucketSplit& split);
    void release_split() { forced_ = false; }

    const EgressSnapshot& snapshot() const { return snapshot_; }
    const CmTable& connections() const { return table_; }

private:
    void handle_change(const CmChange& change);
    void learn_from_feedback(ByteView frame);
    void say_path_classes();
    void decide_and_apply();
    void apply(const BucketSplit& wanted);
    Status count(const Interval& interval);

    EgressSteering& steering_;
    CmTable table_;
    FlowRates rates_;
    bool steers_;
    bool forced_ = false;
    Console& console_;
    std::set<Qpn> classes_said_;
    std::uint64_t received_before_ = 0;
    EgressSnapshot snapshot_;
};

nlohmann::json to_record(const EgressSnapshot& snapshot, const Interval& interval);

}  // namespace rdmalab::steer
