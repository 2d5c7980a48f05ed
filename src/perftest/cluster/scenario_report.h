// The report of a scenario: as text, as JSON (the schema of two hosts, with more in it), and as one
// line per connection for runs that are too large for one document.
#pragma once

#include <cstdio>
#include <string>

#include "perftest/cluster/outcome.h"

namespace rdmalab::perftest {

struct TextStyle {
    bool colours = false;
};
std::string text_report(const ScenarioOutcome& outcome, const TextStyle& style);

Json report_json(const ScenarioOutcome& outcome);
// Lines of JSON: first everything but the connections, then each connection.
std::string report_lines(const ScenarioOutcome& outcome);

// From the best to the worst, for the metric of the test; of connections that did not fail.
std::vector<std::size_t> ranked(const ScenarioOutcome& outcome, std::uint32_t test);
// Gb/s, or the median in microseconds.
double figure_of(const ScenarioOutcome& outcome, const DirectedResult& result);
std::string connection_matrix(const ScenarioOutcome& outcome, std::uint32_t test,
                              const TextStyle& style);

}  // namespace rdmalab::perftest
