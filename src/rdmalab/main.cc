// rdmalab: starts software RDMA cards, shows them, and runs programs on them.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/edit_distance.h"
#include "rdmalab/commands.h"
#include "rdmalab/failure.h"

namespace rdmalab::launcher {
namespace {

constexpr char kFooter[] =
    "Examples:\n"
    "  rdmalab up                                  a card with mlx5_0 to mlx5_4, in the "
    "background\n"
    "  rdmalab run -- ibv_devices                  a program that sees the card\n"
    "  rdmalab run -- ib_write_bw -d mlx5_2        a server; the client is another 'rdmalab run'\n"
    "  rdmalab link cable0 --loss 1% --delay 5us   faults on the running cable\n"
    "  rdmalab pcap --at p0 frames.pcapng          a capture that tshark reads\n"
    "  rdmalab down\n"
    "'rdmalab COMMAND --help' explains a command; rdmalab(1) explains all of them.";

// What follows "--" belongs to the program that `run` or `lab exec` starts and is not ours to
// parse; nor is what follows the host of `lab agent`.
std::vector<std::string> take_command(std::vector<std::string>& arguments) {
    constexpr std::size_t kBeforeCommand = 3;  // lab agent HOST
    bool is_agent = arguments.size() > kBeforeCommand && arguments[0] == "lab" &&
                    arguments[1] == "agent" && !arguments[2].starts_with("-");
    if (is_agent) {
        std::vector<std::string> command(arguments.begin() + kBeforeCommand, arguments.end());
        arguments.resize(kBeforeCommand);
        return command;
    }
    bool starts_program = std::any_of(arguments.begin(), arguments.end(), [](const auto& word) {
        return word == "run" || word == "exec";
    });
    auto mark = std::find(arguments.begin(), arguments.end(), "--");
    if (!starts_program || mark == arguments.end()) return {};
    std::vector<std::string> command(mark + 1, arguments.end());
    arguments.erase(mark, arguments.end());
    return command;
}

const CLI::App& deepest(const CLI::App& app) {
    std::vector<CLI::App*> chosen = const_cast<CLI::App&>(app).get_subcommands();
    return chosen.empty() ? app : deepest(*chosen.front());
}

std::string full_name(const CLI::App& app) {
    return app.get_parent() == nullptr ? app.get_name()
                                       : full_name(*app.get_parent()) + " " + app.get_name();
}

// Every word the user could have meant at this place.
std::vector<std::string> known_words(const CLI::App& app, bool options) {
    std::vector<std::string> words;
    if (options) {
        for (const CLI::Option* option : app.get_options()) {
            for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
        }
        return words;
    }
    for (const CLI::App* command : app.get_subcommands({})) words.push_back(command->get_name());
    return words;
}

std::string describe_extra(const CLI::App& app, const std::string& word) {
    bool is_option = word.size() > 1 && word.front() == '-';
    bool is_command = !is_option && !app.get_subcommands({}).empty();
    std::string text = fmt::format(
        "unknown {} '{}'", is_option ? "option" : (is_command ? "command" : "argument"), word);
    std::string name = word.substr(0, word.find('='));
    std::string best;
    for (const std::string& known : known_words(app, is_option)) {
        if (edit_distance(name, known) > std::max<std::size_t>(1, name.size() / 3)) continue;
        if (best.empty() || edit_distance(name, known) < edit_distance(name, best)) best = known;
    }
    if (!best.empty()) text += fmt::format("; did you mean '{}'?", best);
    return text;
}

int report_bad_input(const CLI::App& app, const CLI::ParseError& error) {
    const CLI::App& command = deepest(app);
    std::string text = error.what();
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
        std::vector<std::string> words = command.remaining();
        if (words.empty()) words = app.remaining(true);
        if (!words.empty()) text = describe_extra(command, words.front());
    }
    fmt::print(stderr, "{0}: {1}\nsee '{0} --help'\n", full_name(command), text);
    return kExitBadInput;
}

int launch(int argument_count, char** argument_values) {
    CLI::App app("Software RDMA cards for programs that use libibverbs.", "rdmalab");
    Session session;
    app.footer(kFooter);
    app.set_version_flag("--version", std::string("rdmalab ") + RDMALAB_VERSION,
                         "Print the version and exit");
    app.set_help_flag("-h,--help", "Print this help and exit");
    app.require_subcommand(0, 1);
    add_up_command(app, session);
    add_down_command(app, session);
    add_status_command(app, session);
    add_counters_command(app, session);
    add_run_command(app, session);
    add_link_command(app, session);
    add_congestion_command(app, session);
    add_pcap_command(app, session);
    add_flow_command(app, session);
    add_lab_command(app, session);
    add_demo_command(app, session);
    add_completion_command(app, session);

    std::vector<std::string> arguments(argument_values + 1, argument_values + argument_count);
    session.command = take_command(arguments);
    if (arguments.empty()) {
        fmt::print(stderr, "{}", app.help());
        return kExitBadInput;
    }
    std::reverse(arguments.begin(), arguments.end());
    try {
        app.parse(arguments);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);
        return report_bad_input(app, error);
    } catch (const Failure& failure) {
        fmt::print(stderr, "{}: {}\n", full_name(deepest(app)), failure.what());
        return failure.exit_status();
    }
    return session.exit_status;
}

}  // namespace
}  // namespace rdmalab::launcher

int main(int argument_count, char** argument_values) {
    try {
        return rdmalab::launcher::launch(argument_count, argument_values);
    } catch (const std::exception& error) {
        fmt::print(stderr, "rdmalab: {}\n", error.what());
        return rdmalab::launcher::kExitFailed;
    }
}
