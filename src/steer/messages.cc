#include "steer/messages.h"

#include <fmt/format.h>

#include <bit>
#include <iterator>

namespace rdmalab::steer::messages {

namespace {

// "path0=A path1=B ...", each made by `print(path)`.
template <class Print>
std::string per_path(std::size_t paths, const char* separator, Print print) {
    std::string text;
    for (std::size_t path = 0; path < paths; ++path) {
        fmt::format_to(std::back_inserter(text), "{}path{}{}", path == 0 ? "" : separator, path,
                       print(path));
    }
    return text;
}

std::string print_count_rates(std::span<const CountRate> paths) {
    return per_path(paths.size(), " ", [&](std::size_t path) {
        return fmt::format("={} (+{}, {:.0f}/s)", paths[path].total, paths[path].delta,
                           paths[path].per_second);
    });
}

}  // namespace

std::string dispatch_ready() {
    return "EGRESS_BUCKET_DISPATCH ready: meta.u32[4] bucket -> changeable path forward";
}
std::string classifier_ready() {
    return "Classify random-bucket pipe ready: HASH/random writes bucket to meta.u32[4]";
}
std::string legacy_classifier_ready(std::uint32_t buckets) {
    return fmt::format("Legacy random HASH ready: {} bits, {} immutable metadata buckets",
                       std::countr_zero(buckets), buckets);
}

std::string started(const std::string& role, std::span<const double> percents) {
    const std::string paths = per_path(percents.size(), " ", [&](std::size_t path) {
        return fmt::format("={:.4g}%", percents[path]);
    });
    return fmt::format("steer started (role={}, {})", role, paths);
}
std::string sampling(std::uint32_t path, double intended_percent, double selected_percent) {
    return fmt::format("Path{} CE sampling: intended all-traffic={:.4g}% selected-class={:.4g}%",
                       path, intended_percent, selected_percent);
}

std::string request_grouping(const CmConnection& connection) {
    return fmt::format("RDMA-CM REQ grouping: sender QPN 0x{:06x} receiver IP=0x{:08x} -> path{}",
                       connection.sender.value, connection.receiver_ip, connection.path);
}
std::string feedback_grouping(const CmConnection& connection) {
    return fmt::format("RoCE feedback grouping: sender QPN 0x{:06x} receiver IP=0x{:08x} -> path{}",
                       connection.sender.value, connection.receiver_ip, connection.path);
}
std::string mapping(const CmConnection& connection) {
    return fmt::format("RDMA-CM mapping: sender 0x{:06x} -> receiver 0x{:06x} path{}",
                       connection.sender.value, connection.receiver.value_or(Qpn{}).value,
                       connection.path);
}
std::string connection_ended(const CmConnection& connection) {
    return fmt::format("RDMA-CM disconnect: sender 0x{:06x} path{}", connection.sender.value,
                       connection.path);
}
std::string cnp_counter_installed(const CmConnection& connection) {
    return fmt::format(
        "sender CNP counter installed: sender QPN 0x{:06x} -> receiver QPN 0x{:06x} path{}",
        connection.sender.value, connection.receiver.value_or(Qpn{}).value, connection.path);
}
std::string path_class(Qpn sender, std::uint32_t rate, std::uint32_t path) {
    return fmt::format("egress path class: PCC sender QPN 0x{:06x} rate={} IP-path={}",
                       sender.value, rate, path);
}

std::string diagnostic(const Signals& signals, const std::optional<BucketSplit>& target,
                       const BucketSplit& applied) {
    const std::size_t paths = applied.paths();
    const BucketSplit& wanted = target ? *target : applied;
    const std::uint32_t buckets = applied.buckets();
    const auto facts = [&](std::size_t path) {
        const PathSignal& signal = signals.paths[path];
        return fmt::format(" total={} full={} reduced={} sum={} avg={}", signal.total, signal.full,
                           signal.reduced, signal.sum, signal.average());
    };
    const auto share_of = [buckets](const BucketSplit& split) {
        return [&split, buckets](std::size_t path) {
            return fmt::format("={}/{}", split.share(static_cast<std::uint32_t>(path)), buckets);
        };
    };
    return fmt::format("PCC path-share diagnostic: {}; pending-map={}; target {}; applied {}",
                       per_path(paths, "; ", facts), signals.pending_map,
                       per_path(paths, " ", share_of(wanted)),
                       per_path(paths - 1, " ", share_of(applied)));
}

std::string share_applied(const BucketSplit& before, const BucketSplit& after) {
    std::string text = fmt::format("PCC path share applied: path0 {}->{}/{}", before.share(0),
                                   after.share(0), after.buckets());
    for (std::uint32_t path = 1; path < after.paths(); ++path) {
        fmt::format_to(std::back_inserter(text), " path{}={}/{}", path, after.share(path),
                       after.buckets());
    }
    return text;
}
std::string update_failed(std::uint32_t bucket, const std::string& reason) {
    return fmt::format("path-share update failed at bucket {} ({}); will retry", bucket, reason);
}
std::string assigned_counters(std::span<const std::uint64_t> packets, const BucketSplit& split) {
    std::string ratio;
    for (std::uint32_t path = 0; path < split.paths(); ++path) {
        fmt::format_to(std::back_inserter(ratio), "{}{}", path == 0 ? "" : ":", split.share(path));
    }
    return fmt::format(
        "egress assigned counters: {} ratio={} buckets",
        per_path(packets.size(), " ",
                 [&](std::size_t path) { return fmt::format("={}", packets[path]); }),
        ratio);
}

std::string throughput(std::span<const double> gigabits) {
    double total = 0;
    for (double value : gigabits) total += value;
    const std::string paths = per_path(gigabits.size(), " ", [&](std::size_t path) {
        return fmt::format("={:.3f} Gbps", gigabits[path]);
    });
    return fmt::format("ingress throughput: {} total={:.3f} Gbps", paths, total);
}
std::string newly_marked(std::span<const CountRate> paths) {
    return "ingress newly CE-marked: " + print_count_rates(paths);
}
std::string received_cnps(std::span<const CountRate> paths) {
    return "sender received raw CNP: " + print_count_rates(paths);
}

std::string process_state(const char* state) {
    return fmt::format("Info: PCC host status {}", state);
}
std::string steering_active() { return "Info: Embedded DOCA Flow egress steering active"; }

std::vector<std::string> rate_averages(const FlowRates& rates, std::uint64_t received_now) {
    std::vector<std::string> lines = {fmt::format(
        "--- Per-flow rate averages (received={} total={}) ---", received_now, rates.received())};
    for (const FlowRate& flow : rates.flows()) {
        lines.push_back(fmt::format("  QPN 0x{:x}: avg_rate={} last_rate={} updates={}",
                                    flow.qpn.value, flow.average.value_or(flow.last), flow.last,
                                    flow.updates));
    }
    return lines;
}

}  // namespace rdmalab::steer::messages
