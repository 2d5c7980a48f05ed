#include "card/host/admin.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <nlohmann/json.hpp>

#include "card/host/clock.h"
#include "card/host/flow_report.h"
#include "card/host/link_request.h"
#include "card/host/peer.h"
#include "card/host/request_reader.h"

#ifndef RDMALAB_VERSION
#error "the build defines RDMALAB_VERSION"
#endif

namespace rdmalab::card::host {
namespace {

using Json = nlohmann::json;

constexpr std::uint32_t kSnapLengthDefault = 262'144;

std::string_view kind_name(FunctionKind kind) {
    switch (kind) {
        case FunctionKind::kPf:
            return "pf";
        case FunctionKind::kVf:
            return "vf";
        case FunctionKind::kSf:
            break;
    }
    return "sf";
}

Json to_json(const Impairments& impairments) {
    return {{"rate_bps", impairments.rate.bits_per_second},
            {"delay_ns", impairments.delay.ns},
            {"jitter_ns", impairments.jitter.ns},
            {"loss", impairments.loss},
            {"reorder", impairments.reorder},
            {"duplicate", impairments.duplicate},
            {"corrupt", impairments.corrupt},
            {"ce", impairments.ce},
            {"verify_icrc", impairments.verify_icrc}};
}

Json to_json(const PortCounters& counters) {
    return {{"tx_frames", counters.tx_frames},
            {"tx_bytes", counters.tx_bytes},
            {"rx_frames", counters.rx_frames},
            {"rx_bytes", counters.rx_bytes},
            {"dropped", counters.dropped}};
}

Json to_json(const CableCounters& counters) {
    return {{"frames", counters.frames},
            {"bytes", counters.bytes},
            {"lost", counters.lost},
            {"reordered", counters.reordered},
            {"duplicated", counters.duplicated},
            {"corrupted", counters.corrupted},
            {"ce_marked", counters.ce_marked},
            {"overflowed", counters.overflowed}};
}

Json to_json(const Uplinks::Facts& facts, const PortCounters& counters) {
    return {{"malformed", counters.malformed},
            {"overruns", facts.overruns},
            {"tx_bursts", facts.tx_bursts},
            {"rx_bursts", facts.rx_bursts},
            {"tx_lost", facts.tx_lost}};
}

Json to_json(const transport::EngineCounters& c) {
    return {{"tx_frames", c.tx_frames},
            {"tx_bytes", c.tx_bytes},
            {"rx_frames", c.rx_frames},
            {"rx_bytes", c.rx_bytes},
            {"rx_icrc_errors", c.rx_icrc_errors},
            {"rx_unknown_qp", c.rx_unknown_qp},
            {"rx_dropped", c.rx_dropped},
            {"rx_write_requests", c.rx_write_requests},
            {"rx_read_requests", c.rx_read_requests},
            {"rx_atomic_requests", c.rx_atomic_requests},
            {"out_of_sequence", c.out_of_sequence},
            {"duplicate_request", c.duplicate_request},
            {"packet_seq_err", c.packet_seq_err},
            {"rnr_nak_retry_err", c.rnr_nak_retry_err},
            {"local_ack_timeout_err", c.local_ack_timeout_err},
            {"implied_nak_seq_err", c.implied_nak_seq_err},
            {"req_cqe_error", c.req_cqe_error},
            {"resp_cqe_error", c.resp_cqe_error},
            {"np_ecn_marked_roce_packets", c.np_ecn_marked_roce_packets},
            {"np_cnp_sent", c.np_cnp_sent},
            {"rp_cnp_handled", c.rp_cnp_handled},
            {"retransmitted_frames", c.retransmitted_frames},
            {"rnr_nak_sent", c.rnr_nak_sent},
            {"nak_sent", c.nak_sent}};
}

Json to_json(const transport::CmCounters& c) {
    return {{"tx_mads", c.tx_mads},
            {"rx_mads", c.rx_mads},
            {"retransmitted", c.retransmitted},
            {"duplicates", c.duplicates},
            {"misdirected", c.misdirected},
            {"malformed", c.malformed},
            {"unmatched", c.unmatched},
            {"out_of_state", c.out_of_state}};
}

Json to_json(const Network::Counters& c) {
    return {{"tx_frames", c.tx_frames}, {"tx_bytes", c.tx_bytes},     {"rx_frames", c.rx_frames},
            {"rx_bytes", c.rx_bytes},   {"rx_dropped", c.rx_dropped}, {"malformed", c.malformed}};
}

void merge(Json& into, const std::string& prefix, const Json& from) {
    for (const auto& [name, value] : from.items()) into[prefix + name] = value;
}

Json to_json(const Captures::Facts& facts) {
    return {{"id", facts.id},
            {"at", facts.at},
            {"file", facts.file},
            {"frames", facts.frames},
            {"dropped", facts.dropped}};
}

AdminReply to_reply(const Json& json) {
    // A command name or a path may be any bytes: what is not UTF-8 is replaced.
    const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    AdminReply reply;
    reply.body.reset(::memfd_create("rdmalab-reply", MFD_CLOEXEC));
    if (!reply.body || ::pwrite(reply.body.value(), text.data(), text.size(), 0) !=
                           static_cast<ssize_t>(text.size())) {
        const Error error = system_error("cannot make the reply");
        return {error.code, error.text, UniqueFd(), 0};
    }
    reply.length = static_cast<std::uint32_t>(text.size());
    return reply;
}

Error wrong(std::string_view field, std::string_view expected, const Json& request) {
    const std::string key(field);
    const std::string found = request.contains(key) ? describe(request[key]) : "nothing";
    return {EINVAL, fmt::format("\"{}\": expected {}, found {}", field, expected, found)};
}

}  // namespace

Admin::Admin(Parts parts) : parts_(std::move(parts)), started_(monotonic_now()) {}

AdminReply Admin::handle(std::uint64_t connection, const std::string& text, UniqueFd attached) {
    const Json request = Json::parse(text, nullptr, false);
    if (!request.is_object()) {
        return {EINVAL, "a request: expected a JSON object, found something else", {}, 0};
    }
    auto answer = dispatch(connection, request, std::move(attached));
    if (!answer.ok()) return {answer.error().code, answer.error().text, UniqueFd(), 0};
    return to_reply(*answer);
}

Result<Json> Admin::dispatch(std::uint64_t connection, const Json& request, UniqueFd attached) {
    constexpr std::string_view kOps =
        "one of status, counters, link, cc, cc_set, cc_parameter, cc_answer, pcap_start, "
        "pcap_stop, flow, flow_trace, flow_trace_read, shutdown";
    if (!request.contains("op") || !request["op"].is_string()) {
        return wrong("op", kOps, request);
    }
    const std::string op = request["op"];
    if (op == "status") return status();
    if (op == "counters") return counters();
    if (op == "link") return link(request);
    if (op == "pcap_start") return start_capture(connection, request, std::move(attached));
    if (op == "pcap_stop") return stop_capture(connection, request);
    if (op == "flow") return describe_flow(parts_.card);
    if (op == "flow_trace") return start_flow_trace(parts_.card, request);
    if (op == "flow_trace_read") return read_flow_trace(parts_.card, request);
    if (op == "cc" || op == "cc_set" || op == "cc_parameter" || op == "cc_answer")
        return congestion(request);
    if (op != "shutdown") return wrong("op", kOps, request);
    spdlog::info("shutdown was asked for");
    parts_.stop();
    return Json::object();
}

Json Admin::status() const {
    const CardConfig& config = parts_.card.config();
    Json out = {{"name", config.name},
                {"pid", ::getpid()},
                {"version", RDMALAB_VERSION},
                {"seed", config.seed},
                {"topology", parts_.topology},
                {"uptime_s", static_cast<double>((monotonic_now() - started_).ns) * 1e-9},
                {"socket", parts_.socket}};
    out["functions"] = Json::array();
    for (std::uint32_t i = 0; i < config.functions.size(); ++i) {
        out["functions"].push_back(function_status(i));
    }
    out["ports"] = Json::array();
    for (std::uint32_t i = 0; i < config.ports.size(); ++i) out["ports"].push_back(port_status(i));
    out["cables"] = Json::array();
    for (std::uint32_t i = 0; i < config.cables.size(); ++i) {
        out["cables"].push_back(cable_status(i));
    }
    const CmCounts cm = parts_.card.cm_counts();
    out["cm"] = {{"sessions", cm.sessions},
                 {"ids", cm.ids},
                 {"ports", cm.ports},
                 {"connections", cm.connections}};
    out["attached"] = attached_programs();
    out["captures"] = captures();
    return out;
}

Json Admin::port_status(std::uint32_t index) const {
    const PortConfig& port = parts_.card.config().ports[index];
    Json out = {{"name", port.name}, {"pf", port.pf_device}};
    if (parts_.uplinks == nullptr) return out;
    const auto facts = parts_.uplinks->facts(index);
    if (!facts) return out;
    out["uplink"] = {{"netdev", facts->netdev},
                     {"mtu", facts->mtu},
                     {"state", facts->is_up ? "up" : "down"},
                     {"bursts", facts->has_bursts}};
    return out;
}

Json Admin::function_status(std::uint32_t index) const {
    const FunctionConfig& function = parts_.card.config().functions[index];
    const auto objects = parts_.card.engine(index).object_counts();
    Json ips = Json::array();
    for (const Gid& ip : function.ips) ips.push_back(ip.to_string());
    std::string guid;
    for (const abi::DeviceInfo& device : parts_.card.list_devices()) {
        if (device.index == index) guid = fmt::format("{:016x}", device.node_guid);
    }
    return {{"device", function.device},
            {"kind", kind_name(function.kind)},
            {"representor", function.representor},
            {"pci", function.pci},
            {"mac", function.mac.to_string()},
            {"ips", ips},
            {"netns", function.netns},
            {"netdev", has_netdev(index) || is_behind_uplink(function) ? function.netdev : ""},
            {"guid", guid},
            {"rate_bps", parts_.card.rate_of(index).bits_per_second},
            {"qps", objects.qps},
            {"mrs", objects.mrs},
            {"flow_rules", parts_.card.flow_rule_count(index)}};
}

bool Admin::is_behind_uplink(const FunctionConfig& function) const {
    const auto& ports = parts_.card.config().ports;
    return std::any_of(ports.begin(), ports.end(), [&](const PortConfig& port) {
        return !port.uplink.empty() && port.pf_device == function.pf_device;
    });
}

bool Admin::has_netdev(std::uint32_t function) const {
    return parts_.network != nullptr && parts_.network->has_netdev(function);
}

Json Admin::cable_status(std::uint32_t index) const {
    const CableConfig& cable = parts_.card.config().cables[index];
    return {{"name", cable.name},
            {"a", cable.port_a},
            {"b", cable.port_b},
            {"a_to_b", to_json(parts_.card.impairments(index, true))},
            {"b_to_a", to_json(parts_.card.impairments(index, false))}};
}

Json Admin::attached_programs() const {
    Json out = Json::array();
    if (!clients_) return out;
    for (const Client& client : clients_->clients()) {
        const auto qps = parts_.card.engine(client.device).list_qps();
        const auto own = std::count_if(qps.begin(), qps.end(), [&](const transport::QpFacts& qp) {
            return qp.owner == client.owner;
        });
        out.push_back({{"pid", client.pid},
                       {"uid", client.uid},
                       {"command", command_of(client.pid)},
                       {"device", parts_.card.config().functions[client.device].device},
                       {"qps", own}});
    }
    return out;
}

Json Admin::captures() const {
    Json out = Json::array();
    for (const Captures::Facts& facts : parts_.captures.list()) out.push_back(to_json(facts));
    return out;
}

Json Admin::counters() const {
    const CardConfig& config = parts_.card.config();
    Json out = {{"time_ns", monotonic_now().ns},
                {"ports", Json::object()},
                {"functions", Json::object()},
                {"cables", Json::object()},
                {"host", host_counters()}};
    for (std::uint32_t i = 0; i < config.ports.size(); ++i) {
        Json& port = out["ports"][config.ports[i].name];
        port = to_json(parts_.card.port_counters(i));
        if (const auto facts = parts_.uplinks ? parts_.uplinks->facts(i) : std::nullopt)
            merge(port, "uplink_", to_json(*facts, parts_.card.port_counters(i)));
    }
    for (std::uint32_t i = 0; i < config.functions.size(); ++i) {
        Json function = to_json(parts_.card.engine(i).counters());
        merge(function, "vport_", to_json(parts_.card.vport_counters(i)));
        merge(function, "cm_", to_json(parts_.card.cm_counters(i)));
        if (has_netdev(i)) merge(function, "netdev_", to_json(parts_.network->counters(i)));
        out["functions"][config.functions[i].device] = std::move(function);
    }
    for (std::uint32_t i = 0; i < config.cables.size(); ++i) {
        out["cables"][config.cables[i].name] = {
            {"a_to_b", to_json(parts_.card.cable_counters(i, true))},
            {"b_to_a", to_json(parts_.card.cable_counters(i, false))}};
    }
    return out;
}

Json Admin::host_counters() const {
    const LoopCounters& loop = parts_.loop;
    const ProcessMemory::Counters& memory = parts_.memory.counters();
    return {{"rounds", loop.rounds},
            {"idle_rounds", loop.idle_rounds},
            {"spins", loop.spins},
            {"spin_hits", loop.spin_hits},
            {"sleeps", loop.sleeps},
            {"bell_wakeups", loop.bell_wakeups},
            {"timer_wakeups", loop.timer_wakeups},
            {"flushes", memory.flushes},
            {"batches", memory.batches},
            {"copies", memory.copies},
            {"copied_bytes", memory.bytes},
            {"read_calls", memory.read_calls},
            {"write_calls", memory.write_calls},
            {"copy_faults", memory.faults},
            {"attachments", parts_.attachments.count()},
            {"shared_bytes", parts_.attachments.shared_bytes()}};
}

Result<Json> Admin::link(const Json& request) {
    const auto& cables = parts_.card.config().cables;
    if (!request.contains("cable") || !request["cable"].is_string()) {
        return wrong("cable", "the name of a cable", request);
    }
    const auto cable = std::find_if(cables.begin(), cables.end(), [&](const CableConfig& one) {
        return request["cable"] == one.name;
    });
    if (cable == cables.end()) {
        std::vector<std::string> names;
        for (const CableConfig& one : cables) names.push_back(one.name);
        return Error{ENOENT, wrong("cable",
                                   names.empty() ? "the name of a cable (there is none)"
                                                 : fmt::format("the name of a cable ({})",
                                                               fmt::join(names, ", ")),
                                   request)
                                 .text};
    }
    const auto change = parse_link_request(request);
    if (!change.ok()) return change.error();
    const auto index = static_cast<std::uint32_t>(std::distance(cables.begin(), cable));
    for (const bool a_to_b : {true, false}) {
        if (change->a_to_b && *change->a_to_b != a_to_b) continue;
        const Impairments changed = apply(*change, parts_.card.impairments(index, a_to_b));
        const Status done =
            parts_.card.set_impairments(cable->name, a_to_b, changed, monotonic_now());
        if (!done) return done.error();
    }
    return cable_status(index);
}

Result<Json> Admin::start_capture(std::uint64_t connection, const Json& request, UniqueFd out) {
    if (!request.contains("at") || !request["at"].is_string()) {
        return wrong("at", "the name of a port, representor or device", request);
    }
    if (!out) return Error{EINVAL, "expected a descriptor to write to (SCM_RIGHTS), found none"};
    std::uint32_t snap_length = kSnapLengthDefault;
    if (request.contains("snap_length")) {
        const Json& value = request["snap_length"];
        if (!value.is_number_unsigned() || value.get<std::uint64_t>() < 64 ||
            value.get<std::uint64_t>() > kSnapLengthDefault) {
            return wrong("snap_length", fmt::format("64 to {} bytes", kSnapLengthDefault), request);
        }
        snap_length = value.get<std::uint32_t>();
    }
    const std::string at = request["at"];
    const auto point = parts_.card.find_tap(at);
    if (!point.ok()) {
        return Error{ENOENT,
                     point.error().text.empty()
                         ? wrong("at", "a port, representor or device of this card", request).text
                         : point.error().text};
    }
    const auto id = parts_.captures.start(connection, *point, at, snap_length, std::move(out));
    if (!id.ok()) return id.error();
    return Json{{"id", *id}};
}

Result<Json> Admin::stop_capture(std::uint64_t connection, const Json& request) {
    if (!request.contains("id") || !request["id"].is_number_unsigned()) {
        return wrong("id", "the id of a capture", request);
    }
    const auto facts = parts_.captures.stop(connection, request["id"].get<std::uint32_t>());
    if (!facts.ok()) return facts.error();
    Json out = to_json(*facts);
    out["error"] = facts->error.text;
    return out;
}

}  // namespace rdmalab::card::host
