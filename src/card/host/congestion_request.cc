#include "card/host/congestion_request.h"

#include "card/host/request_reader.h"

namespace rdmalab::card::host {
namespace {

using Json = nlohmann::json;

// Names of the built-in algorithm's parameters, as adapters call them.
struct DcqcnField {
    const char* name;
    std::uint32_t dcqcn_parameters::*field;
    std::uint32_t min, max;
};
constexpr DcqcnField kDcqcnFields[] = {
    {"dcqcn_g", &dcqcn_parameters::g, 1, 1024},
    {"dcqcn_rtt_us", &dcqcn_parameters::alpha_period_us, 1, 131'071},
    {"dcqcn_initial_alpha", &dcqcn_parameters::initial_alpha, 1, 1024},
    {"dcqcn_rate_on_first_cnp_mbps", &dcqcn_parameters::rate_on_first_cnp, 0, 1'000'000},
    {"dcqcn_min_dec_fac", &dcqcn_parameters::min_dec_fac, 0, 100},
    {"dcqcn_min_rate_mbps", &dcqcn_parameters::min_rate, 1, 1'000'000},
    {"dcqcn_gd", &dcqcn_parameters::gd, 0, 15},
    {"dcqcn_monitor_period_us", &dcqcn_parameters::monitor_period_us, 0, 1'000'000},
    {"dcqcn_time_reset_us", &dcqcn_parameters::time_reset_us, 0, 1'000'000},
    {"dcqcn_byte_reset", &dcqcn_parameters::byte_reset, 0, 1u << 31},
    {"dcqcn_threshold", &dcqcn_parameters::threshold, 0, 31},
    {"dcqcn_ai_rate_mbps", &dcqcn_parameters::ai_rate, 1, 1'000'000},
    {"dcqcn_hai_rate_mbps", &dcqcn_parameters::hai_rate, 1, 1'000'000},
};

const char* name_of(pcc::FlowPolicy policy) {
    return policy == pcc::FlowPolicy::kAll ? "all" : "cm";
}

class Changes {
public:
    Changes(RequestReader& reader) : reader_(reader) {}  // NOLINT(google-explicit-constructor)
    void duration(const char* name, Duration& value) {
        std::optional<Duration> given;
        reader_.duration(name, given);
        value = given.value_or(value);
    }
    void count(const char* name, std::uint32_t min, std::uint32_t max, std::uint32_t& value) {
        std::optional<std::uint64_t> given;
        reader_.number(name, min, max, given);
        value = static_cast<std::uint32_t>(given.value_or(value));
    }
    void boolean(const char* name, bool& value) {
        std::optional<bool> given;
        reader_.boolean(name, given);
        value = given.value_or(value);
    }

private:
    RequestReader& reader_;
};

}  // namespace

Result<pcc::Settings> apply_congestion_request(const Json& request, pcc::Settings settings) {
    constexpr std::uint32_t kCountMax = 1'000'000;
    RequestReader reader(request, {"op"});
    Changes changes(reader);
    changes.duration("cnp_interval", settings.cnp_interval);
    changes.count("tx_packets_per_event", 1, kCountMax, settings.tx_packets_per_event);
    changes.duration("tx_delay", settings.tx_delay);
    changes.count("cnps_per_event", 1, kCountMax, settings.cnps_per_event);
    changes.count("acks_per_event", 1, kCountMax, settings.acks_per_event);
    std::optional<double> loss;
    reader.probability("event_loss", loss);
    settings.event_loss = loss.value_or(settings.event_loss);
    changes.duration("probe_interval", settings.probe_interval);
    changes.duration("probe_timeout", settings.probe_timeout);
    std::optional<Rate> line_rate;
    reader.named_rate("line_rate", line_rate);
    if (line_rate && !line_rate->is_unlimited())
        settings.line_rate_bps = line_rate->bits_per_second;
    changes.boolean("pacing", settings.is_pacing);
    changes.boolean("algorithms", settings.allows_algorithms);
    std::optional<std::string> flows;
    reader.choice("flows", {"cm", "all"}, flows);
    if (flows) settings.flows = *flows == "all" ? pcc::FlowPolicy::kAll : pcc::FlowPolicy::kCm;
    changes.duration("patience", settings.patience);
    for (const DcqcnField& field : kDcqcnFields)
        changes.count(field.name, field.min, field.max, settings.dcqcn.*field.field);
    reader.unknown_keys();
    if (const Status status = reader.status(); !status) return status.error();
    return settings;
}

Json to_json(const pcc::Settings& settings) {
    Json out = {{"cnp_interval_ns", settings.cnp_interval.ns},
                {"tx_packets_per_event", settings.tx_packets_per_event},
                {"tx_delay_ns", settings.tx_delay.ns},
                {"cnps_per_event", settings.cnps_per_event},
                {"acks_per_event", settings.acks_per_event},
                {"event_loss", settings.event_loss},
                {"probe_interval_ns", settings.probe_interval.ns},
                {"probe_timeout_ns", settings.probe_timeout.ns},
                {"line_rate_bps", settings.line_rate_bps},
                {"pacing", settings.is_pacing},
                {"algorithms", settings.allows_algorithms},
                {"flows", name_of(settings.flows)},
                {"patience_ns", settings.patience.ns}};
    for (const DcqcnField& field : kDcqcnFields) out[field.name] = settings.dcqcn.*field.field;
    return out;
}

}  // namespace rdmalab::card::host
