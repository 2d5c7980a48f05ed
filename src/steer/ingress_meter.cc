#include "steer/ingress_meter.h"

#include <nlohmann/json.hpp>

#include "steer/messages.h"

namespace rdmalab::steer {

Status IngressMeter::end_interval(const Interval& interval) {
    const Result<std::vector<PathCounters>> counters = emulator_.read();
    if (!counters.ok()) return counters.error();
    snapshot_.deltas.clear();
    snapshot_.gigabits_per_second.clear();
    snapshot_.percents.clear();
    std::vector<messages::CountRate> marks;
    for (std::uint32_t path = 0; path < counters->size(); ++path) {
        const PathCounters& now = (*counters)[path];
        const PathCounters before =
            path < snapshot_.counters.size() ? snapshot_.counters[path] : PathCounters{};
        const PathCounters delta{now.packets - before.packets, now.bytes - before.bytes,
                                 now.marked - before.marked};
        snapshot_.deltas.push_back(delta);
        snapshot_.gigabits_per_second.push_back(static_cast<double>(delta.bytes) * 8 / 1e9 /
                                                interval.seconds);
        snapshot_.percents.push_back(emulator_.percent(path));
        marks.push_back(
            {now.marked, delta.marked, static_cast<double>(delta.marked) / interval.seconds});
    }
    snapshot_.counters = *counters;
    console_.info(messages::throughput(snapshot_.gigabits_per_second));
    console_.info(messages::newly_marked(marks));
    console_.record(to_record(snapshot_, interval));
    return {};
}

nlohmann::json to_record(const IngressSnapshot& snapshot, const Interval& interval) {
    nlohmann::json paths = nlohmann::json::array();
    for (std::size_t path = 0; path < snapshot.counters.size(); ++path) {
        paths.push_back({{"packets", snapshot.counters[path].packets},
                         {"packets_delta", snapshot.deltas[path].packets},
                         {"bytes", snapshot.counters[path].bytes},
                         {"gbps", snapshot.gigabits_per_second[path]},
                         {"marked", snapshot.counters[path].marked},
                         {"marked_delta", snapshot.deltas[path].marked},
                         {"percent", snapshot.percents[path]}});
    }
    return {{"type", "ingress"},
            {"time", interval.time_s},
            {"interval", interval.seconds},
            {"paths", paths}};
}

}  // namespace rdmalab::steer
