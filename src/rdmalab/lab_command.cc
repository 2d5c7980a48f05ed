#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "rdmalab/commands.h"
#include "rdmalab/failure.h"
#include "rdmalab/lab_entry.h"
#include "rdmalab/lab_folder.h"
#include "rdmalab/lab_report.h"
#include "rdmalab/lab_up.h"
#include "rdmalab/quantity.h"

namespace rdmalab::launcher {
namespace {

unsigned parse_in(const char* what, const std::string& text, unsigned least, unsigned most) {
    const std::uint64_t value = parse_count(what, text, least);
    if (value <= most) return static_cast<unsigned>(value);
    throw Failure(kExitBadInput,
                  fmt::format("{}: expected {} to {}, found {}", what, least, most, value));
}

// --- up, down

struct LabUpOptions {
    std::string hosts, rails = "1", mtu = "9000";
    bool no_ssh = false, no_cards = false, join = false;
};

void up(const LabUpOptions& options) {
    Lab lab = Lab::of(parse_in("N", options.hosts, 1, kLabHostMax),
                      parse_in("--rails", options.rails, 1, kLabRailMax));
    lab.mtu = parse_in("--mtu", options.mtu, kLabMtuMin, kLabMtuMax);
    lab.has_ssh = !options.no_ssh;
    lab.has_cards = !options.no_cards;
    bring_up_lab(lab);
    if (options.join) {
        try {
            join_lab(find_lab_or_fail());
        } catch (const Failure&) {
            take_down_lab();
            throw;
        }
    }
    fmt::print("lab is up: {} ({})\nuse it with: rdmalab lab exec node01 -- {}\n", lab.names(),
               lab.address(lab.hosts.front(), 0), lab.has_cards ? "ibv_devinfo" : "hostname");
}

void add_up(CLI::App& lab) {
    CLI::App* command = lab.add_subcommand("up", "Make N hosts");
    auto options = std::make_shared<LabUpOptions>();
    command->add_option("N", options->hosts, "How many")->required();
    command
        ->add_option("--rails", options->rails,
                     "Interfaces and devices of each host, each on a switch of its own")
        ->type_name("NUMBER")
        ->capture_default_str();
    command->add_option("--mtu", options->mtu, "Of the interfaces")
        ->type_name("BYTES")
        ->capture_default_str();
    command->add_flag("--join", options->join,
                      "Give this host interfaces to the switches too (rdmalab0, ...)");
    command->add_flag("--no-cards", options->no_cards, "Hosts without RDMA devices");
    command->add_flag("--no-ssh", options->no_ssh, "Hosts without sshd");
    command->callback([options] { up(*options); });
}

void add_down(CLI::App& lab) {
    CLI::App* command = lab.add_subcommand("down", "End all hosts; nothing is left of them");
    command->callback(
        [] { fmt::print("{}\n", take_down_lab() ? "lab is down" : "no lab was up"); });
}

// --- Entering

struct LabEntryOptions {
    std::string host;
};

std::vector<std::string> command_of(const CLI::App& app, const Session& session) {
    const std::vector<std::string> rest = app.remaining();
    const bool is_misplaced =
        !rest.empty() && (!session.command.empty() || rest.front().starts_with("-"));
    if (is_misplaced) throw CLI::ExtrasError(app.get_name(), rest);
    return session.command.empty() ? rest : session.command;
}

void add_exec(CLI::App& lab, Session& session) {
    CLI::App* command =
        lab.add_subcommand("exec", "Run a program in a host: exec HOST -- PROGRAM [ARGUMENTS...]");
    auto options = std::make_shared<LabEntryOptions>();
    command->add_option("HOST", options->host, "Its name")->required();
    command->prefix_command();
    command->callback([command, options, &session] {
        const std::vector<std::string> words = command_of(*command, session);
        if (words.empty())
            throw Failure(kExitBadInput, "expected a program after '--', found none");
        const Lab up = find_lab_or_fail();
        session.exit_status = run_in_host(find_host_or_fail(up, options->host), words);
    });
}

// As rsh(1) and ssh(1) do it: the words become one line of a shell.
void add_agent(CLI::App& lab, Session& session) {
    CLI::App* command = lab.add_subcommand(
        "agent", "As ssh: agent HOST WORDS..., for mpirun --mca plm_rsh_agent 'rdmalab lab agent'");
    auto options = std::make_shared<LabEntryOptions>();
    command->add_option("HOST", options->host, "Its name or address")->required();
    command->callback([options, &session] {
        std::string line;
        for (const std::string& word : session.command) line += (line.empty() ? "" : " ") + word;
        if (line.empty()) throw Failure(kExitBadInput, "expected words of a shell, found none");
        const Lab up = find_lab_or_fail();
        std::string name = options->host;
        for (const LabHost& host : up.hosts) {
            for (unsigned rail = 0; rail < up.rails; ++rail)
                if (up.address(host, rail) == name) name = host.name;
        }
        session.exit_status = run_in_host(find_host_or_fail(up, name), {"/bin/sh", "-c", line});
    });
}

// --- Faults

void crash(const std::string& name) {
    const Lab lab = find_lab_or_fail();
    const LabHost& host = find_host_or_fail(lab, name);
    if (!is_alive(host.init))
        throw Failure(kExitBadInput, fmt::format("{} has crashed already", host.name));
    if (kill(host.init.pid, SIGKILL) != 0)
        throw Failure(kExitFailed,
                      fmt::format("cannot kill {}: {}", host.name, std::strerror(errno)));
    while (is_alive(host.init)) pause_ms(1);
}

void add_crash(CLI::App& lab) {
    CLI::App* command =
        lab.add_subcommand("crash", "Cut the power of a host: all its processes are killed");
    auto options = std::make_shared<LabEntryOptions>();
    command->add_option("HOST", options->host, "Its name")->required();
    command->callback([options] { crash(options->host); });
}

struct LabLinkOptions {
    std::string host, state, rail;
};

void change_link(const LabLinkOptions& options) {
    if (options.state != "up" && options.state != "down" && options.state != "cut")
        throw Failure(kExitBadInput,
                      fmt::format("STATE: expected up, down or cut, found '{}'", options.state));
    const Lab lab = find_lab_or_fail();
    const LabHost& host = find_host_or_fail(lab, options.host);
    unsigned first = 0, last = lab.rails - 1;
    if (!options.rail.empty()) first = last = parse_in("--rail", options.rail, 0, lab.rails - 1);
    if (!is_alive(host.init))
        throw Failure(kExitFailed, fmt::format("{} has crashed and has no link", host.name));
    ask_in_switch(lab, [&] {
        for (unsigned rail = first; rail <= last; ++rail) {
            const std::string port = lab_port(host, rail);
            run_tool({"ip", "link", "set", port, options.state == "down" ? "down" : "up"});
            // In the state "disabled" a port of the switch drops everything, and its wire stays up.
            if (options.state == "cut")
                run_tool({"bridge", "link", "set", "dev", port, "state", "disabled"});
            if (options.state == "up")
                run_tool({"bridge", "link", "set", "dev", port, "state", "forwarding"});
        }
        return std::string();
    });
}

void add_link(CLI::App& lab) {
    CLI::App* command = lab.add_subcommand("link", "Take the wire of a host down, or up again");
    auto options = std::make_shared<LabLinkOptions>();
    command->add_option("HOST", options->host, "Its name")->required();
    command
        ->add_option("STATE", options->state,
                     "down: the host notices; cut: silently, everything is lost; up")
        ->required();
    command->add_option("--rail", options->rail, "One rail only, from 0")->type_name("NUMBER");
    command->callback([options] { change_link(*options); });
}

// --- status

struct LabStatusOptions {
    bool json = false;
};

void show_status(const LabStatusOptions& options) {
    const Lab lab = find_lab_or_fail();
    const auto ask = [&](const std::vector<std::string>& words) {
        const std::string text = ask_in_switch(lab, [&] { return run_tool(words); });
        const Json json = Json::parse(text, nullptr, false);
        return json.is_array() ? json : Json::array();
    };
    const Json status = lab_status(lab, ask({"ip", "-j", "link"}), ask({"bridge", "-j", "link"}));
    fmt::print("{}", options.json ? status.dump(2) + "\n" : print_lab_status(status));
}

void add_status(CLI::App& lab) {
    CLI::App* command = lab.add_subcommand("status", "Show the hosts");
    auto options = std::make_shared<LabStatusOptions>();
    command->add_flag("--json", options->json, "Print JSON");
    command->callback([options] { show_status(*options); });
}

}  // namespace

void add_lab_command(CLI::App& app, Session& session) {
    CLI::App* lab = app.add_subcommand("lab", "A cluster of test hosts on this machine");
    lab->require_subcommand(0, 1);
    lab->callback([lab] {
        if (!lab->get_subcommands().empty()) return;
        throw Failure(kExitBadInput,
                      "expected up, exec, agent, crash, link, status or down, found none");
    });
    add_up(*lab);
    add_exec(*lab, session);
    add_agent(*lab, session);
    add_crash(*lab);
    add_link(*lab);
    add_status(*lab);
    add_down(*lab);
    lab->footer(
        "Each host (node01, node02, ...) has its own network, host name, mounts, processes, sshd,\n"
        "and a card whose devices reach those of the others. Needs root.\n"
        "Examples:\n"
        "  rdmalab lab up 4\n"
        "  rdmalab lab exec node01 -- ib_write_bw -d mlx5_0 &\n"
        "  rdmalab lab exec node02 -- ib_write_bw -d mlx5_0 node01\n"
        "  rdmalab lab exec node01 -- mpirun --allow-run-as-root -H node01,node02 hostname\n"
        "  rdmalab lab crash node03; rdmalab lab link node02 cut; rdmalab lab status\n"
        "  rdmalab lab down");
}

}  // namespace rdmalab::launcher
