// The client: finds or starts the server, leads the test, reports.
#pragma once

#include <string>

#include "perftest/metrics.h"
#include "perftest/plan.h"

namespace rdmalab::perftest {

struct Output {
    bool non_interactive = false;
    bool json_on_stdout = false;
    bool json_file = false;
    std::string json_path;  // "": a name made from the time
};
Output output_of(const Request& request);

// Shows the outcome as the user wants it; false when a file could not be written.
bool show(const Outcome& outcome, const Output& output, const std::string& text);
// The JSON report of a test that failed.
void show_failure(const Json& scenario, const Output& output, const std::string& error);

// The exit code. Throws Failure.
int run_client(const std::string& program, const Request& request, const Planned& planned);

}  // namespace rdmalab::perftest
