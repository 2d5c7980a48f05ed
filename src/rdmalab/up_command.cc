#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <memory>

#include "rdmalab/card_client.h"
#include "rdmalab/card_process.h"
#include "rdmalab/commands.h"
#include "rdmalab/failure.h"
#include "rdmalab/quantity.h"
#include "rdmalab/runtime_folder.h"
#include "rdmalab/signals.h"

namespace rdmalab::launcher {

namespace {

struct UpOptions {
    CardOptions card;
    std::string seed;
    bool foreground = false;
};

void refuse_second_card(const std::string& name) {
    std::optional<CardClient> running = CardClient::connect(name);
    if (!running) return;
    throw Failure(
        kExitBadInput,
        fmt::format("a card named '{}' is already up (pid {}); stop it with 'rdmalab down "
                    "--name {}' or choose another --name",
                    name, running->pid(), name));
}

void print_summary(const std::string& name) {
    CardClient client = CardClient::connect_or_fail(name);
    Json status = client.admin({{"op", "status"}});
    std::string devices;
    for (const Json& function : status.value("functions", Json::array())) {
        devices += " " + function.value("device", "");
    }
    std::string choice = name == kDefaultCard ? "" : "--name " + name + " ";
    fmt::print("card '{}' is up (pid {}, topology {}):{}\n", name, client.pid(),
               status.value("topology", "?"), devices);
    std::string example = fmt::format("rdmalab run {}-- ibv_devinfo", choice);
    for (const Json& function : status.value("functions", Json::array())) {
        if (function.value("netns", "").empty() || function.value("netdev", "").empty()) continue;
        example = fmt::format("ip netns exec {} ibv_devinfo", function.value("netns", ""));
        break;
    }
    fmt::print("use it with: {}\n", example);
    std::fflush(stdout);
}

// Passes stop signals on and returns the card's exit status.
int stay_with(pid_t card, StopSignals& signals) {
    for (;;) {
        int status = 0;
        if (waitpid(card, &status, WNOHANG) == card) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        if (signals.wait(0.1)) kill(card, SIGTERM);
    }
}

void up(const UpOptions& options, Session& session) {
    refuse_second_card(options.card.name);
    if (!options.foreground) {
        start_card(options.card, CardLife::kDetached);
        print_summary(options.card.name);
        return;
    }
    StopSignals signals;
    pid_t card = start_card(options.card, CardLife::kForeground);
    print_summary(options.card.name);
    session.exit_status = stay_with(card, signals);
    remove_stale_files(options.card.name);
}

}  // namespace

void add_name_option(CLI::App& command, std::string& name) {
    command
        .add_option("--name", name,
                    "The card's name (default: $RDMALAB_CARD, which 'rdmalab run' sets, else "
                    "'default')")
        ->type_name("NAME");
}

void add_up_command(CLI::App& app, Session& session) {
    CLI::App* command = app.add_subcommand("up", "Start a card in the background");
    auto options = std::make_shared<UpOptions>();
    options->card.name = kDefaultCard;
    command
        ->add_option("--topology", options->card.topology,
                     "Name of a topology or a TOML file (default: loopback)")
        ->type_name("NAME|FILE");
    command
        ->add_option("--uplink", options->card.uplinks,
                     "Instead of a topology: one device per network interface of this host, which "
                     "reaches other hosts by it (needs CAP_NET_RAW); may be repeated")
        ->type_name("NETDEV")
        ->excludes("--topology");
    command->add_option("--name", options->card.name, "The card's name")
        ->type_name("NAME")
        ->capture_default_str();
    command->add_option("--seed", options->seed, "Seed of the cables' random faults (default: 1)")
        ->type_name("NUMBER");
    command->add_flag("--foreground", options->foreground, "Stay with the card until it ends");
    command->add_flag("--realtime", options->card.realtime,
                      "Run the card with SCHED_FIFO (needs the right to)");
    command->add_flag("--computed-icrc", options->card.computed_icrc,
                      "Compute and check the ICRC of every frame, also inside the card");
    command->add_flag("--netns", options->card.netns,
                      "Put functions into the network namespaces of the topology, each with a "
                      "network interface (needs root)");
    command->footer(
        "With --netns a program sees the devices of its network namespace; those of functions in\n"
        "none are seen outside. Names that are taken are an error, nothing of others is touched.\n"
        "Examples:\n"
        "  rdmalab up\n"
        "  rdmalab up --uplink eth0\n"
        "  rdmalab up --netns && ip netns exec ns0 ibv_devices\n"
        "  rdmalab up --name lab --topology my.toml --seed 7");
    command->callback([options, &session] {
        check_card_name(options->card.name);
        if (!options->seed.empty()) options->card.seed = parse_count("--seed", options->seed, 0);
        up(*options, session);
    });
}

}  // namespace rdmalab::launcher
