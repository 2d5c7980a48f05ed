#include "card/host/flow_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "flow/pipeline.h"
#include "wire/print.h"

namespace rdmalab::card::host {
namespace {

using Json = nlohmann::json;
using namespace flow;

std::string_view type_name(PipeType type) {
    switch (type) {
        case PipeType::kBasic:
            return "BASIC";
        case PipeType::kControl:
            return "CONTROL";
        case PipeType::kHash:
            break;
    }
    return "HASH";
}

constexpr std::pair<HashAlgorithm, std::string_view> kAlgorithms[] = {
    {HashAlgorithm::kHash, "HASH"},         {HashAlgorithm::kRandom, "RANDOM"},
    {HashAlgorithm::kIdentity, "IDENTITY"}, {HashAlgorithm::kRoundRobin, "ROUND_ROBIN"},
    {HashAlgorithm::kFlooding, "FLOODING"},
};

constexpr std::pair<L3Type, std::string_view> kL3Types[] = {{L3Type::kIpv4, "ipv4"},
                                                            {L3Type::kIpv6, "ipv6"}};
constexpr std::pair<L4Type, std::string_view> kL4Types[] = {
    {L4Type::kTcp, "tcp"},
    {L4Type::kUdp, "udp"},
    {L4Type::kIcmp, "icmp"},
    {L4Type::kIcmp6, "icmp6"},
    {L4Type::kTransport, "transport"},
    {L4Type::kRoceV2, "roce_v2"},
};

template <class T, std::size_t Size>
std::string_view name_in(const std::pair<T, std::string_view> (&names)[Size], T value) {
    const auto* const found = std::find_if(std::begin(names), std::end(names),
                                           [&](const auto& item) { return item.first == value; });
    return found == std::end(names) ? "" : found->second;
}

Json algorithm_names(HashAlgorithm set) {
    Json names = Json::array();
    for (const auto& [algorithm, name] : kAlgorithms) {
        if (has_flag(set, algorithm)) names.push_back(name);
    }
    return names;
}

std::string port_name(const Pipeline& pipeline, PortId id) {
    for (const PortInfo& port : pipeline.ports()) {
        if (port.id == id) return port.name;
    }
    return std::to_string(id.value);
}

std::string pipe_name(const Pipeline& pipeline, PipeId id) {
    const auto found = pipeline.pipes().find(id);
    return found == pipeline.pipes().end() ? std::string() : found->second->name();
}

Json to_json(const Pipeline& pipeline, const Forward& forward) {
    switch (forward.kind) {
        case ForwardKind::kPort:
            return {{"kind", "port"}, {"name", port_name(pipeline, forward.port)}};
        case ForwardKind::kPipe:
            return {{"kind", "pipe"},
                    {"id", forward.pipe.value},
                    {"name", pipe_name(pipeline, forward.pipe)}};
        case ForwardKind::kHashPipe:
            return {{"kind", "hash_pipe"},
                    {"id", forward.pipe.value},
                    {"name", pipe_name(pipeline, forward.pipe)},
                    {"algorithm", name_in(kAlgorithms, forward.algorithm)}};
        case ForwardKind::kRss:
            return {{"kind", "rss"}, {"queues", forward.queues}};
        case ForwardKind::kDrop:
            return {{"kind", "drop"}};
        case ForwardKind::kChangeable:
            return {{"kind", "changeable"}};
        case ForwardKind::kNone:
            break;
    }
    return {{"kind", "none"}};
}

Json to_json(const FlowCounters& counters) {
    return {{"packets", counters.packets}, {"bytes", counters.bytes}};
}

// "FIELD=VALUE", "FIELD=VALUE/MASK", or "FIELD=*" for what each entry supplies.
std::string term(Field field, FieldValue value, FieldValue mask, bool is_open) {
    std::string text = std::string(name_of(field)) + "=";
    text += is_open ? "*" : print_value(field, value & mask);
    if (mask != all_ones(field)) text += "/" + print_value(field, mask);
    return text;
}

// What is compared, or written, of `values` under `mask`.
Json terms(const FieldValues& values, const std::optional<FieldValues>& mask, bool has_entries) {
    Json out = Json::array();
    for (const auto& item : (mask ? *mask : values).items()) {
        if (item.value.is_zero()) continue;
        const FieldValue value = values[item.field];
        out.push_back(term(item.field, value, mask ? item.value : all_ones(item.field),
                           has_entries && value == all_ones(item.field)));
    }
    return out;
}

void add_types(Json& out, L3Type l3, L4Type l4) {
    if (l3 != L3Type::kNone) out.push_back(fmt::format("l3_type={}", name_in(kL3Types, l3)));
    if (l4 != L4Type::kNone) out.push_back(fmt::format("l4_type={}", name_in(kL4Types, l4)));
}

Json values_json(const FieldValues& values) {
    Json out = Json::array();
    for (const auto& item : values.items()) {
        out.push_back(term(item.field, item.value, all_ones(item.field), false));
    }
    return out;
}

// What an entry writes: the template with the entry's values.
Json actions_json(const Pipe& pipe, const Pipe::Record& record) {
    const ActionTemplate* form = record.own_actions ? &*record.own_actions : nullptr;
    const auto& templates = pipe.config().actions;
    const std::size_t index = record.actions.action_index;
    if (form == nullptr && index < templates.size()) form = &templates[index];
    if (form == nullptr) return Json::array();
    FieldValues values = form->values;
    for (const auto& item : record.actions.values.items()) values.set(item.field, item.value);
    Json out = terms(values, form->mask, false);
    for (const ActionDescriptor& step : form->descriptors) {
        const std::string to = std::string(name_of(step.destination));
        out.push_back(step.kind == DescriptorKind::kAdd
                          ? fmt::format("{}+={:#x}", to, step.addend)
                          : fmt::format("{}<-{}[{}:{}]", to, name_of(step.source),
                                        step.source_bit + step.width - 1, step.source_bit));
    }
    return out;
}

Json entry_json(const Pipeline& pipeline, const Pipe& pipe, std::uint32_t slot) {
    const Pipe::Record& record = pipe.record(slot);
    const Entry& entry = pipe.entry(slot);
    Json match = Json::array();
    if (pipe.is_control()) {
        add_types(match, record.l3_type, record.l4_type);
        for (const Json& item : terms(record.match, record.mask, false)) match.push_back(item);
    } else {
        match = values_json(record.match);
    }
    Json out = {{"id", record.id.value},
                {"match", match},
                {"actions", actions_json(pipe, record)},
                {"forward", to_json(pipeline, *record.forward)}};
    if (pipe.is_hash()) out["index"] = record.order;
    if (pipe.is_control()) out["priority"] = record.order;
    if (entry.counts) out["counter"] = to_json(entry.counters);
    return out;
}

Json pipe_json(const Pipeline& pipeline, const Pipe& pipe) {
    const PipeConfig& config = pipe.config();
    Json match = Json::array();
    add_types(match, config.match.l3_type, config.match.l4_type);
    for (const Json& item : terms(config.match.values, config.match_mask, !pipe.is_hash())) {
        match.push_back(item);
    }
    Json actions = Json::array();
    for (const ActionTemplate& form : config.actions) {
        actions.push_back(terms(form.values, form.mask, true));
    }
    Json entries = Json::array();
    for (const std::uint32_t slot : pipe.live_slots()) {
        entries.push_back(entry_json(pipeline, pipe, slot));
    }
    return {{"id", pipe.id().value},
            {"name", pipe.name()},
            {"type", type_name(config.type)},
            {"root", config.is_root},
            {"algorithms", algorithm_names(config.algorithms)},
            {"match", match},
            {"actions", actions},
            {"forward", to_json(pipeline, config.forward)},
            {"miss", to_json(pipeline, config.miss)},
            {"entries_max", config.entries_max},
            {"live", pipe.live()},
            {"retired", pipe.retired()},
            {"hits", pipe.hits},
            {"misses", to_json(pipe.misses)},
            {"entries", entries}};
}

Json domain_json(const FlowDomainFacts& facts) {
    Json out = {{"pf", facts.pf}, {"owner", nullptr}, {"pipes", Json::array()}};
    if (facts.pipeline == nullptr) return out;
    const Pipeline& pipeline = *facts.pipeline;
    out["owner"] = facts.owner;
    out["ports"] = Json::array();
    for (const PortInfo& port : pipeline.ports()) {
        out["ports"].push_back({{"id", port.id.value},
                                {"name", port.name},
                                {"kind", port.kind == PortKind::kWire ? "wire" : "vport"},
                                {"device", port.device}});
    }
    const PipelineDrops& drops = pipeline.drops();
    out["drops"] = {{"no_root", drops.no_root}, {"dropped", drops.dropped}, {"loops", drops.loops}};
    out["counters_used"] = pipeline.counters_used();
    out["counters_max"] = pipeline.options().counters_max;
    for (const auto& [id, pipe] : pipeline.pipes()) {
        out["pipes"].push_back(pipe_json(pipeline, *pipe));
    }
    return out;
}

// --- Traces

Error wrong(const std::string& what) { return {EINVAL, what}; }

template <class T, std::size_t Size>
Status read_type(const Json& request, const char* key,
                 const std::pair<T, std::string_view> (&names)[Size], T& out) {
    if (!request.contains(key)) return {};
    std::string known;
    for (const auto& [value, name] : names) {
        if (request[key] == std::string(name)) {
            out = value;
            return {};
        }
        known += (known.empty() ? "" : ", ") + std::string(name);
    }
    return wrong(
        fmt::format("\"{}\": expected one of {}, found {}", key, known, request[key].dump()));
}

Status read_term(const std::string& name, const Json& text, Match& match, FieldValues& mask) {
    const auto field = find_field(name);
    if (!field) {
        return wrong(
            fmt::format("\"match\": expected a field such as outer.ipv4.dst_ip, found "
                        "\"{}\"",
                        name));
    }
    const std::string whole = text.is_string() ? text.get<std::string>() : text.dump();
    const std::size_t slash = whole.find('/');
    const auto value = parse_value(*field, whole.substr(0, slash));
    std::optional<FieldValue> bits = all_ones(*field);
    if (slash != std::string::npos) bits = parse_value(*field, whole.substr(slash + 1));
    if (!value || !bits) {
        return wrong(
            fmt::format("\"{}\": expected VALUE or VALUE/MASK of at most {} bits, found "
                        "\"{}\"",
                        name, width_of(*field), whole));
    }
    match.values.set(*field, *value);
    mask.set(*field, *bits);
    return {};
}

Result<std::string> read_pf(const Json& request) {
    if (request.contains("pf") && request["pf"].is_string())
        return request["pf"].get<std::string>();
    return wrong("\"pf\": expected the device of a PF, found nothing");
}

std::string_view outcome_name(TraceStep::Outcome outcome) {
    return outcome == TraceStep::Outcome::kHit ? "hit" : "miss";
}

// The most telling of the headers that are missing.
std::string missing_header(std::uint32_t layers) {
    constexpr std::uint32_t kOrder[] = {kLayerRoce, kLayerUdp,       kLayerTcp,
                                        kLayerIcmp, kLayerTransport, kLayerIpv4,
                                        kLayerIpv6, kLayerVlan1,     kLayerVlan0};
    for (const std::uint32_t bit : kOrder) {
        if ((layers & bit) != 0) return fmt::format("not {}", name_of_layer(bit));
    }
    return "a header is missing";
}

std::string reason_of(const TraceStep& step) {
    switch (step.outcome) {
        case TraceStep::Outcome::kHit:
            return "";
        case TraceStep::Outcome::kMissLayer:
            return missing_header(step.missing_layers);
        case TraceStep::Outcome::kMissKey:
            return "no entry has these values";
        case TraceStep::Outcome::kMissIndex:
            return fmt::format("no entry at index {}", step.index);
        case TraceStep::Outcome::kLoop:
            break;
    }
    return "the packet has visited too many pipes";
}

Json target_json(const Pipeline& pipeline, const TraceStep& step) {
    Forward forward;
    forward.kind = step.forward;
    forward.port = PortId{step.number};
    forward.pipe = step.next;
    forward.queues = {step.number};
    return to_json(pipeline, forward);
}

Json step_json(const Pipeline& pipeline, const TraceStep& step) {
    Json matched = Json::array(), changed = Json::array();
    for (std::size_t i = 0; i < step.match_count; ++i) {
        const TraceStep::Seen& seen = step.matched[i];
        matched.push_back(term(seen.field, seen.value, all_ones(seen.field), false));
    }
    for (std::size_t i = 0; i < step.change_count; ++i) {
        const TraceStep::Seen& seen = step.changed[i];
        changed.push_back(fmt::format("{} {} -> {}", name_of(seen.field),
                                      print_value(seen.field, seen.value),
                                      print_value(seen.field, seen.after)));
    }
    return {{"pipe", pipe_name(pipeline, step.pipe)},
            {"branch", step.branch},
            {"outcome", outcome_name(step.outcome)},
            {"reason", reason_of(step)},
            {"entry", step.entry.value},
            {"index", step.index},
            {"matched", matched},
            {"changed", changed},
            {"forward", target_json(pipeline, step)}};
}

}  // namespace

Json describe_flow(const Card& card) {
    Json domains = Json::array();
    for (const FlowDomainFacts& facts : card.flow_domains()) domains.push_back(domain_json(facts));
    return {{"domains", domains}};
}

Result<Json> start_flow_trace(Card& card, const Json& request) {
    const auto pf = read_pf(request);
    if (!pf.ok()) return pf.error();
    Match match;
    FieldValues mask;
    if (Status read = read_type(request, "l3_type", kL3Types, match.l3_type); !read) {
        return read.error();
    }
    if (Status read = read_type(request, "l4_type", kL4Types, match.l4_type); !read) {
        return read.error();
    }
    const Json filter = request.value("match", Json::object());
    if (!filter.is_object()) return wrong("\"match\": expected an object, found something else");
    for (const auto& [name, text] : filter.items()) {
        if (Status read = read_term(name, text, match, mask); !read) return read.error();
    }
    const Json count = request.value("count", Json(1u));
    if (!count.is_number_unsigned() || count > Tracer::kPacketMax) {
        return wrong(
            fmt::format("\"count\": expected 1 to {}, found {}", Tracer::kPacketMax, count.dump()));
    }
    const Status started = card.trace_flow(*pf, match, mask, count.get<std::uint32_t>());
    if (!started) return started.error();
    return Json::object();
}

Result<Json> read_flow_trace(const Card& card, const Json& request) {
    const auto pf = read_pf(request);
    if (!pf.ok()) return pf.error();
    const auto domain = card.find_flow_domain(*pf);
    if (!domain.ok()) return domain.error();
    if (domain->pipeline == nullptr) {
        return wrong("no program owns the switch domain of " + domain->pf + " any more");
    }
    const Pipeline& pipeline = *domain->pipeline;
    Json packets = Json::array();
    for (const TracedPacket& packet : pipeline.tracer().packets()) {
        Json steps = Json::array();
        for (std::size_t i = 0; i < packet.step_count; ++i) {
            steps.push_back(step_json(pipeline, packet.steps[i]));
        }
        packets.push_back({{"number", packet.number},
                           {"ingress", port_name(pipeline, packet.ingress)},
                           {"length", packet.length},
                           {"summary", wire::print(packet.frame)},
                           {"cut", packet.is_cut},
                           {"steps", steps}});
    }
    return Json{{"remaining", pipeline.tracer().remaining()}, {"packets", packets}};
}

}  // namespace rdmalab::card::host
