// Quantities as people write them: "25Gbit", "10us", "1%". Used by topology files and by requests
// that change a running cable, so that both accept and refuse the same texts.
//
// The error says what was expected and what was found; the caller puts the place in front.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace rdmalab::card::host {

// "100Mbit", "2.5Gbit", "9600bit"; units bit, Kbit, Mbit, Gbit, Tbit (decimal). "0" is not limited.
Result<Rate> parse_rate(std::string_view text);
// "800ns", "10us", "1.5ms", "2s". "0" needs no unit.
Result<Duration> parse_duration(std::string_view text);
// "1%", "0.01"; from 0 to 1 (100%).
Result<double> parse_probability(std::string_view text);

// What the three expect, for messages about values of another type.
std::string expected_rate();
std::string expected_duration();
std::string expected_probability();

}  // namespace rdmalab::card::host
