// What `rdmalab cc` prints.
#pragma once

#include <string>

#include "rdmalab/json_access.h"

namespace rdmalab::launcher {

// The reply to the card's op "cc" (card/host/admin.h).
std::string print_congestion(const Json& reply);

}  // namespace rdmalab::launcher
