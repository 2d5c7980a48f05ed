// Whole files, up to a limit.
#pragma once

#include <string>

#include "base/result.h"

namespace rdmalab::perftest {

// The error names the file.
Result<std::string> read_text_file(const std::string& path, std::size_t bytes_max);

}  // namespace rdmalab::perftest
