#include "perftest/report_rows.h"

#include <fmt/format.h>

#include <cmath>

namespace rdmalab::perftest {

namespace {

constexpr std::size_t kValueEnd = 46;  // column at which a value ends

}  // namespace

std::string row(const std::string& label, const std::string& value, const std::string& unit) {
    std::size_t width = kValueEnd > label.size() ? kValueEnd - label.size() : value.size() + 1;
    return fmt::format("{}{:>{}} [{}]\n", label, value, width, unit);
}

std::string plain_row(const std::string& label, const std::string& value) {
    return fmt::format("{}{:>{}}\n", label, value,
                       kValueEnd > label.size() ? kValueEnd - label.size() : value.size() + 1);
}

std::string decimals(double value, int places) {
    return std::isfinite(value) ? fmt::format("{:.{}f}", value, places) : "N/A";
}

std::string rate_text(double value) {
    if (value > 0 && value < 10) return decimals(value, value < 0.1 ? 6 : 4);
    return decimals(value, 2);
}

std::string bandwidth_rows(const Bandwidth& bandwidth) {
    return row("BW:", decimals(bandwidth.gbps, bandwidth.gbps < 0.1 ? 6 : 2), "Gbit/sec") +
           row("Message Rate:", rate_text(bandwidth.mpps), "Mpps") +
           row("Duration:", decimals(bandwidth.duration_s, 2), "sec") +
           plain_row("Iterations:", fmt::format("{}", bandwidth.iterations));
}

std::string latency_rows(const Latency& latency) {
    const std::pair<const char*, double> rows[] = {
        {"Min:", latency.min_us},       {"Max:", latency.max_us},     {"Mean:", latency.mean_us},
        {"Median:", latency.median_us}, {"Stdev:", latency.stdev_us}, {"99%:", latency.p99_us},
        {"99.9%:", latency.p999_us}};
    std::string out;
    for (const auto& [label, value] : rows) out += row(label, decimals(value, 2), "usec");
    return out + plain_row("Samples:", fmt::format("{}", latency.count));
}

}  // namespace rdmalab::perftest
