#include "perftest/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "perftest/report_rows.h"

namespace rdmalab::perftest {

namespace {

std::string verbs_text(const Plan& plan) {
    std::string out;
    for (const Operation& operation : plan.operations) {
        out += fmt::format("{}{} {} B", out.empty() ? "" : " + ", name_of(operation.verb),
                           operation.size);
    }
    return out;
}

std::string end_text(const Json& end) {
    std::string out = fmt::format("{}:{}", end.value("host", "?"), end.value("device", "?"));
    const Json gid = end.value("gid", Json());
    if (!gid.is_object()) return out + fmt::format(", LID {}", end.value("lid", 0));
    return out + fmt::format(", GID {} {} {}", gid.value("index", 0), gid.value("type", ""),
                             gid.value("address", ""));
}

std::string psn_text(const Json& end) {
    std::string out;
    for (const Json& process : end.value("processes", Json::array())) {
        for (const Json& psn : process.value("psns", Json::array())) {
            if (out.size() > 40) return out + ", ...";
            out += fmt::format("{}{}", out.empty() ? "" : ", ", psn.get<std::uint32_t>());
        }
    }
    return out;
}

std::string histogram_rows(const Plan& plan, const ProcessResult& result) {
    constexpr double kCellsMax = 40;
    constexpr std::size_t kFieldWidth =
        50;  // bar and value; " Gbit/sec" begins 50 after the bar does
    std::vector<QpShare> shares = qp_shares(plan, result);
    double largest = 0;
    for (const QpShare& share : shares) largest = std::max(largest, share.gbps);
    std::string out;
    for (const QpShare& share : shares) {
        auto cells = static_cast<std::size_t>(
            largest > 0 ? std::lround(share.gbps / largest * kCellsMax) : 0);
        std::string label = fmt::format("Qp num {}:", share.qp), bar, value;
        for (std::size_t i = 0; i < cells; ++i) bar += "\u2588";
        value = fmt::format("{:.2f}", share.gbps);
        std::size_t padding = kFieldWidth > cells ? kFieldWidth - cells : 1;
        out +=
            fmt::format("{}  {}{:>{}} Gbit/sec  |  Relative deviation: {:.1f}%\n", label, bar,
                        value, padding, share.deviation_percent == 0 ? 0 : share.deviation_percent);
    }
    return out;
}

std::string qp_histogram(const Plan& plan, const Direction& direction) {
    std::string out = "--------------------- QP WORK DISTRIBUTION ---------------------\n";
    for (const ProcessResult& result : direction.requesters) {
        if (direction.requesters.size() > 1) out += fmt::format("Process {}:\n", result.process);
        out += histogram_rows(plan, result);
    }
    return out;
}

std::string judgement(const Plan& plan, const Direction& direction) {
    std::string out;
    if (plan.validate) {
        out += plain_row("Invalid messages:", fmt::format("{}", direction.invalid()));
    }
    if (direction.lost() > 0) {
        out += plain_row("Lost (no answer within 0.5 s):", fmt::format("{}", direction.lost()));
    }
    if (plan.sends_receives() && !plan.is_ping_pong() && plan.transport != Transport::kRc) {
        std::uint64_t posted = 0;
        for (const ProcessResult& each : direction.requesters) posted += each.posted;
        posted *= plan.receives_per_iteration();
        std::uint64_t received = direction.received();
        out += plain_row("Messages sent, received (whole run):",
                         fmt::format(" {}, {}", posted, received));
    }
    if (std::optional<Threshold> threshold = judge(plan, direction)) {
        bool bandwidth = plan.bw_threshold_gbps > 0;
        out += fmt::format("Threshold: {} {} {}: {}\n", bandwidth ? "at least" : "median at most",
                           decimals(threshold->value, 2), bandwidth ? "Gbit/sec" : "usec",
                           threshold->passed ? "passed" : "FAILED");
    }
    return out;
}

std::string direction_text(const Plan& plan, const Direction& direction) {
    std::string out;
    if (plan.metric == Metric::kLatency) {
        out += latency_rows(latency_of(plan, merged_latency(direction.requesters)));
    } else {
        out += bandwidth_rows(total_bandwidth(plan, direction.requesters));
        if (direction.intervals.count > 0) {
            out += row("Interval BW min:", decimals(direction.intervals.min_gbps, 2), "Gbit/sec");
            out +=
                row("Interval BW avg:", decimals(direction.intervals.mean_gbps(), 2), "Gbit/sec");
            out += row("Interval BW max:", decimals(direction.intervals.max_gbps, 2), "Gbit/sec");
        }
    }
    if (plan.qp_histogram) out += qp_histogram(plan, direction);
    return out + judgement(plan, direction);
}

}  // namespace

std::string text_heading(const Outcome& outcome) {
    const Plan& plan = outcome.plan;
    std::string out = fmt::format("{} {} {}{}, {} process(es) with {} queue pair(s), MTU {}\n",
                                  name_of(plan.transport), verbs_text(plan),
                                  plan.metric == Metric::kLatency ? "latency" : "bandwidth",
                                  plan.bidirectional ? ", bidirectional" : "", plan.processes,
                                  plan.qps, outcome.client.value("mtu", 0));
    out +=
        fmt::format("client {}\nserver {}\n", end_text(outcome.client), end_text(outcome.server));
    out += fmt::format("start PSN: client {}; server {}\n", psn_text(outcome.client),
                       psn_text(outcome.server));
    for (const Json* end : {&outcome.client, &outcome.server}) {
        for (const Json& process : end->value("processes", Json::array())) {
            std::string note = process.value("note", "");
            if (!note.empty()) return out + note + "\n";
            for (const Json& ece : process.value("ece", Json::array())) {
                return out + fmt::format("ECE: vendor {:#x}, options {:#x}\n",
                                         ece.value("vendorId", 0u), ece.value("options", 0u));
            }
        }
    }
    return out;
}

std::string text_report(const Outcome& outcome) {
    std::string out;
    for (const Direction& direction : outcome.directions) {
        if (outcome.directions.size() > 1) {
            out += fmt::format("{}:{} -> {}:{}\n", direction.source_host, direction.source_device,
                               direction.destination_host, direction.destination_device);
        }
        out += direction_text(outcome.plan, direction);
    }
    if (outcome.directions.size() > 1) {
        Bandwidth sum;
        for (const Direction& direction : outcome.directions) {
            Bandwidth one = total_bandwidth(outcome.plan, direction.requesters);
            sum.gbps += one.gbps;
            sum.mpps += one.mpps;
        }
        out += "Both directions together\n";
        out += row("BW:", decimals(sum.gbps, sum.gbps < 0.1 ? 6 : 2), "Gbit/sec");
        out += row("Message Rate:", rate_text(sum.mpps), "Mpps");
    }
    if (outcome.plan.metric == Metric::kLatency) {
        std::string definition = outcome.plan.latency_definition();
        std::replace(definition.begin(), definition.end(), '_', ' ');
        out += fmt::format("Latency is the {}.\n", definition == "half round trip"
                                                       ? "half of the round trip"
                                                       : definition + " time");
    }
    if (outcome.interrupted && !outcome.plan.infinite)
        out += "Interrupted: the window is incomplete.\n";
    return out;
}

std::string text_interval(const char* label, const Interval& interval) {
    return fmt::format("{:8.1f} s {} BW: {:>10} [Gbit/sec]  Message Rate: {:>10} [Mpps]\n",
                       interval.at_s, label, decimals(interval.gbps, 2), rate_text(interval.mpps));
}

}  // namespace rdmalab::perftest
