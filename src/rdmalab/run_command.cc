// `rdmalab run`: a program that sees the devices of a card.
//
// With a card that is up the launcher *becomes* the program (exec): its pid, its signals and its
// exit status are the program's own. Without one it starts an embedded card, runs the program as a
// child, stops the card when the program ends, and returns what the program returned. When the
// launcher is killed, the kernel ends the card and the program.

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "rdmalab/card_client.h"
#include "rdmalab/card_process.h"
#include "rdmalab/child.h"
#include "rdmalab/commands.h"
#include "rdmalab/device_view.h"
#include "rdmalab/failure.h"
#include "rdmalab/quantity.h"
#include "rdmalab/runtime_folder.h"
#include "rdmalab/signals.h"

namespace rdmalab::launcher {

namespace {

struct RunOptions {
    std::string name;
    std::string seed;
    CardOptions embedded;
    bool verbose = false;
};

// What the program gets, decided while the card answers and before anything is changed.
struct Surroundings {
    std::string card, socket, libraries;
    DeviceView view;
    bool verbose = false;
};

Surroundings surroundings_of(CardClient& client, const RunOptions& options) {
    return {client.name(), card_files(client.name()).socket, library_folder(),
            device_view_of(client), options.verbose};
}

void set_environment(const Surroundings& surroundings) {
    std::string path = surroundings.libraries;
    const char* inherited = std::getenv("LD_LIBRARY_PATH");
    if (inherited != nullptr && inherited[0] != 0) path += std::string(":") + inherited;
    setenv("LD_LIBRARY_PATH", path.c_str(), 1);
    setenv("RDMALAB_SOCKET", surroundings.socket.c_str(), 1);
    setenv("RDMALAB_CARD", surroundings.card.c_str(), 1);
}

// Ends as the program; throws Failure when there is no such program.
[[noreturn]] void become_program(const Surroundings& surroundings,
                                 std::vector<std::string> command) {
    set_environment(surroundings);
    std::vector<char*> pointers;
    for (std::string& word : command) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    execvp(pointers[0], pointers.data());
    bool missing = errno == ENOENT || errno == ENOTDIR;
    throw Failure(missing ? kExitNotFound : kExitCannotExecute,
                  fmt::format("cannot run '{}': {}", command[0], std::strerror(errno)));
}

void enter_view(const Surroundings& surroundings) {
    Status status = enter_device_view(surroundings.view);
    if (status.ok() || !surroundings.verbose) return;
    fmt::print(stderr, "rdmalab run: no device files for the program: {}\n", status.error().text);
}

[[noreturn]] void run_in_child(const Surroundings& surroundings,
                               const std::vector<std::string>& command, pid_t launcher) {
    StopSignals::restore();
    enter_view(surroundings);
    // After the change of namespaces, which would clear it.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(kExitFailed);
    try {
        become_program(surroundings, command);
    } catch (const Failure& failure) {
        fmt::print(stderr, "rdmalab run: {}\n", failure.what());
        std::fflush(nullptr);
        _exit(failure.exit_status());
    }
}

int run_embedded(RunOptions options, const std::vector<std::string>& command) {
    options.embedded.name = fmt::format("run-{}", getpid());
    StopSignals signals;
    EmbeddedCard card(options.embedded);
    std::optional<CardClient> client = CardClient::connect_or_fail(card.name());
    Surroundings surroundings = surroundings_of(*client, options);
    client.reset();
    if (std::optional<StopSignal> signal = signals.take()) return 128 + signal->number;
    pid_t launcher = getpid();
    pid_t child = fork();
    if (child < 0) {
        throw Failure(kExitFailed, fmt::format("cannot start a process: {}", std::strerror(errno)));
    }
    if (child == 0) run_in_child(surroundings, command, launcher);
    return stay_until_end(child, signals);
}

void run(const RunOptions& options, Session& session) {
    bool wants_embedded = !options.embedded.topology.empty() || options.embedded.seed.has_value();
    if (wants_embedded && !options.name.empty()) {
        throw Failure(kExitBadInput,
                      "--topology and --seed are for an embedded card: expected them or --name, "
                      "found both");
    }
    std::string name = card_name_or_default(options.name);
    std::optional<CardClient> client;
    if (!wants_embedded) {
        client = is_card_named(options.name) ? CardClient::connect_or_fail(name)
                                             : CardClient::connect(name);
    }
    if (!client) {
        session.exit_status = run_embedded(options, session.command);
        return;
    }
    Surroundings surroundings = surroundings_of(*client, options);
    client.reset();
    enter_view(surroundings);
    become_program(surroundings, session.command);
}

}  // namespace

void add_run_command(CLI::App& app, Session& session) {
    CLI::App* command = app.add_subcommand(
        "run",
        "Run a program that sees the card's devices: run [OPTIONS] -- PROGRAM [ARGUMENTS...]");
    auto options = std::make_shared<RunOptions>();
    add_name_option(*command, options->name);
    command
        ->add_option("--topology", options->embedded.topology,
                     "Topology of an embedded card, even when another card is up")
        ->type_name("NAME|FILE");
    command->add_option("--seed", options->seed, "Seed of an embedded card")->type_name("NUMBER");
    command->add_flag("-v,--verbose", options->verbose,
                      "Say so when the program gets no device files");
    command->prefix_command();
    command->footer(
        "Without a card an embedded one is started, which lives as long as PROGRAM.\n"
        "The exit status is PROGRAM's (128 + the signal that killed it; 127: not found).\n"
        "Examples:\n"
        "  rdmalab run -- ibv_rc_pingpong -d mlx5_2 -g 1\n"
        "  rdmalab run --name lab -- ucx_info -d\n"
        "  rdmalab run --topology my.toml -- bash");
    command->callback([command, options, &session] {
        std::vector<std::string> rest = command->remaining();
        bool is_misplaced =
            !rest.empty() && (!session.command.empty() || rest.front().starts_with("-"));
        if (is_misplaced) throw CLI::ExtrasError(command->get_name(), rest);
        if (session.command.empty()) session.command = rest;
        if (session.command.empty()) {
            throw Failure(kExitBadInput,
                          "expected a program after '--', found none; see 'rdmalab run --help'");
        }
        if (!options->seed.empty()) {
            options->embedded.seed = parse_count("--seed", options->seed, 0);
        }
        run(*options, session);
    });
}

}  // namespace rdmalab::launcher
