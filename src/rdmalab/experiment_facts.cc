#include "rdmalab/experiment_facts.h"

#include <numeric>

namespace rdmalab::launcher {

namespace {

double real(const Json& object, const std::string& key) {
    auto found = object.find(key);
    return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::vector<double> reals(const Json& array) {
    std::vector<double> values;
    for (const Json& value : array) values.push_back(value.is_number() ? value.get<double>() : 0);
    return values;
}

// One value of every path.
std::vector<double> per_path(const Json& record, const std::string& key) {
    std::vector<double> values;
    for (const Json& path : member(record, "paths")) {
        if (path.contains(key)) values.push_back(real(path, key));
    }
    return values;
}

bool is_of_type(const Json& record, const char* type) {
    return record.is_object() && record.contains("type") && record["type"] == type;
}

}  // namespace

double IngressSample::total_gigabits_per_second() const {
    return std::accumulate(gigabits_per_second.begin(), gigabits_per_second.end(), 0.0);
}

std::optional<IngressSample> read_ingress(const Json& record) {
    if (!is_of_type(record, "ingress")) return std::nullopt;
    IngressSample sample;
    sample.time_s = real(record, "time");
    sample.seconds = real(record, "interval");
    sample.packets = per_path(record, "packets_delta");
    sample.marked = per_path(record, "marked_delta");
    sample.gigabits_per_second = per_path(record, "gbps");
    sample.percents = per_path(record, "percent");
    return sample;
}

std::optional<EgressSample> read_egress(const Json& record) {
    if (!is_of_type(record, "egress")) return std::nullopt;
    EgressSample sample;
    sample.time_s = real(record, "time");
    sample.seconds = real(record, "interval");
    sample.buckets = real(record, "buckets");
    sample.applied = reals(member(record, "applied"));
    sample.target = reals(member(record, "target"));
    sample.packets = per_path(record, "packets_delta");
    sample.cnps = per_path(record, "cnps_delta");
    sample.pending_map = real(record, "pending_map");
    sample.updates = real(record, "updates");
    sample.failures_total = real(record, "failures_total");
    for (const Json& flow : member(record, "flows")) {
        FlowSample one;
        one.qpn = static_cast<std::uint32_t>(number(flow, "qpn"));
        one.average = real(flow, "average");
        if (flow.contains("path")) one.path = static_cast<std::uint32_t>(number(flow, "path"));
        sample.flows.push_back(one);
    }
    return sample;
}

}  // namespace rdmalab::launcher
