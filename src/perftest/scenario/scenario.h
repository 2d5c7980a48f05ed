// A scenario: tests that run at the same time, each with its endpoints and connections, fully
// resolved and free of contradictions. plan_scenario() is the only way to get one; it collects
// every error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "perftest/plan.h"
#include "perftest/scenario/pattern.h"
#include "perftest/scenario/ptini.h"
#include "perftest/scenario/words.h"

namespace rdmalab::perftest {

struct ScenarioTest {
    std::string name;
    Plan plan;  // of every connection; sizes of a variable all-to-all are in `sizes`
    Wiring wiring;
    bool iteration_sync = false;
    std::string ptini_file, ptini_datatype;
    std::optional<SizeMatrix> sizes;
    std::vector<TestEndpoint> endpoints;  // in the order of ranks
    std::vector<Side> sides;              // per entry of testNodes; TestEndpoint::node is the index
    std::vector<ScenarioConnection> connections;
    bool prints_matrix = true;

    bool is_bidirectional() const { return wiring.direction == TrafficDirection::kBidir; }
    // The side of one endpoint, with its device and GPU.
    Side side_of(const TestEndpoint& endpoint) const;
    // What one connection does.
    Plan plan_of(const ScenarioConnection& connection) const;
    std::uint64_t bytes_of(const ScenarioConnection& connection) const;  // of an iteration
    std::uint32_t rounds() const;  // of peer shifting that have connections; else 1
};

struct Scenario {
    std::string name;
    std::vector<ScenarioTest> tests;
    Request output;                  // flags of the front-end
    std::vector<std::string> notes;  // worth knowing, not wrong

    std::vector<std::string> hosts() const;  // each once, in the order of appearance
    std::size_t connections() const;
};

std::variant<Scenario, Refusal> plan_scenario(const ScenarioWords& words);

// The scenario as the report shows it: defaults filled in, ranges expanded.
Json scenario_json(const Scenario& scenario);

}  // namespace rdmalab::perftest
