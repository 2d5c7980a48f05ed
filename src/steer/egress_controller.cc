#include "steer/egress_controller.h"

#include <nlohmann/json.hpp>

#include "steer/messages.h"
#include "wire/headers.h"

namespace rdmalab::steer {

EgressController::EgressController(EgressSteering& steering,
                                   std::vector<std::uint32_t> receiver_ips, bool steers,
                                   Console& console)
    : steering_(steering), table_(std::move(receiver_ips)), steers_(steers), console_(console) {
    snapshot_.applied = steering.applied();
}

void EgressController::handle_frame(ByteView frame, bool from_wire) {
    const std::optional<CmPacket> packet = parse_cm_packet(frame);
    if (!packet) {
        if (from_wire) learn_from_feedback(frame);
        return;
    }
    // Whose sender is on our side? Requests must leave, replies must come.
    const bool is_request = std::holds_alternative<wire::ReqMessage>(packet->message);
    const bool is_reply = std::holds_alternative<wire::RepMessage>(packet->message);
    if ((is_request && from_wire) || (is_reply && !from_wire)) return;
    const CmChange change = table_.handle(*packet);
    // A new connection's QPN may be an old one's.
    if (change.kind == CmChange::Kind::kGrouped) rates_.forget(change.connection.sender);
    handle_change(change);
}

void EgressController::handle_change(const CmChange& change) {
    const CmConnection& connection = change.connection;
    switch (change.kind) {
        case CmChange::Kind::kNothing:
            return;
        case CmChange::Kind::kGrouped:
            console_.info(messages::request_grouping(connection));
            return;
        case CmChange::Kind::kMapped: {
            console_.info(messages::mapping(connection));
            const Result<bool> installed = steering_.add_cnp_counter(connection);
            if (!installed.ok()) {
                console_.warn("sender CNP counter not installed: " + installed.error().text);
            } else if (*installed) {
                console_.info(messages::cnp_counter_installed(connection));
            }
            return;
        }
        case CmChange::Kind::kEnded:
            console_.info(messages::connection_ended(connection));
            rates_.forget(connection.sender);
            classes_said_.erase(connection.sender);
            if (Status status = steering_.remove_cnp_counter(connection.sender); !status.ok()) {
                console_.warn("sender CNP counter not removed: " + status.error().text);
            }
            return;
    }
}

void EgressController::learn_from_feedback(ByteView bytes) {
    wire::Frame frame;
    if (wire::parse_frame(bytes, {}, frame) != wire::ParseError::kNone) return;
    if (!wire::is_roce(frame) || !wire::source_gid(frame).is_ipv4()) return;
    const auto* bth = wire::header_at<wire::Bth>(frame, frame.bth_offset);
    const CmChange change =
        table_.learn_from_feedback(Qpn{bth->destination_qp}, wire::destination_gid(frame).ipv4(),
                                   wire::source_gid(frame).ipv4());
    if (change.kind != CmChange::Kind::kGrouped) return;
    console_.info(messages::feedback_grouping(change.connection));
    const Result<bool> installed = steering_.add_cnp_counter(change.connection);
    if (!installed.ok()) {
        console_.warn("sender CNP counter not installed: " + installed.error().text);
    }
}

void EgressController::report(Qpn sender, std::uint32_t rate) { rates_.report(sender, rate); }

Status EgressController::end_interval(const Interval& interval) {
    snapshot_.updates = 0;
    rates_.close_interval();
    if (steers_) {
        for (const std::string& line :
             messages::rate_averages(rates_, rates_.received() - received_before_)) {
            console_.info(line);
        }
        say_path_classes();
        decide_and_apply();
    }
    received_before_ = rates_.received();
    snapshot_.reports_total = rates_.received();
    snapshot_.flows = rates_.flows();
    snapshot_.flow_paths.clear();
    for (const FlowRate& flow : snapshot_.flows) {
        snapshot_.flow_paths.push_back(table_.path_of(flow.qpn));
    }
    Status status = count(interval);
    if (status.ok()) console_.record(to_record(snapshot_, interval));
    return status;
}

void EgressController::say_path_classes() {
    for (const FlowRate& flow : rates_.flows()) {
        const std::optional<std::uint32_t> path = table_.path_of(flow.qpn);
        if (!path || !flow.average || !classes_said_.insert(flow.qpn).second) continue;
        console_.info(messages::path_class(flow.qpn, *flow.average, *path));
    }
}

void EgressController::decide_and_apply() {
    snapshot_.signals = rates_.signals([this](Qpn qpn) { return table_.path_of(qpn); });
    const BucketSplit& applied = steering_.applied();
    snapshot_.target =
        decide_split(std::span(snapshot_.signals.paths).first(applied.paths()), applied.buckets());
    console_.info(messages::diagnostic(snapshot_.signals, snapshot_.target, applied));
    if (snapshot_.target && !forced_) apply(*snapshot_.target);
}

void EgressController::apply(const BucketSplit& wanted) {
    const BucketSplit before = steering_.applied();
    const ApplyResult result = steering_.apply(wanted);
    snapshot_.updates += result.updates;
    snapshot_.updates_total += result.updates;
    if (result.failed_bucket) {
        ++snapshot_.failures_total;
        console_.warn(messages::update_failed(*result.failed_bucket, result.error.text));
    }
    if (result.changed) console_.info(messages::share_applied(before, wanted));
    snapshot_.applied = steering_.applied();
}

ApplyResult EgressController::force_split(const BucketSplit& split) {
    const BucketSplit before = steering_.applied();
    const ApplyResult result = steering_.apply(split);
    if (result.changed) console_.info(messages::share_applied(before, split));
    snapshot_.updates_total += result.updates;
    snapshot_.applied = steering_.applied();
    forced_ = result.error.code == 0;
    return result;
}

Status EgressController::count(const Interval& interval) {
    Result<EgressSteering::Counters> counters = steering_.read();
    if (!counters.ok()) return counters.error();
    const auto deltas = [](const std::vector<std::uint64_t>& now,
                           const std::vector<std::uint64_t>& before) {
        std::vector<std::uint64_t> result;
        for (std::size_t i = 0; i < now.size(); ++i) {
            result.push_back(now[i] - (i < before.size() ? before[i] : 0));
        }
        return result;
    };
    snapshot_.packets_delta = deltas(counters->packets, snapshot_.counters.packets);
    snapshot_.cnps_delta = deltas(counters->cnps, snapshot_.counters.cnps);
    snapshot_.counters = std::move(*counters);
    console_.info(messages::assigned_counters(snapshot_.counters.packets, steering_.applied()));
    if (snapshot_.counters.cnps.empty()) return {};
    std::vector<messages::CountRate> rates;
    for (std::size_t path = 0; path < snapshot_.counters.cnps.size(); ++path) {
        rates.push_back({snapshot_.counters.cnps[path], snapshot_.cnps_delta[path],
                         static_cast<double>(snapshot_.cnps_delta[path]) / interval.seconds});
    }
    console_.info(messages::received_cnps(rates));
    return {};
}

nlohmann::json to_record(const EgressSnapshot& snapshot, const Interval& interval) {
    const auto shares = [](const BucketSplit& split) {
        nlohmann::json result = nlohmann::json::array();
        for (std::uint32_t path = 0; path < split.paths(); ++path)
            result.push_back(split.share(path));
        return result;
    };
    nlohmann::json paths = nlohmann::json::array();
    for (std::size_t path = 0; path < snapshot.counters.packets.size(); ++path) {
        const PathSignal& signal = snapshot.signals.paths[path];
        nlohmann::json one = {{"packets", snapshot.counters.packets[path]},
                              {"packets_delta", snapshot.packets_delta[path]},
                              {"bytes", snapshot.counters.bytes[path]},
                              {"flows", signal.total},
                              {"flows_full", signal.full},
                              {"flows_reduced", signal.reduced},
                              {"rate_sum", signal.sum}};
        if (!snapshot.counters.cnps.empty()) {
            one["cnps"] = snapshot.counters.cnps[path];
            one["cnps_delta"] = snapshot.cnps_delta[path];
        }
        paths.push_back(one);
    }
    nlohmann::json flows = nlohmann::json::array();
    for (std::size_t i = 0; i < snapshot.flows.size(); ++i) {
        const FlowRate& flow = snapshot.flows[i];
        nlohmann::json one = {{"qpn", flow.qpn.value},
                              {"rate", flow.last},
                              {"average", flow.average.value_or(flow.last)},
                              {"updates", flow.updates}};
        if (snapshot.flow_paths[i]) one["path"] = *snapshot.flow_paths[i];
        flows.push_back(one);
    }
    nlohmann::json record = {{"type", "egress"},
                             {"time", interval.time_s},
                             {"interval", interval.seconds},
                             {"buckets", snapshot.applied.buckets()},
                             {"applied", shares(snapshot.applied)},
                             {"pending_map", snapshot.signals.pending_map},
                             {"updates", snapshot.updates},
                             {"failures_total", snapshot.failures_total},
                             {"reports_total", snapshot.reports_total},
                             {"paths", paths},
                             {"flows", flows}};
    if (snapshot.target) record["target"] = shares(*snapshot.target);
    return record;
}

}  // namespace rdmalab::steer
