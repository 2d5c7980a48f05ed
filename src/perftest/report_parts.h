// Pieces of the JSON report that are the same for two hosts and for many.
#pragma once

#include <string>

#include "perftest/metrics.h"

namespace rdmalab::perftest {

Json version_info();
Json bandwidth_json(const Bandwidth& bandwidth);
Json latency_json(const Plan& plan, const Latency& latency);
Json process_json(const Plan& plan, const ProcessResult& result);
Json threshold_json(const Threshold& threshold);
// What a connection was made with. `facts`: of its source; `first`: of the first requester.
Json resource_config(const Plan& plan, const Json& facts, const ProcessResult& first);
// What a user may want to know of an end, without keys and addresses of memory.
Json end_json(const Json& facts, const std::string& host);

}  // namespace rdmalab::perftest
