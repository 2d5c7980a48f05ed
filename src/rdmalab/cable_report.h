// The cables of a status reply as a table, one row per direction.
#pragma once

#include <string>

#include "rdmalab/card_client.h"

namespace rdmalab::launcher {

std::string print_cables(const Json& cables);

}  // namespace rdmalab::launcher
