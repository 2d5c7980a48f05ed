#include <fmt/format.h>

#include <memory>

#include "rdmalab/card_client.h"
#include "rdmalab/commands.h"
#include "rdmalab/counters_report.h"
#include "rdmalab/quantity.h"
#include "rdmalab/runtime_folder.h"
#include "rdmalab/signals.h"

namespace rdmalab::launcher {

namespace {

struct CountersOptions {
    std::string name;
    std::string interval;
    bool json = false;
};

Json sample(CardClient& client) { return client.admin({{"op", "counters"}}); }

void watch(CardClient& client, double seconds, bool json) {
    bool is_terminal = isatty(STDOUT_FILENO) != 0;
    StopSignals signals;
    Json before = sample(client);
    while (!signals.wait(seconds)) {
        Json after = sample(client);
        if (json) {
            fmt::print("{}\n", after.dump());
        } else {
            fmt::print("{}card '{}', every {:g} s\n{}", is_terminal ? "\x1b[H\x1b[2J" : "",
                       client.name(), seconds, print_rates(before, after));
        }
        std::fflush(stdout);
        before = std::move(after);
    }
}

}  // namespace

void add_counters_command(CLI::App& app, Session&) {
    CLI::App* command =
        app.add_subcommand("counters", "Show the counters of ports, functions and cables");
    auto options = std::make_shared<CountersOptions>();
    add_name_option(*command, options->name);
    command->add_flag("--json", options->json, "Print JSON (with --watch: one line per sample)");
    CLI::Option* interval =
        command->add_option("--watch", options->interval,
                            "Show rates instead, again every SECONDS (default: 1), until Ctrl-C");
    interval->type_name("SECONDS")->expected(0, 1);
    command->footer(
        "Examples:\n"
        "  rdmalab counters\n"
        "  rdmalab counters --watch 0.5\n"
        "  rdmalab counters --json | jq .ports.p0.tx_bytes");
    command->callback([options, interval] {
        bool watched = interval->count() > 0;
        double seconds = 1;
        if (!options->interval.empty()) seconds = parse_seconds("--watch", options->interval);
        CardClient client = CardClient::connect_or_fail(card_name_or_default(options->name));
        if (watched) return watch(client, seconds, options->json);
        Json counters = sample(client);
        fmt::print("{}", options->json ? counters.dump(2) + "\n" : print_counters(counters));
    });
}

}  // namespace rdmalab::launcher
