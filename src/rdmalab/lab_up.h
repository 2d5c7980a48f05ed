// Bringing a lab up and taking it down.
#pragma once

#include "rdmalab/lab_plan.h"

namespace rdmalab::launcher {

// Returns when all hosts are ready; throws Failure, and then nothing is left.
void bring_up_lab(const Lab& lab);
// An interface to each switch in the caller's network namespace. It goes with the lab.
void join_lab(const Lab& lab);
// True: a lab was up. False: there was none, or what a dead one left has been removed.
bool take_down_lab();

}  // namespace rdmalab::launcher
