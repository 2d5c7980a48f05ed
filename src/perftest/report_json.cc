#include "perftest/report_json.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

#include "perftest/channel.h"
#include "perftest/failure.h"
#include "perftest/report_parts.h"

namespace rdmalab::perftest {

namespace {

Json test_config(const Outcome& outcome, const Direction& direction, const Json& source) {
    const Plan& plan = outcome.plan;
    const ProcessResult& first = direction.requesters.front();
    Json general = {{"trafficPattern", "ONE_TO_ONE"},
                    {"trafficDirection", plan.bidirectional ? "BIDIR" : "UNIDIR"},
                    {"trafficPartition", ""},
                    {"trafficPhaseId", 0},
                    {"iterationSync", false},
                    {"ptiniFile", ""},
                    {"ptiniDatatype", ""}};
    Json resources = resource_config(plan, source, first);
    return {{"generalConfig", general}, {"resourceConfig", resources}};
}

Json intervals_json(const IntervalSummary& intervals) {
    Json samples = Json::array();
    for (const Interval& each : intervals.samples) {
        samples.push_back({{"sec", finite(each.at_s)}, {"bwGbSec", finite(each.gbps)}});
    }
    return {{"count", intervals.count},
            {"minGbSec", finite(intervals.min_gbps)},
            {"avgGbSec", finite(intervals.mean_gbps())},
            {"maxGbSec", finite(intervals.max_gbps)},
            {"samples", samples}};
}

Json connection_json(const Outcome& outcome, std::size_t index) {
    const Plan& plan = outcome.plan;
    const Direction& direction = outcome.directions[index];
    const Json& source = index == 0 ? outcome.client : outcome.server;
    const Json& destination = index == 0 ? outcome.server : outcome.client;
    Json out = {{"connectionId", index},
                {"testName", "Test 1"},
                {"status", "ok"},
                {"error", nullptr},
                {"source", end_json(source, source.value("host", ""))},
                {"destination", end_json(destination, destination.value("host", ""))},
                {"testConfig", test_config(outcome, direction, source)}};
    if (plan.metric == Metric::kLatency) {
        out["latResults"] =
            latency_json(plan, latency_of(plan, merged_latency(direction.requesters)));
        if (plan.transport != Transport::kRc) out["latResults"]["lost"] = direction.lost();
    } else {
        out["bwResults"] = bandwidth_json(total_bandwidth(plan, direction.requesters));
        if (direction.intervals.count > 0) out["intervals"] = intervals_json(direction.intervals);
    }
    if (std::optional<Threshold> threshold = judge(plan, direction)) {
        out["threshold"] = threshold_json(*threshold);
    }
    if (plan.validate) {
        out["validationResults"] = {{"invalidDataSampleCount", direction.invalid()}};
    }
    out["resultsPerProcess"] = Json::array();
    for (const auto* results : {&direction.requesters, &direction.responders}) {
        for (const ProcessResult& result : *results) {
            if (results == &direction.responders && outcome.directions.size() > 1) break;
            out["resultsPerProcess"].push_back(process_json(plan, result));
        }
    }
    return out;
}

Json aggregated_json(const Outcome& outcome) {
    const Plan& plan = outcome.plan;
    Json out = {{"perTest", Json::array()},
                {"perNode", Json::array()},
                {"perDevice", Json::array()},
                {"bidirConnections", Json::array()}};
    Bandwidth sum;
    Histogram all;
    for (const Direction& direction : outcome.directions) {
        Bandwidth one = total_bandwidth(plan, direction.requesters);
        Json numbers;
        if (plan.metric == Metric::kLatency) {
            Histogram merged = merged_latency(direction.requesters);
            all.merge(merged);
            numbers["latResults"] = latency_json(plan, latency_of(plan, merged));
        } else {
            numbers["bwResults"] = bandwidth_json(one);
        }
        Json node = {{"hostName", direction.source_host}, {"direction", "tx"}};
        node.update(numbers);
        out["perNode"].push_back(node);
        Json device = {{"hostName", direction.source_host},
                       {"deviceName", direction.source_device},
                       {"direction", "tx"}};
        device.update(numbers);
        out["perDevice"].push_back(device);
        sum.gbps += one.gbps;
        sum.mpps += one.mpps;
        sum.duration_s += one.duration_s / static_cast<double>(outcome.directions.size());
        sum.iterations += one.iterations;
    }
    Json test = {{"testName", "Test 1"}};
    if (plan.metric == Metric::kLatency) {
        test["latResults"] = latency_json(plan, latency_of(plan, all));
    } else {
        test["bwResults"] = bandwidth_json(sum);
    }
    out["perTest"].push_back(test);
    if (outcome.directions.size() > 1) {
        out["bidirConnections"].push_back({{"connectionIds", {0, 1}},
                                           {"bwGbSec", finite(sum.gbps)},
                                           {"msgRateMpps", finite(sum.mpps)}});
    }
    return out;
}

Json results_message(const std::vector<ProcessResult>& results) {
    Json out = Json::array();
    for (const ProcessResult& result : results) out.push_back(result.to_json());
    return out;
}

Result<std::vector<ProcessResult>> read_results(const Json& message) {
    std::vector<ProcessResult> out;
    for (const Json& each : message) {
        Result<ProcessResult> result = ProcessResult::from_json(each);
        if (!result.ok()) return result.error();
        out.push_back(std::move(*result));
    }
    return out;
}

Result<Direction> read_direction(const Json& json) {
    Direction out;
    out.source_host = json.at("sourceHost").get<std::string>();
    out.source_device = json.at("sourceDevice").get<std::string>();
    out.destination_host = json.at("destinationHost").get<std::string>();
    out.destination_device = json.at("destinationDevice").get<std::string>();
    Result<std::vector<ProcessResult>> requesters = read_results(json.at("requesters")),
                                       responders = read_results(json.at("responders"));
    if (!requesters.ok()) return requesters.error();
    if (!responders.ok()) return responders.error();
    if (requesters->empty()) return Error{EPROTO, "an outcome without requesters"};
    out.requesters = std::move(*requesters);
    out.responders = std::move(*responders);
    const Json& intervals = json.at("intervals");
    for (const Json& each : intervals) {
        out.intervals.add({each.at(0).get<double>(), each.at(1).get<double>(), 0});
    }
    return out;
}

}  // namespace

std::string rfc3339(std::int64_t wall) {
    time_t seconds = wall / 1'000'000'000;
    tm parts{};
    gmtime_r(&seconds, &parts);
    char text[32];
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    return fmt::format("{}.{:06}Z", text, wall % 1'000'000'000 / 1000);
}

Json report_json(const Outcome& outcome) {
    Json out = {{"versionInfo", version_info()},   {"scenario", scenario_json(outcome.plan)},
                {"startTime", outcome.start_time}, {"status", outcome.status()},
                {"exitCode", outcome.exit_code()}, {"interrupted", outcome.interrupted},
                {"connections", Json::array()}};
    for (std::size_t i = 0; i < outcome.directions.size(); ++i) {
        out["connections"].push_back(connection_json(outcome, i));
    }
    out["aggregatedResults"] = aggregated_json(outcome);
    return out;
}

Json error_json(const Json& scenario, const std::string& error) {
    return {{"versionInfo", version_info()},
            {"scenario", scenario},
            {"startTime", rfc3339(wall_ns())},
            {"status", "error"},
            {"exitCode", kExitError},
            {"interrupted", false},
            {"error", error},
            {"connections", Json::array()},
            {"aggregatedResults",
             {{"perTest", Json::array()},
              {"perNode", Json::array()},
              {"perDevice", Json::array()},
              {"bidirConnections", Json::array()}}}};
}

std::string default_report_path() {
    std::string stamp = rfc3339(wall_ns()).substr(0, 19);
    std::string compact;
    for (char c : stamp) {
        if (c != '-' && c != ':') compact += c;
    }
    return "./perftest_results_" + compact + "Z.json";
}

Status write_whole(const std::string& path, const std::string& text) {
    std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
    auto failed = [&]() {
        int error = errno;
        unlink(temporary.c_str());
        return Error{error, fmt::format("cannot write {}: {}", path, strerror(error))};
    };
    FILE* file = fopen(temporary.c_str(), "wxe");
    if (file == nullptr) return failed();
    bool written = fwrite(text.data(), 1, text.size(), file) == text.size();
    written = fflush(file) == 0 && fsync(fileno(file)) == 0 && written;
    int error = errno;
    fclose(file);
    errno = error;
    if (!written) return failed();
    if (rename(temporary.c_str(), path.c_str()) != 0) return failed();
    return Status();
}

Status write_report(const std::string& path, const Json& report) {
    return write_whole(path, to_text(report, 2) + "\n");
}

Json outcome_message(const Outcome& outcome) {
    Json directions = Json::array();
    for (const Direction& direction : outcome.directions) {
        Json intervals = Json::array();
        for (const Interval& each : direction.intervals.samples) {
            intervals.push_back({each.at_s, each.gbps});
        }
        directions.push_back({{"sourceHost", direction.source_host},
                              {"sourceDevice", direction.source_device},
                              {"destinationHost", direction.destination_host},
                              {"destinationDevice", direction.destination_device},
                              {"requesters", results_message(direction.requesters)},
                              {"responders", results_message(direction.responders)},
                              {"intervals", std::move(intervals)}});
    }
    return {{"client", outcome.client},
            {"server", outcome.server},
            {"startTime", outcome.start_time},
            {"interrupted", outcome.interrupted},
            {"directions", std::move(directions)}};
}

Result<Outcome> read_outcome(const Plan& plan, const Json& message) {
    Outcome out;
    out.plan = plan;
    try {
        out.client = message.at("client");
        out.server = message.at("server");
        out.start_time = message.at("startTime").get<std::string>();
        out.interrupted = message.at("interrupted").get<bool>();
        for (const Json& each : message.at("directions")) {
            Result<Direction> direction = read_direction(each);
            if (!direction.ok()) return direction.error();
            out.directions.push_back(std::move(*direction));
        }
    } catch (const std::exception& error) {
        return Error{EPROTO, std::string("an outcome that cannot be read: ") + error.what()};
    }
    return out;
}

}  // namespace rdmalab::perftest
