// Waiting for a program that was started in the foreground.
#pragma once

#include <sys/types.h>

#include "rdmalab/signals.h"

namespace rdmalab::launcher {

// Waits for it, passes on the signals that only this process got, and returns its exit status:
// 128 + the signal when one killed it.
int stay_until_end(pid_t child, StopSignals& signals);

}  // namespace rdmalab::launcher
