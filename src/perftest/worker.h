// The worker of a test between two hosts: one connection, one part of it per process.
#pragma once

#include "perftest/crew.h"
#include "perftest/endpoint.h"
#include "perftest/placement.h"
#include "perftest/plan.h"

namespace rdmalab::perftest {

// What a side does in a test.
Roles roles_of(const Plan& plan, bool is_server);

// For a crew of as many as the plan has processes. All that is named must outlive the crew.
Work pair_work(const Plan& plan, const Side& side, bool is_server, const Placement& placement);

}  // namespace rdmalab::perftest
