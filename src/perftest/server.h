// The server: waits for clients on the control port and serves each in a process of its own, one
// after another or several at once.
#pragma once

#include <string>

#include "perftest/plan.h"

namespace rdmalab::perftest {

// The exit code, after Ctrl-C or the end of the lease. Throws Failure.
int run_server(const std::string& program, const Request& request, const Planned& planned);

}  // namespace rdmalab::perftest
