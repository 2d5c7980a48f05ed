// The counters of a card as text: totals, or rates between two samples.
#pragma once

#include <string>

#include "rdmalab/card_client.h"

namespace rdmalab::launcher {

std::string print_counters(const Json& counters);
// Change per second from one reply of the card to a later one.
std::string print_rates(const Json& before, const Json& after);

// Frames and bytes of ports and both directions of cables, without the functions (for `demo`).
std::string print_port_counters(const Json& counters);

}  // namespace rdmalab::launcher
