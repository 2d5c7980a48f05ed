// Runs a planned scenario: chooses the back-end, leads it, shows what came out.
#pragma once

#include <string>

#include "perftest/scenario/scenario.h"

namespace rdmalab::perftest {

// The exit code. Throws Failure when nothing was measured.
int run_scenario(const Scenario& scenario, const std::string& program);

}  // namespace rdmalab::perftest
