// How the kernel schedules the card's thread.
#pragma once

#include "base/result.h"

namespace rdmalab::card::host {

// The ordinary class: a short slice and, where permitted, a better nice value, so that the card
// gets a processor quickly when clients poll on all of them. What is not permitted is left out.
void prefer_short_slices();

// SCHED_FIFO. The error says what is missing.
Status become_realtime();

// As many descriptors as the hard limit allows.
void raise_descriptor_limit();

}  // namespace rdmalab::card::host
