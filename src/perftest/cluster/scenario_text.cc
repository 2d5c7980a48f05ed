#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "perftest/cluster/scenario_report.h"
#include "perftest/report_rows.h"
#include "perftest/scenario/table.h"

namespace rdmalab::perftest {

namespace {

constexpr std::size_t kMatrixEndpointsMax = 16;
constexpr std::size_t kRankedShown = 10;
constexpr std::size_t kFailedShown = 20;
constexpr std::size_t kEndsShown = 32;
constexpr double kSkewWarnedUs = 1000;
constexpr char kReset[] = "\x1b[0m";

bool is_latency(const ScenarioTest& test) { return test.plan.metric == Metric::kLatency; }

// Background and foreground of a cell; `share` from 0 (bad) to 1 (good): red, yellow, green.
std::string heat(double share) {
    // Of the 6x6x6 colours that terminals have.
    auto level = [](double value) {
        return static_cast<int>(std::lround(std::clamp(value, 0.0, 1.0) * 5));
    };
    int red = level(2 - 2 * share), green = level(2 * share);
    return fmt::format("\x1b[48;5;{}m\x1b[38;5;16m", 16 + 36 * red + 6 * green);
}

std::string cell_colour(const ScenarioOutcome& outcome, const DirectedResult& result, double low,
                        double high) {
    const ScenarioTest& test = outcome.test_of(result);
    if (!result.is_ok()) return heat(0);
    if (std::optional<Threshold> threshold = judge(outcome.plan_of(result), result.direction)) {
        return heat(threshold->passed ? 1 : 0);
    }
    double share = high > low ? (figure_of(outcome, result) - low) / (high - low) : 1;
    return heat(is_latency(test) ? 1 - share : share);
}

std::string figure_text(double value) { return std::isfinite(value) ? decimals(value, 2) : "N/A"; }

std::string verdict(const ScenarioOutcome& outcome, const DirectedResult& result) {
    std::optional<Threshold> threshold = judge(outcome.plan_of(result), result.direction);
    return !threshold ? "" : threshold->passed ? "  passed" : "  FAILED";
}

std::string pair_text(const ScenarioTest& test, const DirectedResult& result) {
    return fmt::format("{} -> {}", test.endpoints[result.source].label(),
                       test.endpoints[result.destination].label());
}

std::string best_and_worst(const ScenarioOutcome& outcome, std::uint32_t test) {
    std::vector<std::size_t> order = ranked(outcome, test);
    const ScenarioTest& plan = outcome.scenario->tests[test];
    std::size_t best = std::min(kRankedShown, order.size());
    std::size_t worst = std::min(kRankedShown, order.size() - best);
    std::string out;
    auto list = [&](const char* title, std::size_t from, std::size_t count) {
        out += fmt::format("{} {} connections [{}]:\n", title, count,
                           is_latency(plan) ? "usec, median" : "Gbit/sec");
        for (std::size_t i = from; i < from + count; ++i) {
            const DirectedResult& result = outcome.results[order[i]];
            out += fmt::format("  {:>12}  {}{}\n", figure_text(figure_of(outcome, result)),
                               pair_text(plan, result), verdict(outcome, result));
        }
    };
    list("Best", 0, best);
    if (worst > 0) list("Worst", order.size() - worst, worst);
    return out;
}

std::string failures(const ScenarioOutcome& outcome, std::uint32_t test) {
    std::string out;
    std::size_t count = 0;
    for (const DirectedResult& result : outcome.results) {
        if (result.test != test || result.is_ok()) continue;
        if (++count > kFailedShown) continue;
        out += fmt::format("  {}: {}\n", pair_text(outcome.test_of(result), result), result.error);
    }
    if (count == 0) return "";
    if (count > kFailedShown) out += fmt::format("  ... and {} more\n", count - kFailedShown);
    return fmt::format("Failed connections: {}\n", count) + out;
}

std::string ends_table(const ScenarioOutcome& outcome, std::uint32_t test, bool by_device) {
    const ScenarioTest& plan = outcome.scenario->tests[test];
    std::vector<Rollup> sent = rollups(outcome, test, by_device, true);
    std::vector<Rollup> received = rollups(outcome, test, by_device, false);
    std::string out = fmt::format("{} [{}]:\n", by_device ? "Devices" : "Nodes",
                                  is_latency(plan) ? "usec, median" : "Gbit/sec");
    auto lines = [&](const std::vector<Rollup>& list, const char* word) {
        for (std::size_t i = 0; i < std::min(list.size(), kEndsShown); ++i) {
            const Rollup& each = list[i];
            double value = is_latency(plan) ? latency_of(plan.plan, each.latency).median_us
                                            : each.bandwidth.gbps;
            out += fmt::format("  {:<32} {} {:>10}  ({} connections{})\n",
                               by_device ? each.host + ":" + each.device : each.host, word,
                               figure_text(value), each.connections,
                               each.failed > 0 ? fmt::format(", {} failed", each.failed) : "");
        }
        if (list.size() > kEndsShown) {
            out += fmt::format("  ... and {} more\n", list.size() - kEndsShown);
        }
    };
    lines(sent, "tx");
    lines(received, "rx");
    return out;
}

// Sums of both directions, and which pair has the least and the most.
std::string pairs_summary(const ScenarioOutcome& outcome, std::uint32_t test) {
    const ScenarioTest& plan = outcome.scenario->tests[test];
    if (!plan.is_bidirectional() || is_latency(plan)) return "";
    double sum = 0, low = 0, high = 0;
    std::size_t count = 0;
    std::string lowest, highest;
    for (std::size_t i = 0; i + 1 < outcome.results.size(); ++i) {
        const DirectedResult& there = outcome.results[i];
        const DirectedResult& back = outcome.results[i + 1];
        if (there.test != test || !back.is_way_back || !there.is_ok()) continue;
        double both = figure_of(outcome, there) + figure_of(outcome, back);
        std::string pair = fmt::format("{} <-> {}", plan.endpoints[there.source].label(),
                                       plan.endpoints[there.destination].label());
        if (count == 0 || both < low) {
            low = both;
            lowest = pair;
        }
        if (count == 0 || both > high) {
            high = both;
            highest = pair;
        }
        sum += both;
        ++count;
    }
    if (count == 0) return "";
    auto line = [](const char* label, double value, const std::string& pair) {
        std::string text = row(label, decimals(value, 2), "Gbit/sec");
        text.pop_back();
        return text + (pair.empty() ? "" : "  " + pair) + "\n";
    };
    return "BIDIR Connections Summary\n" +
           line("Average BW:", sum / static_cast<double>(count), "") +
           line("Minimum BW:", low, lowest) + line("Maximum BW:", high, highest);
}

std::string totals(const ScenarioOutcome& outcome, std::uint32_t test) {
    const ScenarioTest& plan = outcome.scenario->tests[test];
    Rollup total = rollup_of_test(outcome, test);
    std::string out;
    if (is_latency(plan)) {
        out += latency_rows(latency_of(plan.plan, total.latency));
    } else if (plan.iteration_sync && plan.sizes) {
        out += row("BW:", "N/A", "Gbit/sec");
    } else {
        out += bandwidth_rows(total.bandwidth);
    }
    if (total.min_gbps && total.connections > 1) {
        out += row("Slowest connection:", decimals(*total.min_gbps, 2), "Gbit/sec");
        out += row("Fastest connection:", decimals(*total.max_gbps, 2), "Gbit/sec");
    }
    out += plain_row("Connections:", fmt::format("{}", total.connections));
    if (plan.plan.validate) {
        std::uint64_t invalid = 0;
        for (const DirectedResult& result : outcome.results) {
            if (result.test == test) invalid += result.direction.invalid();
        }
        out += plain_row("Invalid messages:", fmt::format("{}", invalid));
    }
    if (total.passed) {
        bool bandwidth = plan.plan.bw_threshold_gbps > 0;
        out += fmt::format(
            "Threshold of every connection: {} {} {}: {}\n",
            bandwidth ? "at least" : "median at most",
            decimals(bandwidth ? plan.plan.bw_threshold_gbps : plan.plan.lat_threshold_us, 2),
            bandwidth ? "Gbit/sec" : "usec", *total.passed ? "passed" : "FAILED");
    }
    if (plan.iteration_sync) {
        out +=
            "In lock-step everybody waits for the slowest; that is far below streaming, by "
            "design.\n";
    }
    return out;
}

std::string skew_text(const ScenarioOutcome& outcome) {
    Skew skew = outcome.skew();
    std::string out = fmt::format(
        "{} processes started within {:.1f} us, stopped within {:.1f} us (clocks known "
        "to {:.1f} us)\n",
        outcome.timings.size(), skew.start_us, skew.stop_us, skew.clock_error_us);
    if (skew.start_us > kSkewWarnedUs) {
        out += fmt::format("warning: they started {:.1f} ms apart; more processes than cores?\n",
                           skew.start_us * 1e-3);
    }
    return out;
}

}  // namespace

double figure_of(const ScenarioOutcome& outcome, const DirectedResult& result) {
    Plan plan = outcome.plan_of(result);
    if (plan.metric == Metric::kLatency) {
        return latency_of(plan, merged_latency(result.direction.requesters)).median_us;
    }
    return total_bandwidth(plan, result.direction.requesters).gbps;
}

std::vector<std::size_t> ranked(const ScenarioOutcome& outcome, std::uint32_t test) {
    std::vector<std::pair<double, std::size_t>> list;
    bool latency = is_latency(outcome.scenario->tests[test]);
    for (std::size_t i = 0; i < outcome.results.size(); ++i) {
        const DirectedResult& result = outcome.results[i];
        if (result.test != test || !result.is_ok()) continue;
        double figure = figure_of(outcome, result);
        list.emplace_back(latency ? figure : -figure, i);
    }
    std::stable_sort(list.begin(), list.end());
    std::vector<std::size_t> out;
    for (const auto& [figure, index] : list) out.push_back(index);
    return out;
}

std::string connection_matrix(const ScenarioOutcome& outcome, std::uint32_t test,
                              const TextStyle& style) {
    const ScenarioTest& plan = outcome.scenario->tests[test];
    std::size_t count = plan.endpoints.size();
    std::string out = fmt::format("Test: {}, endpoints: {}\n", plan.name, count);
    if (count > kMatrixEndpointsMax) return out + best_and_worst(outcome, test);
    PairTable table;
    table.endpoints = plan.endpoints;
    table.cells.assign(count, std::vector<std::string>(count, ""));
    for (std::size_t i = 0; i < count; ++i) table.cells[i][i] = "-";
    std::vector<std::size_t> order = ranked(outcome, test);
    double low = 0, high = 0;
    if (!order.empty()) {
        low = figure_of(outcome, outcome.results[order.front()]);
        high = figure_of(outcome, outcome.results[order.back()]);
        if (low > high) std::swap(low, high);
    }
    if (style.colours) {
        table.before =
            std::vector<std::vector<std::string>>(count, std::vector<std::string>(count));
        table.after = kReset;
    }
    for (const DirectedResult& result : outcome.results) {
        if (result.test != test) continue;
        table.cells[result.source][result.destination] =
            result.is_ok() ? figure_text(figure_of(outcome, result)) : "failed";
        if (!style.colours) continue;
        table.before[result.source][result.destination] = cell_colour(outcome, result, low, high);
    }
    return out + host_line(plan.endpoints) +
           (is_latency(plan) ? "Connection Matrix [usec, median]:\n"
                             : "Connection Matrix [Gbit/sec]:\n") +
           draw(table);
}

std::string text_report(const ScenarioOutcome& outcome, const TextStyle& style) {
    std::string out;
    for (std::uint32_t i = 0; i < outcome.scenario->tests.size(); ++i) {
        const ScenarioTest& test = outcome.scenario->tests[i];
        out += fmt::format("{}Test: {}\n", i == 0 ? "" : "\n", test.name) + totals(outcome, i);
        if (outcome.hosts.size() > 1) out += ends_table(outcome, i, false);
        out += ends_table(outcome, i, true) + pairs_summary(outcome, i) + failures(outcome, i);
        if (test.prints_matrix) out += "\n" + connection_matrix(outcome, i, style);
    }
    out += "\n" + skew_text(outcome);
    if (outcome.interrupted) out += "Interrupted: the windows are incomplete.\n";
    for (const std::string& error : outcome.errors) out += "error: " + error + "\n";
    return out;
}

}  // namespace rdmalab::perftest
