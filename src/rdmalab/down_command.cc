#include <fmt/format.h>

#include <memory>

#include "rdmalab/card_client.h"
#include "rdmalab/card_process.h"
#include "rdmalab/commands.h"
#include "rdmalab/failure.h"
#include "rdmalab/runtime_folder.h"

namespace rdmalab::launcher {

namespace {

struct DownOptions {
    std::string name;
    bool all = false;
};

void stop_and_say(const std::string& name) {
    StopResult result = stop_card(name, false);
    fmt::print("card '{}' is down{}\n", name,
               result == StopResult::kKilled ? " (it did not answer and was killed)" : "");
}

void down_one(const std::string& name) {
    if (!CardClient::connect(name) && remove_stale_files(name)) {
        fmt::print("card '{}' was not up; removed the files it left behind\n", name);
        return;
    }
    CardClient::connect_or_fail(name);
    stop_and_say(name);
}

void down_all() {
    std::vector<std::string> running = running_cards();
    for (const std::string& name : running) stop_and_say(name);
    for (const std::string& name : names_in_use()) remove_stale_files(name);
    if (running.empty()) fmt::print("no card is up\n");
}

}  // namespace

void add_down_command(CLI::App& app, Session&) {
    CLI::App* command = app.add_subcommand("down", "Stop a card and remove what it left");
    auto options = std::make_shared<DownOptions>();
    add_name_option(*command, options->name);
    command->add_flag("--all", options->all, "Stop every card of this user");
    command->footer(
        "Programs that still use the card see it go: IBV_EVENT_DEVICE_FATAL, then EIO.\n"
        "Examples:\n"
        "  rdmalab down\n"
        "  rdmalab down --all");
    command->callback([options] {
        if (options->all && !options->name.empty()) {
            throw Failure(kExitBadInput, "expected --all or --name, found both");
        }
        if (options->all) return down_all();
        down_one(card_name_or_default(options->name));
    });
}

}  // namespace rdmalab::launcher
