// Numbers as users write them on the command line, and as they are shown to them. A wrong one
// throws Failure with what was expected and what was found; `option` names the place. Rates, delays
// and probabilities of a cable are not read here: the card reads them, as it does those of a
// topology.
#pragma once

#include <cstdint>
#include <string>

namespace rdmalab::launcher {

bool parse_bool(const std::string& option, const std::string& text);
// A number of seconds: "2", "0.5", "500ms". More than 0.
double parse_seconds(const std::string& option, const std::string& text);
std::uint64_t parse_count(const std::string& option, const std::string& text, std::uint64_t min);

std::string print_rate(std::uint64_t bits_per_second);  // 25 Gb/s; "unlimited" for 0
std::string print_duration(std::int64_t ns);            // 10 us
std::string print_probability(double share);            // 1 %

}  // namespace rdmalab::launcher
