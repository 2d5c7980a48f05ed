// Congestion control in the administration protocol (admin.h, ops cc, cc_set, cc_parameter,
// cc_answer).
#include <algorithm>
#include <cerrno>

#include "card/host/admin.h"
#include "card/host/clock.h"
#include "card/host/congestion_request.h"
#include "card/host/peer.h"
#include "card/host/request_reader.h"

namespace rdmalab::card::host {
namespace {

using Json = nlohmann::json;

const char* state_name(pcc::ProcessState state) {
    switch (state) {
        case pcc::ProcessState::kActive:
            return "Active";
        case pcc::ProcessState::kStandby:
            return "Standby";
        case pcc::ProcessState::kDeactivated:
            return "Deactivated";
        case pcc::ProcessState::kError:
            break;
    }
    return "Error";
}

Json to_json(const pcc::ReactionCounters& counters) {
    constexpr std::pair<pcc::EventType, const char*> kTypes[] = {{pcc::EventType::kTx, "tx"},
                                                                 {pcc::EventType::kCnp, "cnp"},
                                                                 {pcc::EventType::kAck, "ack"},
                                                                 {pcc::EventType::kNack, "nack"},
                                                                 {pcc::EventType::kRtt, "rtt"}};
    Json out = {{"answers", counters.answers},
                {"answers_refused", counters.answers_refused},
                {"probes_sent", counters.probes_sent},
                {"probes_answered", counters.probes_answered},
                {"probes_lost", counters.probes_lost},
                {"fallbacks", counters.fallbacks},
                {"packets_paced", counters.packets_paced}};
    for (const auto& [type, name] : kTypes) {
        const auto& count = counters.types[static_cast<std::size_t>(type)];
        const std::string prefix = name;
        out[prefix + "_handled"] = count.handled;
        out[prefix + "_events"] = count.events;
        out[prefix + "_event_drop"] = count.lost;
        out[prefix + "_event_injected_drop"] = count.lost_injected;
    }
    return out;
}

Json to_json(const AlgorithmRow& row) {
    if (row.is_counter) {
        return {
            {"algorithm", row.algorithm}, {"id", row.id}, {"text", row.text}, {"value", row.value}};
    }
    return {{"algorithm", row.algorithm},
            {"id", row.id},
            {"text", row.text},
            {"value", row.value},
            {"default", row.initial},
            {"min", row.min},
            {"max", row.max},
            {"writable", (row.permissions & 1) != 0}};
}

Json to_json(const CongestionFacts::Process& facts, const CongestionProcess& process) {
    Json out = {{"process", facts.id.value},
                {"pid", process.pid},
                {"command", command_of(process.pid)},
                {"state", state_name(facts.state)},
                {"workers", facts.workers},
                {"report_only", facts.report_only},
                {"path", process.path},
                {"algorithm", process.text},
                {"parameters", Json::array()},
                {"counters", Json::array()}};
    for (const AlgorithmRow& row : process.rows)
        out[row.is_counter ? "counters" : "parameters"].push_back(to_json(row));
    return out;
}

Result<std::uint32_t> read_number(const Json& request, const char* name) {
    std::optional<std::uint64_t> value;
    RequestReader reader(request, {});
    reader.number(name, 0, UINT32_MAX, value);
    if (const Status status = reader.status(); !status) return status.error();
    if (!value) return Error{EINVAL, fmt::format("\"{}\": expected a number, found nothing", name)};
    return static_cast<std::uint32_t>(*value);
}

}  // namespace

Json Admin::congestion_status() const {
    const std::vector<CongestionProcess> processes = parts_.congestion.list();
    Json out = {{"settings", host::to_json(parts_.card.congestion_settings())},
                {"pfs", Json::array()}};
    for (const CongestionFacts& facts : parts_.card.congestion_facts()) {
        Json pf = {{"pf", facts.pf},
                   {"line_rate_bps", facts.line_rate_bps},
                   {"counters", to_json(facts.counters)},
                   {"flows", Json::array()},
                   {"processes", Json::array()}};
        for (const pcc::FlowFacts& flow : facts.flows) {
            pf["flows"].push_back(
                {{"device", parts_.card.config().functions[pcc::unit_of(flow.id)].device},
                 {"qpn", pcc::number_of(flow.id)},
                 {"rate", flow.rate},
                 {"slot", flow.slot},
                 {"internal", flow.is_internal},
                 {"cnps", flow.cnps}});
        }
        for (const CongestionFacts::Process& process : facts.processes) {
            const auto found = std::find_if(processes.begin(), processes.end(),
                                            [&](const auto& one) { return one.id == process.id; });
            if (found != processes.end()) pf["processes"].push_back(to_json(process, *found));
        }
        out["pfs"].push_back(std::move(pf));
    }
    return out;
}

Result<Json> Admin::congestion(const Json& request) {
    const std::string op = request["op"];
    if (op == "cc_parameter") return congestion_parameter(request);
    if (op == "cc_answer") return congestion_answer(request);
    if (op == "cc_set") {
        const auto changed = apply_congestion_request(request, parts_.card.congestion_settings());
        if (!changed.ok()) return changed.error();
        parts_.card.set_congestion_settings(*changed, monotonic_now());
    }
    return congestion_status();
}

Result<Json> Admin::congestion_parameter(const Json& request) {
    std::uint32_t values[4] = {};
    const char* const names[] = {"process", "algorithm", "id", "value"};
    for (std::size_t i = 0; i < std::size(names); ++i) {
        const auto value = read_number(request, names[i]);
        if (!value.ok()) return value.error();
        values[i] = *value;
    }
    const auto number = parts_.congestion.request_parameter(CongestionProcessId{values[0]},
                                                            values[1], values[2], values[3]);
    if (!number.ok()) return number.error();
    return Json{{"request", *number}};
}

Result<Json> Admin::congestion_answer(const Json& request) const {
    const auto process = read_number(request, "process");
    if (!process.ok()) return process.error();
    const auto number = read_number(request, "request");
    if (!number.ok()) return number.error();
    const auto answer = parts_.congestion.answer(CongestionProcessId{*process}, *number);
    if (answer && !*answer) return answer->error();
    return Json{{"done", answer.has_value()}};
}

}  // namespace rdmalab::card::host
