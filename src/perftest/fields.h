// A field of a JSON test, as the text that its flag would have had: the one place where types of
// JSON meet words of the command line.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "perftest/json.h"
#include "perftest/parameters.h"

namespace rdmalab::perftest {

// Nothing for a flag that is off. The error begins with what was expected.
Result<std::optional<std::string>> field_text(const Parameter& parameter, const Json& value);

}  // namespace rdmalab::perftest
