#include "perftest/report_parts.h"

#include "perftest/report_json.h"

namespace rdmalab::perftest {

Json bandwidth_json(const Bandwidth& bandwidth) {
    return {{"bwGbSec", finite(bandwidth.gbps)},
            {"msgRateMpps", finite(bandwidth.mpps)},
            {"durationSec", finite(bandwidth.duration_s)},
            {"iterations", bandwidth.iterations}};
}

Json latency_json(const Plan& plan, const Latency& latency) {
    return {{"minUsec", finite(latency.min_us)},
            {"maxUsec", finite(latency.max_us)},
            {"meanUsec", finite(latency.mean_us)},
            {"medianUsec", finite(latency.median_us)},
            {"stdevUsec", finite(latency.stdev_us)},
            {"p99Usec", finite(latency.p99_us)},
            {"p999Usec", finite(latency.p999_us)},
            {"samples", latency.count},
            {"latencyDefinition", plan.latency_definition()}};
}

Json process_json(const Plan& plan, const ProcessResult& result) {
    Json out;
    out["role"] = result.is_requester ? "requestor" : "responder";
    out["process"] = result.process;
    out["core"] = result.core ? Json(*result.core) : Json();
    out["numaNode"] = result.numa_node ? Json(*result.numa_node) : Json();
    out["messagesReceived"] = result.received;
    out["iterationsPosted"] = result.posted;
    if (result.start_ns > 0) out["startTime"] = rfc3339(result.start_ns);
    if (result.window_ns == 0) return out;
    out["startTimeNs"] = result.start_ns;
    if (plan.metric == Metric::kLatency) {
        out["latResults"] = latency_json(plan, latency_of(plan, result.latency));
        out["durationSec"] = finite(static_cast<double>(result.window_ns) * 1e-9);
        return out;
    }
    out["bwResults"] = bandwidth_json(bandwidth_of(plan, result));
    if (!plan.qp_histogram) return out;
    for (const QpShare& share : qp_shares(plan, result)) {
        out["qpHistogram"].push_back({{"qpIndex", share.qp},
                                      {"bwGbSec", finite(share.gbps)},
                                      {"relativeDeviation", finite(share.deviation_percent)}});
    }
    return out;
}

namespace {

Json operations_json(const Plan& plan) {
    Json out = Json::array();
    for (const Operation& operation : plan.operations) {
        out.push_back({{"verb", name_of(operation.verb)}, {"msgSize", operation.size}});
    }
    return out;
}

}  // namespace

Json resource_config(const Plan& plan, const Json& facts, const ProcessResult& first) {
    return {{"operations", operations_json(plan)},
            {"connectionType", name_of(plan.transport)},
            {"qps", plan.qps},
            {"txDepth", plan.tx_depth},
            {"rxDepth", plan.rx_depth},
            {"postList", plan.post_list},
            {"cqModeration", plan.block},
            {"mtu", facts.value("mtu", 0)},
            {"memoryType", facts.value("memoryType", "host")},
            {"rdmaDriver", "ibv"},
            {"numaNode", first.numa_node ? Json(*first.numa_node) : Json()}};
}

Json threshold_json(const Threshold& threshold) {
    return {{"type", threshold.type}, {"value", threshold.value}, {"passed", threshold.passed}};
}

Json end_json(const Json& end, const std::string& host) {
    return {{"hostName", host},
            {"deviceName", end.value("device", "")},
            {"cudaDeviceId", nullptr},
            {"ibPort", end.value("ibPort", 1)},
            {"gid", end.value("gid", Json())},
            {"lid", end.value("lid", 0)},
            {"processes", end.value("processes", Json::array())}};
}

Json version_info() {
    return {{"jsonOutputSchema", kSchemaVersion},
            {"toolVersion", RDMALAB_VERSION},
            {"compatSchema", "doca_perftest 1.4.0"}};
}

}  // namespace rdmalab::perftest
