// What the receiver's side says once per interval: throughput and marks per path.
#pragma once

#include <vector>

#include "steer/console.h"
#include "steer/egress_controller.h"
#include "steer/path_emulator.h"

namespace rdmalab::steer {

struct IngressSnapshot {
    std::vector<PathCounters> counters, deltas;  // per path
    std::vector<double> gigabits_per_second;
    std::vector<double> percents;
};

class IngressMeter {
public:
    IngressMeter(PathEmulator& emulator, Console& console)
        : emulator_(emulator), console_(console) {}
    // An error: the card has gone.
    Status end_interval(const Interval& interval);
    const IngressSnapshot& snapshot() const { return snapshot_; }

private:
    PathEmulator& emulator_;
    Console& console_;
    IngressSnapshot snapshot_;
};

nlohmann::json to_record(const IngressSnapshot& snapshot, const Interval& interval);

}  // namespace rdmalab::steer
