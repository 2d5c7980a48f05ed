// The subcommands. Each `add_*` describes its options to the parser and leaves a callback that does
// the work; a callback that fails throws Failure.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace rdmalab::launcher {

struct Session {
    int exit_status = 0;               // what main returns when nothing was thrown
    std::vector<std::string> command;  // of `run` and `lab`: what stood after "--"
};

void add_up_command(CLI::App& app, Session& session);
void add_down_command(CLI::App& app, Session& session);
void add_status_command(CLI::App& app, Session& session);
void add_counters_command(CLI::App& app, Session& session);
void add_link_command(CLI::App& app, Session& session);
void add_flow_command(CLI::App& app, Session& session);
void add_congestion_command(CLI::App& app, Session& session);
void add_pcap_command(CLI::App& app, Session& session);
void add_run_command(CLI::App& app, Session& session);
void add_lab_command(CLI::App& app, Session& session);
void add_demo_command(CLI::App& app, Session& session);
void add_completion_command(CLI::App& app, Session& session);

// "--name N", the same in all commands that talk to a running card.
void add_name_option(CLI::App& command, std::string& name);

}  // namespace rdmalab::launcher
