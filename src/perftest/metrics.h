// From what each process counted to the numbers of the report. docs/perftest.md has the formula of
// each; the names here are those of the formulas.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "perftest/histogram.h"
#include "perftest/json.h"
#include "perftest/plan.h"

namespace rdmalab::perftest {

// What one process of one direction counted. Times are nanoseconds of the host's clocks.
struct ProcessResult {
    std::uint32_t process = 0;
    std::optional<int> core;       // pinned to it
    std::optional<int> numa_node;  // of its host buffers
    bool is_requester = true;
    std::int64_t start_ns = 0;                     // wall clock at which its traffic began
    std::int64_t window_ns = 0;                    // length of the measured window
    std::vector<std::uint64_t> iterations_per_qp;  // completed inside the window
    std::uint64_t posted = 0;    // iterations of the whole run, with warm-up and margin
    std::uint64_t received = 0;  // messages that arrived here (verbs that take receives)
    std::uint64_t lost = 0;      // pings without an answer (UC and UD)
    std::uint64_t invalid = 0;   // messages that arrived with wrong content
    bool interrupted = false;
    Histogram latency;  // ns, as measured: a whole round trip for a ping-pong

    std::uint64_t iterations() const;
    Json to_json() const;
    static Result<ProcessResult> from_json(const Json& json);
};

struct Bandwidth {
    double gbps = 0, mpps = 0, duration_s = 0;
    std::uint64_t iterations = 0;
};
struct Latency {
    std::uint64_t count = 0;
    double min_us = 0, max_us = 0, mean_us = 0, median_us = 0, stdev_us = 0, p99_us = 0,
           p999_us = 0;
};

Bandwidth bandwidth_of(const Plan& plan, const ProcessResult& result);
// Sums over processes; the duration is their mean.
Bandwidth total_bandwidth(const Plan& plan, const std::vector<ProcessResult>& results);
Latency latency_of(const Plan& plan, const Histogram& histogram);
// Samples of all processes together, never an average of percentiles.
Histogram merged_latency(const std::vector<ProcessResult>& results);

struct QpShare {
    std::uint32_t qp = 0;
    double gbps = 0;
    double deviation_percent = 0;  // from the mean of the process's queue pairs
};
std::vector<QpShare> qp_shares(const Plan& plan, const ProcessResult& result);

// A live sample, and what is kept of all of them.
struct Interval {
    double at_s = 0;  // its end, since the window began
    double gbps = 0, mpps = 0;
};
struct IntervalSummary {
    static constexpr std::size_t kSamplesMax = 10'000;  // later ones are in the summary only
    std::vector<Interval> samples;
    std::uint64_t count = 0;
    double min_gbps = 0, max_gbps = 0, sum_gbps = 0;
    void add(const Interval& interval);
    double mean_gbps() const { return count == 0 ? 0 : sum_gbps / static_cast<double>(count); }
};

// One direction of the test.
struct Direction {
    std::string source_host, source_device, destination_host, destination_device;
    std::vector<ProcessResult> requesters, responders;
    IntervalSummary intervals;

    std::uint64_t invalid() const;
    std::uint64_t received() const;
    std::uint64_t lost() const;
};

struct Threshold {
    const char* type = "";  // "bw" or "lat"
    double value = 0;
    bool passed = true;
};
// Nothing when the plan has none.
std::optional<Threshold> judge(const Plan& plan, const Direction& direction);

// Everything a report is made of.
struct Outcome {
    Plan plan;
    Json client, server;  // facts of each end: host, device, GID, QPs
    std::vector<Direction>
        directions;          // client to server, then the way back of a bidirectional one
    std::string start_time;  // RFC 3339
    bool interrupted = false;

    int exit_code() const;
    const char* status() const;  // pass, fail
};

}  // namespace rdmalab::perftest
