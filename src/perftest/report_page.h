// `rdma_perftest report RESULTS.json -o REPORT.html`: a JSON report as one page that needs nothing
// else: styles, scripts and the plotting library (web/) are inside it.
#pragma once

#include <string>
#include <vector>

#include "perftest/json.h"

namespace rdmalab::perftest {

std::string report_page(const Json& report);

// The subcommand; `path` is argv[0], `words` are those behind `report`. Returns the exit code.
int run_report_command(const std::string& path, const std::vector<std::string>& words);

}  // namespace rdmalab::perftest
