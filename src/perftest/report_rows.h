// Lines of a text report: a label, a value that ends at a fixed column, a unit.
#pragma once

#include <string>

#include "perftest/metrics.h"

namespace rdmalab::perftest {

std::string row(const std::string& label, const std::string& value, const std::string& unit);
std::string plain_row(const std::string& label, const std::string& value);
std::string decimals(double value, int places);
// Two decimals as ever, but never fewer than four digits that say something.
std::string rate_text(double value);
std::string bandwidth_rows(const Bandwidth& bandwidth);
std::string latency_rows(const Latency& latency);

}  // namespace rdmalab::perftest
