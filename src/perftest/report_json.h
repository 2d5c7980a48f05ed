// The report for programs: schema 1.4.0, doc/schema in src/perftest/report.schema.json.
#pragma once

#include <string>

#include "perftest/metrics.h"

namespace rdmalab::perftest {

inline constexpr char kSchemaVersion[] = "1.4.0";

Json report_json(const Outcome& outcome);
// Of a run that failed before it had an outcome.
Json error_json(const Json& scenario, const std::string& error);
// Writes a temporary file beside it and renames it: a reader never sees half of it.
Status write_whole(const std::string& path, const std::string& text);
Status write_report(const std::string& path, const Json& report);
// ./perftest_results_<UTC time>.json
std::string default_report_path();
std::string rfc3339(std::int64_t wall_ns);

// The outcome as client and server tell each other, with all that the report is made of.
Json outcome_message(const Outcome& outcome);
Result<Outcome> read_outcome(const Plan& plan, const Json& message);

}  // namespace rdmalab::perftest
