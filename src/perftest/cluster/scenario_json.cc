#include <fmt/format.h>

#include "perftest/cluster/scenario_report.h"
#include "perftest/report_json.h"
#include "perftest/report_parts.h"

namespace rdmalab::perftest {

namespace {

Json optional(const std::optional<double>& value) { return value ? finite(*value) : Json(); }

Json general_config(const ScenarioTest& test, const DirectedResult& result) {
    return {{"trafficPattern", name_of(test.wiring.pattern)},
            {"trafficDirection", name_of(test.wiring.direction)},
            {"trafficPartition", name_of(test.wiring.partition)},
            {"trafficPhaseId", result.phase},
            {"iterationSync", test.iteration_sync},
            {"ptiniFile", test.ptini_file},
            {"ptiniDatatype", test.ptini_datatype}};
}

Json end_of(const TestEndpoint& endpoint, const Json& facts) {
    Json out = end_json(facts, endpoint.host);
    out["deviceName"] = endpoint.device;
    out["cudaDeviceId"] = endpoint.gpu ? Json(*endpoint.gpu) : Json();
    Json process = Json::object();
    for (const char* key : {"qpns", "psns", "hugePages", "inlineSize"}) {
        if (facts.contains(key)) process[key] = facts[key];
    }
    if (process.contains("qpns")) out["processes"].push_back(std::move(process));
    return out;
}

void put_results(const ScenarioOutcome& outcome, const DirectedResult& result, Json& out) {
    Plan plan = outcome.plan_of(result);
    if (result.direction.requesters.empty()) return;
    if (plan.metric == Metric::kLatency) {
        out["latResults"] =
            latency_json(plan, latency_of(plan, merged_latency(result.direction.requesters)));
        if (plan.transport != Transport::kRc) out["latResults"]["lost"] = result.direction.lost();
    } else {
        out["bwResults"] = bandwidth_json(total_bandwidth(plan, result.direction.requesters));
    }
    std::optional<Threshold> threshold = judge(plan, result.direction);
    if (threshold) {
        threshold->passed = threshold->passed && result.is_ok();
        out["threshold"] = threshold_json(*threshold);
    }
    if (plan.validate) {
        out["validationResults"] = {{"invalidDataSampleCount", result.direction.invalid()}};
    }
}

Json connection_json(const ScenarioOutcome& outcome, std::size_t index) {
    const DirectedResult& result = outcome.results[index];
    const ScenarioTest& test = outcome.test_of(result);
    Plan plan = outcome.plan_of(result);
    ProcessResult nobody;
    const auto& requesters = result.direction.requesters;
    Json resources = resource_config(plan, result.source_facts,
                                     requesters.empty() ? nobody : requesters.front());
    Json out = {
        {"connectionId", index},
        {"testName", test.name},
        {"status", result.is_ok() ? "ok" : "failed"},
        {"error", result.is_ok() ? Json() : Json(result.error)},
        {"source", end_of(test.endpoints[result.source], result.source_facts)},
        {"destination", end_of(test.endpoints[result.destination], result.destination_facts)},
        {"testConfig",
         {{"generalConfig", general_config(test, result)},
          {"resourceConfig", std::move(resources)}}}};
    put_results(outcome, result, out);
    out["resultsPerProcess"] = Json::array();
    for (const ProcessResult& each : requesters) {
        out["resultsPerProcess"].push_back(process_json(plan, each));
    }
    for (const ProcessResult& each : result.direction.responders) {
        if (test.is_bidirectional()) break;
        out["resultsPerProcess"].push_back(process_json(plan, each));
    }
    return out;
}

void put_numbers(const Plan& plan, bool has_total, const Rollup& rollup, Json& out) {
    out["connections"] = rollup.connections;
    out["failedConnections"] = rollup.failed;
    if (plan.metric == Metric::kLatency) {
        out["latResults"] = latency_json(plan, latency_of(plan, rollup.latency));
    } else {
        if (has_total) out["bwResults"] = bandwidth_json(rollup.bandwidth);
        out["minConnectionGbSec"] = optional(rollup.min_gbps);
        out["maxConnectionGbSec"] = optional(rollup.max_gbps);
    }
    if (rollup.passed) out["thresholdPassed"] = *rollup.passed;
}

// Bandwidth of pairs of different sizes that wait for each other does not add up to anything.
bool has_total(const ScenarioTest& test) { return !(test.sizes && test.iteration_sync); }

void put_ends(const ScenarioOutcome& outcome, std::uint32_t test, bool by_device, Json& out) {
    const ScenarioTest& plan = outcome.scenario->tests[test];
    for (bool sent : {true, false}) {
        for (const Rollup& rollup : rollups(outcome, test, by_device, sent)) {
            Json entry = {{"testName", rollup.test}, {"hostName", rollup.host}};
            if (by_device) entry["deviceName"] = rollup.device;
            entry["direction"] = sent ? "tx" : "rx";
            put_numbers(plan.plan, has_total(plan), rollup, entry);
            out.push_back(std::move(entry));
        }
    }
}

void put_pairs(const ScenarioOutcome& outcome, Json& out) {
    for (std::size_t i = 0; i + 1 < outcome.results.size(); ++i) {
        const DirectedResult& there = outcome.results[i];
        const DirectedResult& back = outcome.results[i + 1];
        if (!back.is_way_back || back.connection != there.connection) continue;
        Plan plan = outcome.plan_of(there);
        Bandwidth a = total_bandwidth(plan, there.direction.requesters);
        Bandwidth b = total_bandwidth(plan, back.direction.requesters);
        const ScenarioTest& test = outcome.test_of(there);
        out.push_back(
            {{"testName", test.name},
             {"connectionIds", {i, i + 1}},
             {"ends",
              {test.endpoints[there.source].label(), test.endpoints[there.destination].label()}},
             {"bwGbSec", finite(a.gbps + b.gbps)},
             {"msgRateMpps", finite(a.mpps + b.mpps)}});
    }
}

Json synchronization_json(const ScenarioOutcome& outcome) {
    Skew skew = outcome.skew();
    std::int64_t first = INT64_MAX;
    for (const WorkerTiming& each : outcome.timings) {
        if (each.started_ns != 0) first = std::min(first, each.started_ns);
    }
    Json processes = Json::array();
    for (const WorkerTiming& each : outcome.timings) {
        bool ran = each.started_ns != 0, ended = each.stopped_ns != 0;
        processes.push_back(
            {{"hostName", outcome.hosts[each.host]},
             {"endpoint", each.label},
             {"testName", outcome.scenario->tests[each.test].name},
             {"process", each.process},
             {"startUsec",
              ran ? finite(static_cast<double>(each.started_ns - first) * 1e-3) : Json()},
             {"stopUsec",
              ended ? finite(static_cast<double>(each.stopped_ns - first) * 1e-3) : Json()},
             {"clockErrorUsec",
              finite(static_cast<double>(outcome.clocks[each.host].error_ns) * 1e-3)}});
    }
    return {{"backend", outcome.backend},
            {"startSkewUsec", finite(skew.start_us)},
            {"stopSkewUsec", finite(skew.stop_us)},
            {"clockErrorUsec", finite(skew.clock_error_us)},
            {"processes", std::move(processes)}};
}

Json timeline_json(const ScenarioOutcome& outcome) {
    Json out = Json::array();
    for (std::size_t i = 0; i < outcome.scenario->tests.size(); ++i) {
        const ScenarioTest& test = outcome.scenario->tests[i];
        if (test.plan.metric == Metric::kLatency) continue;
        Json points = Json::array();
        for (const TimelinePoint& point : outcome.timeline) {
            points.push_back({point.at_s, finite(point.gbps[i])});
        }
        out.push_back({{"testName", test.name}, {"points", std::move(points)}});
    }
    return out;
}

Json summary_json(const ScenarioOutcome& outcome) {
    Json out = {
        {"versionInfo", version_info()},     {"scenario", scenario_json(*outcome.scenario)},
        {"startTime", outcome.start_time},   {"status", outcome.status()},
        {"exitCode", outcome.exit_code()},   {"interrupted", outcome.interrupted},
        {"errors", outcome.errors},          {"synchronization", synchronization_json(outcome)},
        {"timeline", timeline_json(outcome)}};
    Json tests = Json::array(), nodes = Json::array(), devices = Json::array(),
         pairs = Json::array();
    for (std::uint32_t i = 0; i < outcome.scenario->tests.size(); ++i) {
        const ScenarioTest& test = outcome.scenario->tests[i];
        Json entry = {{"testName", test.name}};
        put_numbers(test.plan, has_total(test), rollup_of_test(outcome, i), entry);
        tests.push_back(std::move(entry));
        put_ends(outcome, i, false, nodes);
        put_ends(outcome, i, true, devices);
    }
    put_pairs(outcome, pairs);
    out["aggregatedResults"] = {{"perTest", std::move(tests)},
                                {"perNode", std::move(nodes)},
                                {"perDevice", std::move(devices)},
                                {"bidirConnections", std::move(pairs)}};
    return out;
}

}  // namespace

Json report_json(const ScenarioOutcome& outcome) {
    Json out = summary_json(outcome), connections = Json::array();
    for (std::size_t i = 0; i < outcome.results.size(); ++i) {
        connections.push_back(connection_json(outcome, i));
    }
    out["connections"] = std::move(connections);
    return out;
}

std::string report_lines(const ScenarioOutcome& outcome) {
    std::string out = to_text(summary_json(outcome)) + "\n";
    for (std::size_t i = 0; i < outcome.results.size(); ++i) {
        out += to_text(connection_json(outcome, i)) + "\n";
    }
    return out;
}

}  // namespace rdmalab::perftest
