// What `lab status` says.
#pragma once

#include <string>
#include <vector>

#include "rdmalab/json_access.h"
#include "rdmalab/lab_plan.h"

namespace rdmalab::launcher {

// The record of the lab, completed: per host "state" (up, crashed) and "links" (up, down, cut, by
// rail). `links`, `ports`: what `ip -j link` and `bridge -j link` print where the switches are.
Json lab_status(const Lab& lab, const Json& links, const Json& ports);
std::string print_lab_status(const Json& status);

}  // namespace rdmalab::launcher
