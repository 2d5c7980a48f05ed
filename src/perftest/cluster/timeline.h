// Bandwidth over time while a scenario runs: every agent says twice a second how many iterations
// its workers have completed; sums of that, a second apart, are points of a line.
#pragma once

#include "perftest/cluster/outcome.h"

namespace rdmalab::perftest {

class Timeline {
public:
    Timeline(const Scenario& scenario, std::size_t agents);

    // The first traffic begins then, by the clock of this process.
    void begin(std::int64_t start_ns) { start_ns_ = start_ns; }
    // Completed so far by the agent's workers, test by test.
    void handle(std::uint32_t agent, const std::vector<std::uint64_t>& iterations);
    // Perhaps a new point.
    bool poll(std::int64_t now_ns);

    const std::vector<TimelinePoint>& points() const { return points_; }
    // The last one in words.
    std::string text() const;

private:
    std::vector<std::uint64_t> sums() const;

    const Scenario& scenario_;
    std::vector<double> bits_;  // of an iteration, by test: the mean over its connections
    std::vector<std::vector<std::uint64_t>> iterations_;  // by agent, by test
    std::vector<std::uint64_t> last_;
    std::int64_t start_ns_ = 0, last_ns_ = 0;
    std::vector<TimelinePoint> points_;
};

}  // namespace rdmalab::perftest
