// JSON as people write it by hand, read strictly: a key that occurs twice, bytes that are not
// UTF-8, and anything after the end are errors, each with the place where it was found.
#pragma once

#include <string>

#include "base/result.h"
#include "perftest/json.h"

namespace rdmalab::perftest {

inline constexpr std::size_t kJsonDepthMax = 32;

Result<Json> parse_strictly(const std::string& text);

}  // namespace rdmalab::perftest
