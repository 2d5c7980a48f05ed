// The name of a function's switch side on the command line: "pci/0000:03:00.0,pf0sf0".
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace rdmalab::steer {

struct Representor {
    std::string pci;   // of the PF whose switch it belongs to: 0000:03:00.0
    std::string name;  // pf0sf0, pf1vf3
    bool operator==(const Representor&) const = default;
};

// EINVAL with the whole story: what was expected, what was found.
Result<Representor> parse_representor(std::string_view text);
// "0000:03:00.0", "03:00.0", each also behind "pci/"; the result has all parts.
Result<std::string> parse_pci_address(std::string_view text);

}  // namespace rdmalab::steer
