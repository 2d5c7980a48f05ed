// What a scenario has measured: everything that reports are made of. One entry per directed
// connection, so a bidirectional one has two.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perftest/cluster/backend.h"
#include "perftest/metrics.h"
#include "perftest/scenario/scenario.h"

namespace rdmalab::perftest {

struct DirectedResult {
    std::uint32_t test = 0;
    std::uint32_t connection = 0;               // number in the scenario
    std::uint32_t source = 0, destination = 0;  // endpoints of the test
    std::uint32_t phase = 0;
    bool is_way_back = false;  // second direction of a bidirectional connection
    Direction direction;
    Json source_facts, destination_facts;  // of the first process: device, GID, MTU, QPs
    std::string error;                     // why it failed; "" = well

    bool is_ok() const { return error.empty(); }
};

// When one process began and ended, by the clock of reference.
struct WorkerTiming {
    std::string label;  // host:device
    std::uint32_t host = 0, test = 0, process = 0;
    std::int64_t started_ns = 0, stopped_ns = 0;
};

// Bandwidth of each test at one time of the run, from what the agents say twice a second.
struct TimelinePoint {
    double at_s = 0;  // after the common start
    std::vector<double> gbps;
};

struct Skew {
    double start_us = 0, stop_us = 0;  // first to last
    double clock_error_us = 0;         // the largest
};

struct ScenarioOutcome {
    const Scenario* scenario = nullptr;
    std::string backend, start_time;
    std::vector<DirectedResult> results;
    std::vector<WorkerTiming> timings;
    std::vector<HostClock> clocks;
    std::vector<TimelinePoint> timeline;
    std::vector<std::string> hosts;
    std::vector<std::string> errors;  // of hosts
    bool interrupted = false;

    const ScenarioTest& test_of(const DirectedResult& result) const {
        return scenario->tests[result.test];
    }
    Plan plan_of(const DirectedResult& result) const;
    Skew skew() const;
    int exit_code() const;
    const char* status() const;  // pass, fail, error
};

// Sums over connections, as reports group them.
struct Rollup {
    std::string test, host, device;
    std::uint64_t connections = 0, failed = 0;
    Bandwidth bandwidth;                       // rates summed, durations averaged
    Histogram latency;                         // samples of all
    std::optional<double> min_gbps, max_gbps;  // of single connections
    std::optional<bool> passed;                // every threshold was held
};
Rollup rollup_of_test(const ScenarioOutcome& outcome, std::uint32_t test);
// By source, then by destination: what a device or a host has sent and received.
std::vector<Rollup> rollups(const ScenarioOutcome& outcome, std::uint32_t test, bool by_device,
                            bool sent);

}  // namespace rdmalab::perftest
