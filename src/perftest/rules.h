// Which parameters do not go together. One row each: when it applies, and what is said.
#pragma once

#include <string>
#include <vector>

#include "perftest/plan.h"

namespace rdmalab::perftest {

void check_rules(const Request& request, const Planned& planned, std::vector<std::string>& errors);

}  // namespace rdmalab::perftest
