#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "rdmalab/card_client.h"
#include "rdmalab/commands.h"
#include "rdmalab/failure.h"
#include "rdmalab/flow_report.h"
#include "rdmalab/quantity.h"
#include "rdmalab/runtime_folder.h"
#include "rdmalab/signals.h"

namespace rdmalab::launcher {

namespace {

constexpr std::size_t kEntriesShown = 8;

struct FlowOptions {
    std::string name, what, pf;
    std::vector<std::string> match;
    std::string count = "1", timeout = "10";
    bool dot = false, json = false, all = false;
};

// The domains asked for: all, or that of one PF.
Json chosen_domains(CardClient& client, const std::string& pf) {
    const Json flow = client.admin({{"op", "flow"}});
    const Json& domains = member(flow, "domains");
    if (pf.empty()) return domains;
    std::string names;
    for (const Json& domain : domains) {
        const std::string name = domain.value("pf", "");
        if (name == pf) return Json::array({domain});
        names += (names.empty() ? "" : ", ") + name;
    }
    throw Failure(kExitBadInput, fmt::format("PF: expected one of {}, found '{}'", names, pf));
}

void dump(CardClient& client, const FlowOptions& options) {
    const Json domains = chosen_domains(client, options.pf);
    if (options.json) {
        fmt::print("{}\n", domains.dump(2));
    } else if (options.dot) {
        fmt::print("{}", draw_domains(domains));
    } else {
        const std::size_t shown = options.all ? SIZE_MAX : kEntriesShown;
        for (const Json& domain : domains) fmt::print("{}", print_domain(domain, shown));
    }
}

void show_counters(CardClient& client, const FlowOptions& options) {
    const Json domains = chosen_domains(client, options.pf);
    if (options.json) {
        fmt::print("{}\n", domains.dump(2));
        return;
    }
    for (const Json& domain : domains) fmt::print("{}", print_flow_counters(domain));
}

// "FIELD=VALUE[/MASK]"; l3_type and l4_type are beside the fields.
Json trace_request(const FlowOptions& options) {
    Json request = {{"op", "flow_trace"},
                    {"pf", options.pf},
                    {"count", parse_count("--count", options.count, 1)},
                    {"match", Json::object()}};
    for (const std::string& term : options.match) {
        const std::size_t mark = term.find('=');
        if (mark == 0 || mark == std::string::npos) {
            throw Failure(kExitBadInput,
                          fmt::format("--match: expected FIELD=VALUE[/MASK], found '{}'", term));
        }
        const std::string field = term.substr(0, mark);
        const bool is_type = field == "l3_type" || field == "l4_type";
        (is_type ? request : request["match"])[field] = term.substr(mark + 1);
    }
    return request;
}

int trace(CardClient& client, const FlowOptions& options) {
    if (options.pf.empty()) {
        throw Failure(kExitBadInput, "PF: expected the device of a PF, such as mlx5_0, found none");
    }
    const double seconds = parse_seconds("--timeout", options.timeout);
    client.admin(trace_request(options));
    constexpr double kStep = 0.05;
    StopSignals signals;
    std::size_t printed = 0;
    for (double waited = 0;; waited += kStep) {
        const Json answer = client.admin({{"op", "flow_trace_read"}, {"pf", options.pf}});
        const Json& packets = member(answer, "packets");
        for (; printed < packets.size(); ++printed) {
            fmt::print("{}", options.json ? packets[printed].dump() + "\n"
                                          : print_traced_packet(packets[printed]));
        }
        std::fflush(stdout);
        if (number(answer, "remaining") == 0) return 0;
        if (waited >= seconds || signals.wait(kStep)) break;
    }
    fmt::print(stderr, "rdmalab flow: {} of {} packets came in {:g} s\n", printed, options.count,
               seconds);
    return printed == 0 ? kExitFailed : 0;
}

}  // namespace

void add_flow_command(CLI::App& app, Session& session) {
    CLI::App* command = app.add_subcommand(
        "flow", "Show the pipes of a program that owns a switch, follow packets through them");
    auto options = std::make_shared<FlowOptions>();
    add_name_option(*command, options->name);
    command->add_option("WHAT", options->what, "dump, counters or trace")->required();
    command->add_option("PF", options->pf,
                        "The PF, such as mlx5_0; without it all (not for trace)");
    command->add_flag("--all", options->all,
                      "dump: show every entry, not only the first 8 of a pipe");
    command->add_flag("--dot", options->dot, "dump: print a graph for Graphviz");
    command->add_flag("--json", options->json, "Print JSON");
    command
        ->add_option("--match", options->match,
                     "trace: only packets whose field has this value; may be repeated")
        ->type_name("FIELD=VALUE[/MASK]");
    command->add_option("--count", options->count, "trace: packets to follow, at most 64")
        ->type_name("N")
        ->capture_default_str();
    command->add_option("--timeout", options->timeout, "trace: give up after this time")
        ->type_name("SECONDS")
        ->capture_default_str();
    command->footer(
        "Fields have the names of DOCA Flow: outer.ipv4.dst_ip, outer.roce_v2.bth.opcode,\n"
        "parser_meta.port_id; l4_type=roce_v2 stands for all RoCE packets.\n"
        "Examples:\n"
        "  rdmalab flow dump\n"
        "  rdmalab flow dump mlx5_1 --dot | dot -Tsvg > pipes.svg\n"
        "  rdmalab flow counters mlx5_0\n"
        "  rdmalab flow trace mlx5_1 --match outer.ipv4.dst_ip=10.0.0.1 --count 3");
    command->callback([options, &session] {
        const std::string& what = options->what;
        if (what != "dump" && what != "counters" && what != "trace") {
            throw Failure(kExitBadInput,
                          fmt::format("WHAT: expected dump, counters or trace, found '{}'", what));
        }
        CardClient client = CardClient::connect_or_fail(card_name_or_default(options->name));
        if (what == "dump") return dump(client, *options);
        if (what == "counters") return show_counters(client, *options);
        session.exit_status = trace(client, *options);
    });
}

}  // namespace rdmalab::launcher
