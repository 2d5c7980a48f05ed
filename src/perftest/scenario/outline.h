// A scenario as text before it runs: what --dry_run shows, and the sizes of a variable all-to-all.
#pragma once

#include <string>

#include "perftest/scenario/scenario.h"

namespace rdmalab::perftest {

std::string outline(const Scenario& scenario);
Json outline_json(const Scenario& scenario);
// The matrix of a test with a .ptini file, "" for others.
std::string size_matrix(const ScenarioTest& test);

}  // namespace rdmalab::perftest
