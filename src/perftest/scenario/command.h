// rdma_perftest with --traffic_pattern or -f: from the command line to a planned scenario, and what
// becomes of it.
#pragma once

#include <string>

#include "perftest/options.h"

namespace rdmalab::perftest {

bool asks_for_scenario(const Request& request);
// The exit code. Errors are printed.
int run_scenario_command(const std::string& program_path, const CommandLine& command);

}  // namespace rdmalab::perftest
