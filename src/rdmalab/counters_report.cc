#include "rdmalab/counters_report.h"

#include <fmt/format.h>

#include <set>

#include "rdmalab/table.h"

namespace rdmalab::launcher {

namespace {

using Number = std::uint64_t;

// Shown in the first table of functions; all others appear in "events" when they are not 0.
const std::set<std::string>& traffic_keys() {
    static const std::set<std::string> kKeys = {"tx_frames", "tx_bytes", "rx_frames", "rx_bytes"};
    return kKeys;
}

bool is_event(const std::string& key) {
    return !traffic_keys().contains(key) && !key.starts_with("vport_");
}

std::string print_traffic(const Json& counters, const char* group, const char* head,
                          std::vector<std::string> more) {
    std::vector<std::string> keys = {"tx_frames", "tx_bytes", "rx_frames", "rx_bytes"};
    keys.insert(keys.end(), more.begin(), more.end());
    std::vector<std::string> heads = {head};
    heads.insert(heads.end(), keys.begin(), keys.end());
    Table table(heads);
    for (const auto& [name, values] : member(counters, group).items()) {
        std::vector<std::string> row = {name};
        for (const std::string& key : keys) row.push_back(print_count(number(values, key)));
        table.add_row(std::move(row));
    }
    return table.print();
}

std::string print_events(const Json& counters) {
    std::string text;
    for (const auto& [name, values] : member(counters, "functions").items()) {
        std::string events;
        for (const auto& [key, value] : values.items()) {
            if (!is_event(key) || number(values, key) == 0) continue;
            events += fmt::format("  {} {}", key, print_count(number(values, key)));
        }
        if (!events.empty()) text += fmt::format("  {}{}\n", name, events);
    }
    return text;
}

std::string print_cable_counters(const Json& counters) {
    const std::vector<std::string> keys = {"frames",     "bytes",     "lost",      "reordered",
                                           "duplicated", "corrupted", "ce_marked", "overflowed"};
    std::vector<std::string> heads = {"cable", "direction"};
    heads.insert(heads.end(), keys.begin(), keys.end());
    Table table(heads);
    for (const auto& [name, cable] : member(counters, "cables").items()) {
        for (const auto& [direction, values] : cable.items()) {
            std::vector<std::string> row = {name, direction};
            for (const std::string& key : keys) row.push_back(print_count(number(values, key)));
            table.add_row(std::move(row));
        }
    }
    return table.print();
}

class Change {
public:
    Change(const Json& before, const Json& after)
        : before_(before),
          after_(after),
          seconds_(static_cast<double>(number(after, "time_ns") - number(before, "time_ns")) /
                   1e9) {}

    std::string traffic(const char* group, const char* head) const {
        Table table({head, "tx Gb/s", "rx Gb/s", "tx frames/s", "rx frames/s"});
        for (const auto& [name, values] : member(after_, group).items()) {
            const Json& old = member(member(before_, group), name);
            table.add_row({name, gigabits(old, values, "tx_bytes"),
                           gigabits(old, values, "rx_bytes"), rate(old, values, "tx_frames"),
                           rate(old, values, "rx_frames")});
        }
        return table.print();
    }

    // Everything that is not traffic and has moved.
    std::string events() const {
        std::string text;
        for (const char* group : {"ports", "functions"}) {
            for (const auto& [name, values] : member(after_, group).items()) {
                text += moved(name, member(member(before_, group), name), values);
            }
        }
        for (const auto& [name, cable] : member(after_, "cables").items()) {
            for (const auto& [direction, values] : cable.items()) {
                const Json& old = member(member(member(before_, "cables"), name), direction);
                text += moved(name + " " + direction, old, values);
            }
        }
        return text;
    }

private:
    double per_second(const Json& old, const Json& values, const std::string& key) const {
        Number now = number(values, key);
        Number then = number(old, key);
        if (seconds_ <= 0 || now < then) return 0;
        return static_cast<double>(now - then) / seconds_;
    }
    std::string gigabits(const Json& old, const Json& values, const char* key) const {
        return fmt::format("{:.3f}", per_second(old, values, key) * 8 / 1e9);
    }
    std::string rate(const Json& old, const Json& values, const std::string& key) const {
        return print_count(static_cast<Number>(per_second(old, values, key) + 0.5));
    }
    std::string moved(const std::string& name, const Json& old, const Json& values) const {
        std::string text;
        for (const auto& [key, value] : values.items()) {
            bool is_volume = key == "frames" || key == "bytes";
            if (!is_event(key) || is_volume || number(values, key) == number(old, key)) continue;
            text += fmt::format("  {} {}/s", key, rate(old, values, key));
        }
        return text.empty() ? text : fmt::format("  {}{}\n", name, text);
    }

    const Json& before_;
    const Json& after_;
    double seconds_;
};

}  // namespace

std::string print_port_counters(const Json& counters) {
    return "ports\n" + print_traffic(counters, "ports", "port", {"dropped"}) + "\ncables\n" +
           print_cable_counters(counters);
}

std::string print_counters(const Json& counters) {
    std::string text = print_port_counters(counters);
    text += "\nfunctions\n" + print_traffic(counters, "functions", "device", {});
    std::string events = print_events(counters);
    if (!events.empty()) text += "\nevents\n" + events;
    return text;
}

std::string print_rates(const Json& before, const Json& after) {
    Change change(before, after);
    std::string text = change.traffic("ports", "port") + change.traffic("functions", "device");
    std::string events = change.events();
    if (!events.empty()) text += "  events\n" + events;
    return text;
}

}  // namespace rdmalab::launcher
