#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <thread>

#include "rdmalab/card_client.h"
#include "rdmalab/commands.h"
#include "rdmalab/congestion_report.h"
#include "rdmalab/failure.h"
#include "rdmalab/quantity.h"
#include "rdmalab/runtime_folder.h"

namespace rdmalab::launcher {

namespace {

struct CongestionOptions {
    std::string name, device;
    std::string cnp_interval, tx_packets, tx_delay, cnps, acks, event_loss, probe_interval,
        probe_timeout, line_rate, pacing, algorithms, flows, patience;
    std::vector<std::string> dcqcn, parameters;
    bool json = false;
};

// "a=b"
std::pair<std::string, std::string> assignment(const char* option, const std::string& text) {
    const std::size_t sign = text.find('=');
    if (sign == 0 || sign == std::string::npos || sign + 1 == text.size()) {
        throw Failure(kExitBadInput,
                      fmt::format("{}: expected NAME=VALUE, found '{}'", option, text));
    }
    return {text.substr(0, sign), text.substr(sign + 1)};
}

Json requested_settings(const CongestionOptions& options) {
    Json change = Json::object();
    const std::pair<const char*, const std::string&> kTexts[] = {
        {"cnp_interval", options.cnp_interval},
        {"tx_packets_per_event", options.tx_packets},
        {"tx_delay", options.tx_delay},
        {"cnps_per_event", options.cnps},
        {"acks_per_event", options.acks},
        {"event_loss", options.event_loss},
        {"probe_interval", options.probe_interval},
        {"probe_timeout", options.probe_timeout},
        {"line_rate", options.line_rate},
        {"flows", options.flows},
        {"patience", options.patience},
    };
    for (const auto& [key, text] : kTexts)
        if (!text.empty()) change[key] = text;
    if (!options.pacing.empty()) change["pacing"] = parse_bool("--pacing", options.pacing);
    if (!options.algorithms.empty())
        change["algorithms"] = parse_bool("--algorithms", options.algorithms);
    for (const std::string& text : options.dcqcn) {
        const auto [key, value] = assignment("--dcqcn", text);
        change["dcqcn_" + key] = value;
    }
    return change;
}

// The process whose parameters are meant: the Active one of the PF that was named, or of the card.
const Json& chosen_process(const Json& reply, const std::string& device) {
    for (const Json& pf : member(reply, "pfs")) {
        if (!device.empty() && pf.value("pf", "") != device) continue;
        for (const Json& process : member(pf, "processes"))
            if (process.value("state", "") == "Active") return process;
    }
    throw Failure(
        kExitBadInput,
        fmt::format("--param: expected an Active congestion control process{}, found none",
                    device.empty() ? "" : " of " + device));
}

void set_parameter(CardClient& client, const Json& process, const std::string& text) {
    constexpr int kTries = 100;
    constexpr std::chrono::milliseconds kPause{20};
    const auto [id, value] = assignment("--param", text);
    const std::uint64_t key = number(process, "process");
    const Json asked = client.admin(
        {{"op", "cc_parameter"}, {"process", key}, {"algorithm", 0}, {"id", id}, {"value", value}});
    for (int i = 0; i < kTries; ++i) {
        const Json answer = client.admin(
            {{"op", "cc_answer"}, {"process", key}, {"request", number(asked, "request")}});
        if (answer.value("done", false)) return;
        std::this_thread::sleep_for(kPause);
    }
    throw Failure(kExitFailed, "the process does not answer");
}

void congestion(const CongestionOptions& options) {
    Json change = requested_settings(options);
    CardClient client = CardClient::connect_or_fail(card_name_or_default(options.name));
    change["op"] = change.empty() ? "cc" : "cc_set";
    Json reply = client.admin(change);
    if (!options.parameters.empty()) {
        const Json process = chosen_process(reply, options.device);
        for (const std::string& text : options.parameters) set_parameter(client, process, text);
        reply = client.admin({{"op", "cc"}});
    }
    fmt::print("{}", options.json ? reply.dump(2) + "\n" : print_congestion(reply));
}

}  // namespace

void add_congestion_command(CLI::App& app, Session&) {
    CLI::App* command = app.add_subcommand("cc", "Show or change congestion control");
    auto options = std::make_shared<CongestionOptions>();
    add_name_option(*command, options->name);
    const auto add = [&](const char* flag, std::string& value, const char* type, const char* help) {
        command->add_option(flag, value, help)->type_name(type);
    };
    add("--cnp-interval", options->cnp_interval, "TIME", "Least time between two CNPs for a QP");
    add("--tx-packets", options->tx_packets, "N", "Packets that become one TX event");
    add("--tx-delay", options->tx_delay, "TIME", "A TX event is not held back for longer");
    add("--cnps-per-event", options->cnps, "N", "CNPs that become one event");
    add("--acks-per-event", options->acks, "N", "ACKs that become one event");
    add("--event-loss", options->event_loss, "SHARE", "Events that an algorithm does not get");
    add("--probe-interval", options->probe_interval, "TIME",
        "Least time between RTT probes of a QP");
    add("--probe-timeout", options->probe_timeout, "TIME", "When a probe counts as lost");
    add("--line-rate", options->line_rate, "RATE", "Rate 1.0 of a port whose cable has no limit");
    add("--pacing", options->pacing, "BOOL", "Whether computed rates are enforced");
    add("--algorithms", options->algorithms, "BOOL", "Whether processes may serve flows");
    add("--flows", options->flows, "WHICH",
        "Flows that a process serves: cm (made by RDMA CM) or all");
    add("--patience", options->patience, "TIME",
        "A process that takes no events for so long is given up");
    command
        ->add_option("--dcqcn", options->dcqcn, "Parameter of the built-in DCQCN, such as g=1019")
        ->type_name("NAME=VALUE");
    command
        ->add_option("--param", options->parameters, "Parameter of the Active process, by number")
        ->type_name("ID=VALUE");
    add("--device", options->device, "PF", "With --param: the PF whose process is meant");
    command->add_flag("--json", options->json, "Print JSON");
    command->footer(
        "Without options shows settings, processes, flows and events of each PF. Options that are\n"
        "absent keep their value.\n"
        "Examples:\n"
        "  rdmalab cc\n"
        "  rdmalab cc --cnp-interval 50us --tx-packets 16\n"
        "  rdmalab cc --event-loss 1%\n"
        "  rdmalab cc --dcqcn ai_rate_mbps=40 --dcqcn byte_reset=0\n"
        "  rdmalab cc --param 0=60000");
    command->callback([options] { congestion(*options); });
}

}  // namespace rdmalab::launcher
