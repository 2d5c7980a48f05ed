#include <fmt/format.h>

#include <memory>

#include "rdmalab/cable_report.h"
#include "rdmalab/card_client.h"
#include "rdmalab/commands.h"
#include "rdmalab/failure.h"
#include "rdmalab/quantity.h"
#include "rdmalab/runtime_folder.h"

namespace rdmalab::launcher {

namespace {

struct LinkOptions {
    std::string name, cable, direction = "both";
    std::string rate, delay, jitter, loss, reorder, duplicate, corrupt, ce, verify_icrc;
    bool clear = false;
    bool json = false;
};

// The change to ask for; empty when nothing is to change.
Json requested_change(const LinkOptions& options) {
    Json change = Json::object();
    if (options.clear) {
        for (const char* key :
             {"rate", "delay", "jitter", "loss", "reorder", "duplicate", "corrupt", "ce"}) {
            change[key] = "0";
        }
        change["verify_icrc"] = true;
    }
    const std::pair<const char*, const std::string&> kTexts[] = {
        {"rate", options.rate},       {"delay", options.delay},
        {"jitter", options.jitter},   {"loss", options.loss},
        {"reorder", options.reorder}, {"duplicate", options.duplicate},
        {"corrupt", options.corrupt}, {"ce", options.ce},
    };
    for (const auto& [key, text] : kTexts) {
        if (!text.empty()) change[key] = text;
    }
    if (!options.verify_icrc.empty()) {
        change["verify_icrc"] = parse_bool("--verify-icrc", options.verify_icrc);
    }
    return change;
}

std::string direction_key(const std::string& text) {
    if (text == "both") return "both";
    if (text == "a-to-b" || text == "a_to_b") return "a_to_b";
    if (text == "b-to-a" || text == "b_to_a") return "b_to_a";
    throw Failure(kExitBadInput,
                  fmt::format("--direction: expected a-to-b, b-to-a or both, found '{}'", text));
}

Json chosen_cables(const Json& cables, const std::string& wanted) {
    if (wanted.empty()) return cables;
    std::string names;
    for (const Json& cable : cables) {
        if (cable.value("name", "") == wanted) return Json::array({cable});
        names += (names.empty() ? "" : ", ") + cable.value("name", "");
    }
    throw Failure(kExitBadInput, fmt::format("no cable '{}'; expected one of: {}", wanted,
                                             names.empty() ? "(the card has no cable)" : names));
}

void link(const LinkOptions& options) {
    Json change = requested_change(options);
    std::string direction = direction_key(options.direction);
    if (!change.empty() && options.cable.empty()) {
        throw Failure(kExitBadInput, "CABLE: expected the name of the cable to change, found none");
    }
    CardClient client = CardClient::connect_or_fail(card_name_or_default(options.name));
    Json status = client.admin({{"op", "status"}});
    Json cables = chosen_cables(status.value("cables", Json::array()), options.cable);
    if (!change.empty()) {
        change["op"] = "link";
        change["cable"] = options.cable;
        change["direction"] = direction;
        cables = Json::array({client.admin(change)});
    }
    fmt::print("{}", options.json ? cables.dump(2) + "\n" : print_cables(cables));
}

}  // namespace

void add_link_command(CLI::App& app, Session&) {
    CLI::App* command = app.add_subcommand("link", "Show or change the faults of a running cable");
    auto options = std::make_shared<LinkOptions>();
    add_name_option(*command, options->name);
    command->add_option("CABLE", options->cable, "The cable; without it all are shown");
    command->add_option("--direction", options->direction, "a-to-b, b-to-a or both")
        ->type_name("WAY")
        ->capture_default_str();
    const auto add = [&](const char* flag, std::string& value, const char* type, const char* help) {
        command->add_option(flag, value, help)->type_name(type);
    };
    add("--rate", options->rate, "RATE", "Limit, such as 25Gbit; 0 lifts it");
    add("--delay", options->delay, "TIME", "Added to every frame, such as 10us");
    add("--jitter", options->jitter, "TIME", "Up to this much more, random; keeps the order");
    add("--loss", options->loss, "SHARE", "Frames that vanish, such as 1% or 0.01");
    add("--reorder", options->reorder, "SHARE", "Frames that later ones overtake");
    add("--duplicate", options->duplicate, "SHARE", "Frames that arrive twice");
    add("--corrupt", options->corrupt, "SHARE", "Frames in which bits flip");
    add("--ce", options->ce, "SHARE", "ECN-capable frames that are marked CE");
    add("--verify-icrc", options->verify_icrc, "BOOL",
        "Whether receivers check the ICRC of frames from this cable");
    command->add_flag("--clear", options->clear, "First set every fault to none");
    command->add_flag("--json", options->json, "Print JSON");
    command->footer(
        "Options that are absent keep their value. Both ends of a cable have names in\n"
        "'rdmalab status'; a-to-b is the first direction shown there.\n"
        "Examples:\n"
        "  rdmalab link\n"
        "  rdmalab link cable0 --loss 1% --delay 10us\n"
        "  rdmalab link cable0 --direction b-to-a --rate 25Gbit\n"
        "  rdmalab link cable0 --clear");
    command->callback([options] { link(*options); });
}

}  // namespace rdmalab::launcher
