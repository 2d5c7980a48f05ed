// Judges the path steering experiment: each criterion with what was expected and what was found.
#pragma once

#include <string>
#include <vector>

#include "rdmalab/experiment_facts.h"

namespace rdmalab::launcher {

// What a run is to show.
struct ExperimentExpectation {
    std::vector<double> percents;  // in force at the end, per path
    std::string compat = "3.4";
    std::uint32_t buckets = 64;
    double share_deadline_s = 45;  // until path 0's share has moved
    double map_deadline_s = 10;    // until no flow is pending
    double share_tolerance = 3;    // of 64 buckets, in the steady state
    bool losses_allowed = false;   // the cable itself loses packets
    bool sees_requests = true;     // the program was there when connections began
};

struct Criterion {
    std::string name, expected, found;
    bool passed = false;
};

// Path 0's share in the steady state, in buckets; path i's is in proportion to 1 / sqrt(percent).
// A path with 0 percent takes all but the minimum of the others.
std::vector<double> analytic_shares(const std::vector<double>& percents, std::uint32_t buckets);

std::vector<Criterion> judge(const ExperimentFacts& facts, const ExperimentExpectation& expected);
bool all_passed(const std::vector<Criterion>& criteria);

}  // namespace rdmalab::launcher
