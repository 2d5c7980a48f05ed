#include "perftest/cluster/outcome.h"

#include <algorithm>
#include <map>

#include "perftest/failure.h"

namespace rdmalab::perftest {

namespace {

void add(const ScenarioOutcome& outcome, const DirectedResult& result, Rollup& into) {
    ++into.connections;
    if (!result.is_ok()) {
        ++into.failed;
        return;
    }
    Plan plan = outcome.plan_of(result);
    if (plan.metric == Metric::kLatency) {
        into.latency.merge(merged_latency(result.direction.requesters));
    } else {
        Bandwidth one = total_bandwidth(plan, result.direction.requesters);
        into.bandwidth.gbps += one.gbps;
        into.bandwidth.mpps += one.mpps;
        into.bandwidth.duration_s += one.duration_s;
        into.bandwidth.iterations += one.iterations;
        into.min_gbps = std::min(into.min_gbps.value_or(one.gbps), one.gbps);
        into.max_gbps = std::max(into.max_gbps.value_or(one.gbps), one.gbps);
    }
    if (std::optional<Threshold> threshold = judge(plan, result.direction)) {
        into.passed = into.passed.value_or(true) && threshold->passed;
    }
}

void finish(Rollup& rollup) {
    std::uint64_t good = rollup.connections - rollup.failed;
    if (good > 0) rollup.bandwidth.duration_s /= static_cast<double>(good);
    if (rollup.failed > 0 && rollup.passed) rollup.passed = false;
}

double spread_us(const std::vector<WorkerTiming>& timings, std::int64_t WorkerTiming::*member) {
    std::int64_t first = INT64_MAX, last = INT64_MIN;
    for (const WorkerTiming& each : timings) {
        if (each.*member == 0) continue;
        first = std::min(first, each.*member);
        last = std::max(last, each.*member);
    }
    return last < first ? 0 : static_cast<double>(last - first) * 1e-3;
}

}  // namespace

Plan ScenarioOutcome::plan_of(const DirectedResult& result) const {
    return test_of(result).plan_of({result.source, result.destination, result.phase});
}

Skew ScenarioOutcome::skew() const {
    Skew out{spread_us(timings, &WorkerTiming::started_ns),
             spread_us(timings, &WorkerTiming::stopped_ns), 0};
    for (const HostClock& clock : clocks) {
        out.clock_error_us =
            std::max(out.clock_error_us, static_cast<double>(clock.error_ns) * 1e-3);
    }
    return out;
}

// 1 beats 3 beats 2.
int ScenarioOutcome::exit_code() const {
    if (interrupted || !errors.empty()) return kExitError;
    int code = kExitOk;
    for (const DirectedResult& result : results) {
        if (!result.is_ok()) return kExitError;
        std::optional<Threshold> threshold = judge(plan_of(result), result.direction);
        if (threshold && !threshold->passed) code = std::max(code, kExitThreshold);
        if (result.direction.invalid() > 0) code = std::max(code, kExitCorrupt);
    }
    return code;
}

const char* ScenarioOutcome::status() const {
    int code = exit_code();
    return code == kExitOk ? "pass" : code == kExitError ? "error" : "fail";
}

Rollup rollup_of_test(const ScenarioOutcome& outcome, std::uint32_t test) {
    Rollup out;
    out.test = outcome.scenario->tests[test].name;
    for (const DirectedResult& result : outcome.results) {
        if (result.test == test) add(outcome, result, out);
    }
    finish(out);
    return out;
}

std::vector<Rollup> rollups(const ScenarioOutcome& outcome, std::uint32_t test, bool by_device,
                            bool sent) {
    const ScenarioTest& plan = outcome.scenario->tests[test];
    std::map<std::string, std::size_t> index;
    std::vector<Rollup> out;
    for (const DirectedResult& result : outcome.results) {
        if (result.test != test) continue;
        const TestEndpoint& end = plan.endpoints[sent ? result.source : result.destination];
        std::string key = by_device ? end.host + " " + end.device : end.host;
        auto [entry, is_new] = index.try_emplace(key, out.size());
        if (is_new) {
            Rollup rollup;
            rollup.test = plan.name;
            rollup.host = end.host;
            if (by_device) rollup.device = end.device;
            out.push_back(std::move(rollup));
        }
        add(outcome, result, out[entry->second]);
    }
    for (Rollup& rollup : out) finish(rollup);
    return out;
}

}  // namespace rdmalab::perftest
