// Bracket ranges: one text for many names, as in node[01-16], mlx5_[0,2-3], a1,b[2-3].
//
// A list is names separated by commas or blanks; empty items are dropped. A name is literal text
// with any number of bracket groups. A group lists words and ranges of numbers; a range keeps the
// width of its first number. The last group changes fastest, repeats are kept, and the order is
// that of the text: it becomes the order of ranks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rdmalab::perftest {

inline constexpr std::size_t kNamesMax = 65536;

// The error says what is wrong and where; the caller adds whose value it is.
Result<std::vector<std::string>> expand_ranges(std::string_view text);

}  // namespace rdmalab::perftest
