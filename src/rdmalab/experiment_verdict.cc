#include "rdmalab/experiment_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace rdmalab::launcher {

namespace {

constexpr double kFlowRatioMin = 0.8, kFlowRatioMax = 1.25;
constexpr double kSigmas = 5;  // of the binomial distribution

class Judge {
public:
    Judge(const ExperimentFacts& facts, const ExperimentExpectation& expected)
        : facts_(facts), expected_(expected) {}

    std::vector<Criterion> run() {
        check_messages();
        check_mapping();
        check_senders();
        check_shares();
        check_paths();
        check_losses();
        return std::move(criteria_);
    }

private:
    void add(std::string name, std::string expected, std::string found, bool passed) {
        criteria_.push_back({std::move(name), std::move(expected), std::move(found), passed});
    }
    void add_range(std::string name, double low, double high, double found) {
        add(std::move(name), fmt::format("{:.2f} to {:.2f}", low, high),
            fmt::format("{:.2f}", found), found >= low && found <= high);
    }

    // --- what the programs said
    static std::size_t find(const std::vector<std::string>& lines, const std::string& part,
                            std::size_t from = 0) {
        for (std::size_t i = from; i < lines.size(); ++i) {
            if (lines[i].find(part) != std::string::npos) return i;
        }
        return lines.size();
    }
    void check_messages() {
        const std::string classifier = expected_.compat == "2.9"
                                           ? "Legacy random HASH ready: "
                                           : "Classify random-bucket pipe ready: ";
        const auto& lines = facts_.pcc_lines;
        const std::size_t dispatch = find(lines, "EGRESS_BUCKET_DISPATCH ready: ");
        const std::size_t classify = find(lines, classifier);
        add("egress pipeline", "dispatch ready, then classifier ready",
            classify == lines.size() ? "not ready" : "both, in this order",
            dispatch < classify && classify < lines.size());
        const bool started =
            find(facts_.ingress_lines, "steer started (role=ingress") < facts_.ingress_lines.size();
        add("ingress pipeline", "steer started (role=ingress", started ? "started" : "not started",
            started);
    }
    void check_mapping() {
        const bool by_request = expected_.compat != "2.9" && expected_.sees_requests;
        const std::string what = by_request ? "RDMA-CM REQ grouping: " : "RoCE feedback grouping: ";
        const std::size_t paths = expected_.percents.size();
        std::size_t found = 0;
        for (std::size_t path = 0; path < paths; ++path) {
            for (const std::string& line : facts_.pcc_lines) {
                if (line.starts_with(what) && line.ends_with(fmt::format("-> path{}", path))) {
                    ++found;
                    break;
                }
            }
        }
        add("flows mapped to paths",
            fmt::format("{} lines \"{}\"", paths, what.substr(0, what.size() - 2)),
            fmt::format("{}", found), found == paths);
        double mapped_after = INFINITY;
        for (const EgressSample& sample : facts_.egress) {
            if (sample.time_s < facts_.traffic_begin_s || sample.pending_map > 0 ||
                sample.flows.size() < paths) {
                continue;
            }
            mapped_after = sample.time_s - facts_.traffic_begin_s;
            break;
        }
        const double pending_at_end = facts_.egress.empty() ? 1 : facts_.egress.back().pending_map;
        add("pending-map=0",
            fmt::format("within {:.0f} s, and at the end", expected_.map_deadline_s),
            std::isinf(mapped_after) ? "never" : fmt::format("after {:.1f} s", mapped_after),
            mapped_after <= expected_.map_deadline_s && pending_at_end == 0);
    }

    // --- the programs that made the traffic
    void check_senders() {
        add("senders and receivers", "run without transport errors",
            facts_.sender_troubles.empty() ? "they did" : facts_.sender_troubles.front(),
            facts_.sender_troubles.empty());
        const auto& rates = facts_.flow_gigabits_per_second;
        if (rates.empty()) return add("flow0/flow1", "throughput", "nothing was received", false);
        const auto [low, high] = std::ranges::minmax(rates);
        add("flows", "throughput above 0", fmt::format("{:.2f} Gb/s at least", low), low > 0);
        if (rates.size() == 2) {
            add_range("flow0/flow1 throughput", kFlowRatioMin, kFlowRatioMax, rates[0] / rates[1]);
        } else {
            add_range("slowest/fastest flow", kFlowRatioMin, kFlowRatioMax, low / high);
        }
    }

    // --- the controller
    bool is_steady(double time_s) const {
        return time_s > facts_.steady_begin_s && time_s <= facts_.traffic_end_s;
    }
    void check_shares() {
        const double even =
            static_cast<double>(expected_.buckets) / static_cast<double>(expected_.percents.size());
        const bool began_even = !facts_.egress.empty() &&
                                find(facts_.pcc_lines, " ratio=") < facts_.pcc_lines.size() &&
                                began_with_even_split();
        add("first shares", fmt::format("{:.0f} buckets per path", even),
            began_even ? "so it began" : "others", began_even);
        const double wanted = analytic_shares(expected_.percents, expected_.buckets)[0];
        if (std::abs(wanted - even) > 1) check_direction(even, wanted);
        double sum = 0, count = 0;
        for (const EgressSample& sample : facts_.egress) {
            if (!is_steady(sample.time_s) || sample.applied.empty()) continue;
            sum += sample.applied[0];
            ++count;
        }
        const double mean = count == 0 ? 0 : sum / count;
        const double tolerance = expected_.share_tolerance * expected_.buckets / 64;
        add("path 0's steady share",
            fmt::format("{:.1f} +- {:.0f} of {}", wanted, tolerance, expected_.buckets),
            fmt::format("{:.1f}", mean), count > 0 && std::abs(mean - wanted) <= tolerance);
    }
    // As the first counters say, or the first change of shares that came before them.
    bool began_with_even_split() const {
        const std::uint32_t paths = static_cast<std::uint32_t>(expected_.percents.size());
        std::string ratio = " ratio=";
        std::uint32_t begin = 0, first_share = 0;
        for (std::uint32_t path = 0; path < paths; ++path) {
            const std::uint32_t end = (expected_.buckets * (path + 1) + paths - 1) / paths;
            ratio += fmt::format("{}{}", path == 0 ? "" : ":", end - begin);
            if (path == 0) first_share = end;
            begin = end;
        }
        const auto& lines = facts_.pcc_lines;
        const std::size_t first = find(lines, " ratio=");
        const std::string change = fmt::format("PCC path share applied: path0 {}->", first_share);
        return lines[first].find(ratio + " buckets") != std::string::npos ||
               find(lines, change) < first;
    }
    void check_direction(double even, double wanted) {
        double after = INFINITY, latest = even;
        const auto moved = [&](double share) {
            return wanted > even ? share > even : share < even;
        };
        for (const EgressSample& sample : facts_.egress) {
            if (sample.time_s < facts_.traffic_begin_s || sample.applied.empty()) continue;
            latest = sample.applied[0];
            if (moved(latest) && std::isinf(after)) after = sample.time_s - facts_.traffic_begin_s;
        }
        add("path 0's share moves",
            fmt::format("{} {:.0f} within {:.0f} s", wanted > even ? "above" : "below", even,
                        expected_.share_deadline_s),
            std::isinf(after) ? "never"
                              : fmt::format("after {:.1f} s; {:.0f} at the end", after, latest),
            after <= expected_.share_deadline_s && moved(latest));
    }

    // --- the paths
    void check_paths() {
        const double begin = facts_.steady_begin_s, end = facts_.traffic_end_s;
        const auto packets = sum_between(facts_.ingress, &IngressSample::packets, begin, end);
        const auto marked = sum_between(facts_.ingress, &IngressSample::marked, begin, end);
        const auto gbps =
            sum_between(facts_.ingress, &IngressSample::gigabits_per_second, begin, end);
        if (gbps.size() < 2 || gbps[0] <= 0 || gbps[1] <= 0) {
            return add("path throughput", "traffic on every path", "none", false);
        }
        const auto shares = analytic_shares(expected_.percents, expected_.buckets);
        const double ratio = shares[0] / shares[1];
        const bool leans_to_0 = ratio >= 1;
        // The tutorial's bounds, or their mirror image, around the ratio that is to be.
        if (ratio > 0.5 && ratio < 2) {
            add_range("path0/path1 throughput",
                      std::abs(ratio - 1) < 0.1 ? 0.75
                      : leans_to_0              ? 1
                                                : 0.5,
                      std::abs(ratio - 1) < 0.1 ? 1.33
                      : leans_to_0              ? 2
                                                : 1,
                      gbps[0] / gbps[1]);
        } else {
            add_range("path0/path1 throughput", ratio * 0.75, ratio * 1.33, gbps[0] / gbps[1]);
        }
        if (expected_.percents[0] > 0 && expected_.percents[1] > 0) {
            const double marks = expected_.percents[1] / expected_.percents[0];
            const double found = marked[0] > 0 ? (marked[1] / gbps[1]) / (marked[0] / gbps[0]) : 0;
            add_range("(CE1/bw1)/(CE0/bw0)", 0.75 * marks, 1.25 * marks, found);
        }
        check_packets(begin, end);
    }
    // Of the packets that were assigned while a split was in force, as many as the split says.
    void check_packets(double begin, double end) {
        double total = 0, expected = 0, found = 0, variance = 0;
        for (std::size_t i = 1; i < facts_.egress.size(); ++i) {
            const EgressSample& sample = facts_.egress[i];
            if (sample.time_s <= begin || sample.time_s > end || sample.packets.empty()) continue;
            // The split that was applied at the end of the interval before was in force in this.
            const double share = facts_.egress[i - 1].applied[0] / sample.buckets;
            double all = 0;
            for (double packets : sample.packets) all += packets;
            total += all;
            expected += all * share;
            variance += all * share * (1 - share);
            found += sample.packets[0];
        }
        if (total == 0) return add("packets follow buckets", "traffic", "none", false);
        const double bound = kSigmas * std::sqrt(variance) / total + kUpdateSlack;
        add("packets follow buckets",
            fmt::format("{:.4f} +- {:.4f} on path 0", expected / total, bound),
            fmt::format("{:.4f}", found / total), std::abs(found - expected) / total <= bound);
    }
    void check_losses() {
        double updates = 0, failures = 0;
        for (const EgressSample& sample : facts_.egress) updates += sample.updates;
        if (!facts_.egress.empty()) failures = facts_.egress.back().failures_total;
        std::string found = fmt::format("{:.0f} updates, {:.0f} failed", updates, failures);
        for (const auto& [name, count] : facts_.losses)
            found += fmt::format(", {}={}", name, count);
        add("share updates", expected_.losses_allowed ? "none fails" : "none fails, no packet lost",
            found, failures == 0 && (expected_.losses_allowed || facts_.losses.empty()));
    }

    // An update of shares takes a moment of its interval, and its packets count for either split.
    static constexpr double kUpdateSlack = 0.002;

    const ExperimentFacts& facts_;
    const ExperimentExpectation& expected_;
    std::vector<Criterion> criteria_;
};

}  // namespace

std::vector<double> analytic_shares(const std::vector<double>& percents, std::uint32_t buckets) {
    const double minimum = std::max(1u, 3 * buckets / 64);
    const auto clean = static_cast<std::size_t>(std::ranges::count(percents, 0.0));
    std::vector<double> shares;
    if (clean > 0 && clean < percents.size()) {
        const double rest = buckets - minimum * static_cast<double>(percents.size() - clean);
        for (double percent : percents) {
            shares.push_back(percent == 0 ? rest / static_cast<double>(clean) : minimum);
        }
        return shares;
    }
    double sum = 0;
    for (double percent : percents) {
        shares.push_back(clean > 0 ? 1 : 1 / std::sqrt(percent));
        sum += shares.back();
    }
    for (double& share : shares) share *= buckets / sum;
    return shares;
}

std::vector<Criterion> judge(const ExperimentFacts& facts, const ExperimentExpectation& expected) {
    return Judge(facts, expected).run();
}

bool all_passed(const std::vector<Criterion>& criteria) {
    return std::ranges::all_of(criteria, &Criterion::passed);
}

}  // namespace rdmalab::launcher
