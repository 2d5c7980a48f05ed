// What the path steering experiment has seen: the records that flow_steer and pcc write (--json),
// what they said, and what became of the programs that made the traffic.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rdmalab/json_access.h"

namespace rdmalab::launcher {

// One interval of the receiver's side.
struct IngressSample {
    double time_s = 0, seconds = 1;  // its end (Unix time), its length
    std::vector<double> packets, marked, gigabits_per_second, percents;  // per path
    double total_gigabits_per_second() const;
};
struct FlowSample {
    std::uint32_t qpn = 0;
    std::optional<std::uint32_t> path;
    double average = 0;  // of its rate; 2^20 is full
};
// One interval of the sender's side.
struct EgressSample {
    double time_s = 0, seconds = 1;
    double buckets = 64;
    std::vector<double> applied, target, packets, cnps;  // per path; target may be empty
    double pending_map = 0, updates = 0, failures_total = 0;
    std::vector<FlowSample> flows;
};

// Nothing when it is a record of another kind.
std::optional<IngressSample> read_ingress(const Json& record);
std::optional<EgressSample> read_egress(const Json& record);

struct ExperimentFacts {
    std::vector<IngressSample> ingress;
    std::vector<EgressSample> egress;
    double traffic_begin_s = 0, traffic_end_s = 0;  // Unix time
    double steady_begin_s = 0;                      // from here on shares should have settled
    std::vector<std::string> ingress_lines, pcc_lines;
    std::vector<std::string> sender_troubles;  // programs that ended or complained
    // What each receiver took in during the steady time, in Gb/s.
    std::vector<double> flow_gigabits_per_second;
    // Counters of the card that tell of lost packets, those that are not 0.
    std::map<std::string, std::uint64_t> losses;
};

// Sums of `values` (one per path) over the samples that end in (begin, end].
template <class Sample>
std::vector<double> sum_between(const std::vector<Sample>& samples,
                                std::vector<double> Sample::*values, double begin_s, double end_s) {
    std::vector<double> sums;
    for (const Sample& sample : samples) {
        if (sample.time_s <= begin_s || sample.time_s > end_s) continue;
        const std::vector<double>& one = sample.*values;
        sums.resize(std::max(sums.size(), one.size()));
        for (std::size_t path = 0; path < one.size(); ++path) sums[path] += one[path];
    }
    return sums;
}

}  // namespace rdmalab::launcher
