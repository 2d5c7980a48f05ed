// The report as people read it.
#pragma once

#include <string>

#include "perftest/metrics.h"

namespace rdmalab::perftest {

// What is measured, between whom: before the traffic.
std::string text_heading(const Outcome& outcome);
// The numbers, and what was judged by them.
std::string text_report(const Outcome& outcome);
std::string text_interval(const char* label, const Interval& interval);

}  // namespace rdmalab::perftest
