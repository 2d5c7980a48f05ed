// Programs that the card runs to set up the machine (iproute2). Not for the data path: it waits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rdmalab::card::host {

// Runs a program, found by PATH, to its end with `input` as standard input. An exit status other
// than 0 is an error whose text is what the program printed. ENOENT: there is no such program.
Status run_program(const std::vector<std::string>& words, std::string_view input = {});

}  // namespace rdmalab::card::host
