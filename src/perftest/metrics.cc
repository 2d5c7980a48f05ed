#include "perftest/metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "perftest/failure.h"

namespace rdmalab::perftest {

namespace {

template <class T>
Json optional_json(const std::optional<T>& value) {
    return value ? Json(*value) : Json();
}

std::optional<int> optional_int(const Json& json) {
    if (json.is_null()) return std::nullopt;
    return json.get<int>();
}

double rate(double amount, std::int64_t window_ns) {
    return window_ns <= 0 ? 0 : amount / (static_cast<double>(window_ns) * 1e-9);
}

}  // namespace

std::uint64_t ProcessResult::iterations() const {
    return std::accumulate(iterations_per_qp.begin(), iterations_per_qp.end(), std::uint64_t{0});
}

Json ProcessResult::to_json() const {
    return {{"process", process},
            {"core", optional_json(core)},
            {"numaNode", optional_json(numa_node)},
            {"isRequester", is_requester},
            {"startNs", start_ns},
            {"windowNs", window_ns},
            {"iterationsPerQp", iterations_per_qp},
            {"posted", posted},
            {"received", received},
            {"lost", lost},
            {"invalid", invalid},
            {"interrupted", interrupted},
            {"latency", latency.to_json()}};
}

Result<ProcessResult> ProcessResult::from_json(const Json& json) {
    ProcessResult out;
    try {
        out.process = json.at("process").get<std::uint32_t>();
        out.core = optional_int(json.at("core"));
        out.numa_node = optional_int(json.at("numaNode"));
        out.is_requester = json.at("isRequester").get<bool>();
        out.start_ns = json.at("startNs").get<std::int64_t>();
        out.window_ns = json.at("windowNs").get<std::int64_t>();
        out.iterations_per_qp = json.at("iterationsPerQp").get<std::vector<std::uint64_t>>();
        out.posted = json.at("posted").get<std::uint64_t>();
        out.received = json.at("received").get<std::uint64_t>();
        out.lost = json.at("lost").get<std::uint64_t>();
        out.invalid = json.at("invalid").get<std::uint64_t>();
        out.interrupted = json.at("interrupted").get<bool>();
        Result<Histogram> latency = Histogram::from_json(json.at("latency"));
        if (!latency.ok()) return latency.error();
        out.latency = *latency;
    } catch (const std::exception& error) {
        return Error{EPROTO, std::string("a result that cannot be read: ") + error.what()};
    }
    return out;
}

Bandwidth bandwidth_of(const Plan& plan, const ProcessResult& result) {
    Bandwidth out;
    out.iterations = result.iterations();
    auto iterations = static_cast<double>(out.iterations);
    out.duration_s = static_cast<double>(result.window_ns) * 1e-9;
    auto bits = static_cast<double>(plan.bytes_per_iteration()) * 8;
    out.gbps = rate(iterations * bits, result.window_ns) * 1e-9;
    out.mpps =
        rate(iterations * static_cast<double>(plan.operations.size()), result.window_ns) * 1e-6;
    return out;
}

Bandwidth total_bandwidth(const Plan& plan, const std::vector<ProcessResult>& results) {
    Bandwidth total;
    for (const ProcessResult& result : results) {
        Bandwidth one = bandwidth_of(plan, result);
        total.gbps += one.gbps;
        total.mpps += one.mpps;
        total.duration_s += one.duration_s / static_cast<double>(results.size());
        total.iterations += one.iterations;
    }
    return total;
}

Latency latency_of(const Plan& plan, const Histogram& histogram) {
    // A ping-pong measures the way there and back; one way is reported.
    double scale = plan.is_ping_pong() ? 0.5e-3 : 1e-3;
    Latency out;
    out.count = histogram.count();
    if (out.count == 0) {
        out.min_us = out.max_us = NAN;
    } else {
        out.min_us = static_cast<double>(histogram.min_ns()) * scale;
        out.max_us = static_cast<double>(histogram.max_ns()) * scale;
    }
    out.mean_us = histogram.mean_ns() * scale;
    out.median_us = histogram.median_ns() * scale;
    out.stdev_us = histogram.stdev_ns() * scale;
    out.p99_us = histogram.percentile_ns(0.99) * scale;
    out.p999_us = histogram.percentile_ns(0.999) * scale;
    return out;
}

Histogram merged_latency(const std::vector<ProcessResult>& results) {
    Histogram all;
    for (const ProcessResult& result : results) all.merge(result.latency);
    return all;
}

std::vector<QpShare> qp_shares(const Plan& plan, const ProcessResult& result) {
    std::vector<QpShare> shares;
    auto bits = static_cast<double>(plan.bytes_per_iteration()) * 8;
    double sum = 0;
    for (std::uint64_t iterations : result.iterations_per_qp) {
        double gbps = rate(static_cast<double>(iterations) * bits, result.window_ns) * 1e-9;
        shares.push_back({static_cast<std::uint32_t>(shares.size()), gbps, 0});
        sum += gbps;
    }
    double mean = shares.empty() ? 0 : sum / static_cast<double>(shares.size());
    for (QpShare& share : shares) {
        share.deviation_percent = mean == 0 ? 0 : (share.gbps - mean) / mean * 100;
    }
    return shares;
}

void IntervalSummary::add(const Interval& interval) {
    min_gbps = count == 0 ? interval.gbps : std::min(min_gbps, interval.gbps);
    max_gbps = std::max(max_gbps, interval.gbps);
    sum_gbps += interval.gbps;
    ++count;
    if (samples.size() < kSamplesMax) samples.push_back(interval);
}

namespace {

std::uint64_t sum_of(const std::vector<ProcessResult>& results,
                     std::uint64_t ProcessResult::*member) {
    std::uint64_t sum = 0;
    for (const ProcessResult& result : results) sum += result.*member;
    return sum;
}

}  // namespace

std::uint64_t Direction::invalid() const { return sum_of(responders, &ProcessResult::invalid); }
std::uint64_t Direction::received() const { return sum_of(responders, &ProcessResult::received); }
std::uint64_t Direction::lost() const { return sum_of(requesters, &ProcessResult::lost); }

std::optional<Threshold> judge(const Plan& plan, const Direction& direction) {
    if (plan.bw_threshold_gbps > 0) {
        double gbps = total_bandwidth(plan, direction.requesters).gbps;
        return Threshold{"bw", plan.bw_threshold_gbps, gbps >= plan.bw_threshold_gbps};
    }
    if (plan.lat_threshold_us > 0) {
        double median = latency_of(plan, merged_latency(direction.requesters)).median_us;
        return Threshold{"lat", plan.lat_threshold_us, median <= plan.lat_threshold_us};
    }
    return std::nullopt;
}

int Outcome::exit_code() const {
    int code = kExitOk;
    for (const Direction& direction : directions) {
        std::optional<Threshold> threshold = judge(plan, direction);
        if (threshold && !threshold->passed) code = std::max(code, kExitThreshold);
        if (direction.invalid() > 0) code = std::max(code, kExitCorrupt);
    }
    // A bounded run that was cut short did not measure what was asked for.
    return interrupted && !plan.infinite ? kExitError : code;
}

const char* Outcome::status() const {
    if (interrupted && !plan.infinite) return "error";
    return exit_code() == kExitOk ? "pass" : "fail";
}

}  // namespace rdmalab::perftest
