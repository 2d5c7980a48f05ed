#include "rdmalab/congestion_report.h"

#include <fmt/format.h>

#include "rdmalab/quantity.h"
#include "rdmalab/table.h"

namespace rdmalab::launcher {
namespace {

constexpr double kRateMax = 1 << 20;

std::string print_part(std::uint64_t rate) {
    return fmt::format("{:.4g} %", static_cast<double>(rate) / kRateMax * 100);
}

std::string print_settings(const Json& settings) {
    Table table({"setting", "value"});
    for (const auto& [key, value] : settings.items()) {
        std::string name = key, text = value.is_string() ? value.get<std::string>() : value.dump();
        if (name.ends_with("_ns")) {
            name.resize(name.size() - 3);
            text = print_duration(value.get<std::int64_t>());
        } else if (name.ends_with("_bps")) {
            name.resize(name.size() - 4);
            text = print_rate(value.get<std::uint64_t>());
        } else if (name == "event_loss") {
            text = print_probability(value.get<double>());
        }
        table.add_row({name, text});
    }
    return table.print();
}

std::string print_process(const Json& process) {
    std::string text = fmt::format(
        "  process {} (pid {}, {}): {}, {}{}\n", number(process, "process"), number(process, "pid"),
        process.value("command", ""), process.value("state", ""), process.value("algorithm", ""),
        process.value("report_only", false) ? ", reports only" : "");
    Table parameters({"parameter", "value", "default", "min", "max", "meaning"});
    for (const Json& row : member(process, "parameters")) {
        parameters.add_row(
            {fmt::format("{}", number(row, "id")), fmt::format("{}", number(row, "value")),
             fmt::format("{}", number(row, "default")), fmt::format("{}", number(row, "min")),
             fmt::format("{}", number(row, "max")), row.value("text", "")});
    }
    if (!parameters.is_empty()) text += parameters.print(4);
    Table counters({"counter", "value", "meaning"});
    for (const Json& row : member(process, "counters")) {
        counters.add_row({fmt::format("{}", number(row, "id")), print_count(number(row, "value")),
                          row.value("text", "")});
    }
    if (!counters.is_empty()) text += counters.print(4);
    return text;
}

std::string print_flows(const Json& flows) {
    constexpr std::size_t kShownMax = 32;
    Table table({"device", "qpn", "rate", "served by", "CNPs"});
    std::size_t shown = 0;
    for (const Json& flow : flows) {
        if (++shown > kShownMax) break;
        table.add_row({flow.value("device", ""), fmt::format("0x{:06x}", number(flow, "qpn")),
                       print_part(number(flow, "rate")),
                       flow.value("internal", true) ? "built-in DCQCN" : "process",
                       print_count(number(flow, "cnps"))});
    }
    std::string text = table.is_empty() ? "" : table.print();
    if (flows.size() > kShownMax)
        text += fmt::format("  and {} more (--json shows all)\n", flows.size() - kShownMax);
    return text;
}

std::string print_events(const Json& counters) {
    Table table({"events", "happened", "events", "dropped", "injected drop"});
    for (const std::string type : {"tx", "cnp", "ack", "nack", "rtt"}) {
        table.add_row({type, print_count(number(counters, type + "_handled")),
                       print_count(number(counters, type + "_events")),
                       print_count(number(counters, type + "_event_drop")),
                       print_count(number(counters, type + "_event_injected_drop"))});
    }
    std::string text = table.print();
    text += fmt::format(
        "  answers {}, refused {}; probes {}, answered {}, lost {}; fallbacks {}\n",
        print_count(number(counters, "answers")), print_count(number(counters, "answers_refused")),
        print_count(number(counters, "probes_sent")),
        print_count(number(counters, "probes_answered")),
        print_count(number(counters, "probes_lost")), print_count(number(counters, "fallbacks")));
    return text;
}

}  // namespace

std::string print_congestion(const Json& reply) {
    std::string text = "settings\n" + print_settings(member(reply, "settings"));
    for (const Json& pf : member(reply, "pfs")) {
        text += fmt::format("{}: line rate {}\n", pf.value("pf", ""),
                            print_rate(number(pf, "line_rate_bps")));
        const Json& processes = member(pf, "processes");
        if (processes.empty()) text += "  no process; the built-in DCQCN serves all flows\n";
        for (const Json& process : processes) text += print_process(process);
        text += print_flows(member(pf, "flows"));
        text += print_events(member(pf, "counters"));
    }
    return text;
}

}  // namespace rdmalab::launcher
