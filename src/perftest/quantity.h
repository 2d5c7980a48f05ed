// Numbers and lists as users write them. Strict: the whole text must be the number, nothing is cast
// before it is checked. The error says what was expected and what was found; the caller adds the
// name of the flag or field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rdmalab::perftest {

// Decimal digits only.
Result<std::uint64_t> parse_count(std::string_view text, std::uint64_t min, std::uint64_t max);
// Digits, then nothing or one of k, M, G (powers of 1024; K, Ki and KiB and the like mean the
// same).
Result<std::uint64_t> parse_size(std::string_view text, std::uint64_t min, std::uint64_t max);
// Digits with at most one point: no sign, no exponent, no "inf".
Result<double> parse_decimal(std::string_view text, double min, double max);
// "5", "5,7", "5-9" and mixtures. Each core once, in the order given.
Result<std::vector<int>> parse_cores(std::string_view text);

// The text that is nearest to `word` by edit distance, or "" when none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace rdmalab::perftest
