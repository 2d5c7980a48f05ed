// Parts that a test may ask for and a machine may lack: found out before anything is started, with
// one sentence that says what is missing.
#pragma once

#include "perftest/plan.h"

namespace rdmalab::perftest {

// Throws Failure.
void require_parts(const Request& request, const Planned& planned);

}  // namespace rdmalab::perftest
