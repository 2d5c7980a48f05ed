// The steps that client and server take together, as both sides need them.
#pragma once

#include <string>
#include <vector>

#include "perftest/metrics.h"
#include "perftest/placement.h"
#include "perftest/session.h"

namespace rdmalab::perftest {

struct Greeting {
    std::string host, version;
};

// Both sides say who they are, before anything else. Throws Failure: not our program, another wire
// version, no answer.
Greeting greet(Channel& channel, const std::string& peer_name, bool is_server);

// Host name of this machine.
std::string host_name();
// The same for all processes of one running kernel: are both sides on one machine?
std::string boot_id();

// One end of the test, as reports show it; from what its workers described.
Json end_facts(const std::string& host, const std::vector<Json>& processes);
std::vector<ProcessResult> read_process_results(const std::vector<Json>& bodies);
std::vector<int> pinned_cores(const Placement& placement);

// How long each step may take while the peer shows life.
inline constexpr std::uint16_t kControlPort = 18555;
inline constexpr double kGreetingSeconds = 5;
inline constexpr double kStepSeconds = 60;

}  // namespace rdmalab::perftest
