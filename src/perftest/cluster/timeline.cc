#include "perftest/cluster/timeline.h"

#include <fmt/format.h>

namespace rdmalab::perftest {

namespace {

constexpr std::int64_t kPointNs = 1'000'000'000;
// Of a run of days: later ones are not kept.
constexpr std::size_t kPointsMax = 100'000;

}  // namespace

Timeline::Timeline(const Scenario& scenario, std::size_t agents)
    : scenario_(scenario), iterations_(agents, std::vector<std::uint64_t>(scenario.tests.size())) {
    for (const ScenarioTest& test : scenario.tests) {
        double bytes = 0;
        for (const ScenarioConnection& each : test.connections) {
            bytes += static_cast<double>(test.bytes_of(each));
        }
        double count = static_cast<double>(std::max<std::size_t>(test.connections.size(), 1));
        bits_.push_back(bytes / count * 8);
    }
}

void Timeline::handle(std::uint32_t agent, const std::vector<std::uint64_t>& iterations) {
    if (iterations.size() == iterations_[agent].size()) iterations_[agent] = iterations;
}

std::vector<std::uint64_t> Timeline::sums() const {
    std::vector<std::uint64_t> out(scenario_.tests.size());
    for (const auto& of_agent : iterations_) {
        for (std::size_t i = 0; i < out.size(); ++i) out[i] += of_agent[i];
    }
    return out;
}

bool Timeline::poll(std::int64_t now_ns) {
    if (start_ns_ == 0 || now_ns < start_ns_ || now_ns - last_ns_ < kPointNs) return false;
    std::vector<std::uint64_t> now = sums();
    bool first = last_ns_ == 0;
    TimelinePoint point{static_cast<double>(now_ns - start_ns_) * 1e-9, {}};
    for (std::size_t i = 0; i < now.size() && !first; ++i) {
        auto done = static_cast<double>(now[i] < last_[i] ? 0 : now[i] - last_[i]);
        point.gbps.push_back(done * bits_[i] / static_cast<double>(now_ns - last_ns_));
    }
    last_ = std::move(now);
    last_ns_ = now_ns;
    if (first || points_.size() == kPointsMax) return false;
    points_.push_back(std::move(point));
    return true;
}

std::string Timeline::text() const {
    if (points_.empty()) return "";
    std::string out;
    for (std::size_t i = 0; i < scenario_.tests.size() && i < 3; ++i) {
        const ScenarioTest& test = scenario_.tests[i];
        if (test.plan.metric == Metric::kLatency) continue;
        out +=
            fmt::format("{}{}{:.2f}", out.empty() ? "" : ", ",
                        scenario_.tests.size() > 1 ? test.name + " " : "", points_.back().gbps[i]);
    }
    return out.empty() ? out : out + " Gbit/sec";
}

}  // namespace rdmalab::perftest
