#include "perftest/scenario/outline.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "perftest/scenario/table.h"

namespace rdmalab::perftest {

namespace {

// More than these are counted, not listed: a screen is for people.
constexpr std::size_t kListedMax = 64;
constexpr std::size_t kMatrixMax = 32;

const char* arrow(const ScenarioTest& test) { return test.is_bidirectional() ? "<->" : "->"; }

std::string window_text(const Plan& plan) {
    std::string out = plan.iterations > 0 ? fmt::format("{} iterations", plan.iterations)
                                          : fmt::format("{} s", plan.duration_s);
    if (plan.warmup_iterations > 0) {
        out += fmt::format(", {} warm-up iterations before", plan.warmup_iterations);
    } else if (plan.warmup_s > 0) {
        out += fmt::format(", {} s warm-up before", plan.warmup_s);
    }
    if (plan.end_margin_s > 0) out += fmt::format(", {} s margin after", plan.end_margin_s);
    return out;
}

std::string heading(const ScenarioTest& test) {
    const Plan& plan = test.plan;
    std::string verbs;
    for (const Operation& each : plan.operations) {
        verbs += fmt::format("{}{}", verbs.empty() ? "" : " + ", name_of(each.verb));
        if (!test.sizes) verbs += fmt::format(" {} B", each.size);
    }
    std::string pattern = name_of(test.wiring.pattern);
    std::string out = fmt::format("{}, {}", pattern.empty() ? "listed connections" : pattern,
                                  name_of(test.wiring.direction));
    if (test.wiring.partition != Partition::kNone) {
        out += fmt::format(", {}", name_of(test.wiring.partition));
    }
    if (test.iteration_sync) out += ", in lock-step";
    out += fmt::format("; {} {} {}{}", name_of(plan.transport), verbs,
                       plan.metric == Metric::kLatency ? "latency" : "bandwidth",
                       test.sizes ? ", sizes from " + test.ptini_file : "");
    return out + fmt::format("; {} process(es) with {} queue pair(s); {}\n", plan.processes,
                             plan.qps, window_text(plan));
}

std::string connection_line(const ScenarioTest& test, const ScenarioConnection& each) {
    std::string round = test.wiring.peer_shifting ? fmt::format("round {}: ", each.phase) : "";
    return fmt::format(
        "  {}{} {} {} {}: {} bytes per iteration\n", round, each.source,
        test.endpoints[each.source].label(), arrow(test),
        fmt::format("{} {}", each.destination, test.endpoints[each.destination].label()),
        test.bytes_of(each));
}

std::string more(std::size_t all) {
    return all > kListedMax ? fmt::format("  ... and {} more (--print_json_results lists all)\n",
                                          all - kListedMax)
                            : "";
}

std::string test_outline(const ScenarioTest& test) {
    std::uint64_t bytes = 0;
    for (const ScenarioConnection& each : test.connections) bytes += test.bytes_of(each);
    if (test.is_bidirectional()) bytes *= 2;
    std::string out =
        fmt::format("Test: {}, endpoints: {}\n{}", test.name, test.endpoints.size(), heading(test));
    out += "Ranks:\n";
    for (std::size_t i = 0; i < std::min(test.endpoints.size(), kListedMax); ++i) {
        out += fmt::format("  {} {}\n", i, test.endpoints[i].label());
    }
    out += more(test.endpoints.size());
    out += fmt::format(
        "Connections: {}{}, {} bytes per iteration of all\n", test.connections.size(),
        test.wiring.peer_shifting ? fmt::format(" in {} rounds", test.rounds()) : "", bytes);
    for (std::size_t i = 0; i < std::min(test.connections.size(), kListedMax); ++i) {
        out += connection_line(test, test.connections[i]);
    }
    return out + more(test.connections.size()) + size_matrix(test);
}

}  // namespace

std::string size_matrix(const ScenarioTest& test) {
    if (!test.sizes) return "";
    const SizeMatrix& sizes = *test.sizes;
    std::string out = fmt::format("Test: {}, endpoints: {}\n", test.name, test.endpoints.size());
    out += host_line(test.endpoints);
    out += fmt::format(".ptini counts scaled by datatype {} ({} bytes per element)\n",
                       test.ptini_datatype, *datatype_bytes(test.ptini_datatype));
    std::uint64_t pairs = std::uint64_t{sizes.ranks} * (sizes.ranks - 1);
    std::string skipped = sizes.skipped > 0
                              ? fmt::format("skipped {}/{} zero-size pairs\n", sizes.skipped, pairs)
                              : "";
    std::uint64_t total = std::accumulate(sizes.bytes.begin(), sizes.bytes.end(), std::uint64_t{0});
    if (sizes.ranks > kMatrixMax) {
        return out +
               fmt::format("Message sizes: {} bytes in all; the matrix is too wide to show\n",
                           total) +
               skipped;
    }
    PairTable table;
    table.endpoints = test.endpoints;
    std::vector<std::uint64_t> received(sizes.ranks);
    for (std::uint32_t from = 0; from < sizes.ranks; ++from) {
        std::uint64_t sent = 0;
        table.cells.emplace_back();
        for (std::uint32_t to = 0; to < sizes.ranks; ++to) {
            sent += sizes.at(from, to);
            received[to] += sizes.at(from, to);
            table.cells.back().push_back(from == to ? "-" : std::to_string(sizes.at(from, to)));
        }
        table.sent.push_back(std::to_string(sent));
    }
    for (std::uint64_t each : received) table.received.push_back(std::to_string(each));
    return out + "Message Size Matrix [bytes]:\n" + draw(table) + skipped;
}

std::string outline(const Scenario& scenario) {
    std::string out =
        fmt::format("{} test(s) at once, {} host(s), {} connection(s)\n", scenario.tests.size(),
                    scenario.hosts().size(), scenario.connections());
    for (const ScenarioTest& test : scenario.tests) out += "\n" + test_outline(test);
    return out;
}

Json outline_json(const Scenario& scenario) {
    Json out = {{"scenario", scenario_json(scenario)}, {"connections", Json::array()}};
    for (const ScenarioTest& test : scenario.tests) {
        for (const ScenarioConnection& each : test.connections) {
            out["connections"].push_back({{"connectionId", out["connections"].size()},
                                          {"testName", test.name},
                                          {"sourceRank", each.source},
                                          {"source", test.endpoints[each.source].label()},
                                          {"destinationRank", each.destination},
                                          {"destination", test.endpoints[each.destination].label()},
                                          {"trafficPhaseId", each.phase},
                                          {"bytesPerIteration", test.bytes_of(each)}});
        }
    }
    return out;
}

}  // namespace rdmalab::perftest
