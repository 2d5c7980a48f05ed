// What one host does in a scenario: its worker processes, and the ends of connections that each of
// them has. Made on the front-end from the plan, sent to the agent of the host.
//
// A link is one end of one connection in one process: process p of the source's endpoint is joined
// to process p of the destination's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perftest/scenario/scenario.h"

namespace rdmalab::perftest {

struct LinkJob {
    std::uint32_t connection = 0;  // number in the whole scenario
    bool is_source = true;
    std::uint32_t peer_agent = 0, peer_worker = 0;
    std::uint32_t phase = 0;
    std::uint64_t bytes = 0;  // of a message, when pairs differ
};

struct WorkerJob {
    std::uint32_t test = 0, endpoint = 0, process = 0;
    std::string label;  // host:device, for messages
    Request side;       // device, cores, memory, as flags have them
    std::vector<LinkJob> links;
};

struct TestJob {
    Request request;  // the plan as flags, without a side
    bool has_sizes = false;
    bool iteration_sync = false;
    std::uint32_t processes = 1;
};

struct AgentJob {
    std::string host;
    std::vector<TestJob> tests;
    std::vector<WorkerJob> workers;
};

Json to_json(const AgentJob& job);
Result<AgentJob> read_job(const Json& json);

// The plan of one link and the side of its worker, checked as what comes from a user.
// Throws Failure.
Planned planned_of(const AgentJob& job, const WorkerJob& worker, const LinkJob& link);

// Who sits where: a job for each host, in the order of Scenario::hosts().
struct Seating {
    std::vector<std::string> hosts;
    std::vector<AgentJob> jobs;
    std::uint32_t phases = 1;              // rounds, one after another
    std::vector<std::uint32_t> phase_ids;  // what they are called in reports
};
Seating seat(const Scenario& scenario);

}  // namespace rdmalab::perftest
