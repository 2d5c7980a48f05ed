#include <fmt/format.h>

#include <memory>

#include "rdmalab/cable_report.h"
#include "rdmalab/card_client.h"
#include "rdmalab/commands.h"
#include "rdmalab/runtime_folder.h"
#include "rdmalab/table.h"

namespace rdmalab::launcher {

namespace {

struct StatusOptions {
    std::string name;
    bool json = false;
};

std::string joined(const Json& list) {
    std::string text;
    for (const Json& item : list) {
        if (!text.empty()) text += " ";
        text += item.get<std::string>();
    }
    return text;
}

std::string print_functions(const Json& functions) {
    Table table(
        {"device", "kind", "representor", "pci", "mac", "ips", "netns", "netdev", "qps", "mrs"});
    for (const Json& function : functions) {
        table.add_row({function.value("device", ""), function.value("kind", ""),
                       function.value("representor", ""), function.value("pci", ""),
                       function.value("mac", ""), joined(function.value("ips", Json::array())),
                       function.value("netns", ""), function.value("netdev", ""),
                       std::to_string(function.value("qps", std::uint64_t{0})),
                       std::to_string(function.value("mrs", std::uint64_t{0}))});
    }
    return table.print();
}

std::string print_attached(const Json& attached) {
    if (attached.empty()) return "  no program is attached\n";
    Table table({"pid", "uid", "device", "qps", "command"});
    for (const Json& program : attached) {
        table.add_row({std::to_string(program.value("pid", 0)),
                       std::to_string(program.value("uid", 0)), program.value("device", ""),
                       std::to_string(program.value("qps", std::uint64_t{0})),
                       program.value("command", "")});
    }
    return table.print();
}

std::string print_cm(const Json& cm) {
    const auto count = [&](const char* key) { return cm.value(key, std::uint64_t{0}); };
    if (count("sessions") == 0 && count("connections") == 0) return {};
    return fmt::format("\nRDMA CM: {} programs, {} ids, {} ports, {} connection ends\n",
                       count("sessions"), count("ids"), count("ports"), count("connections"));
}

std::string print_status(const Json& status) {
    std::string text = fmt::format(
        "card '{}': pid {}, version {}, topology {}, seed {}, up {:.0f} s\n\nfunctions\n",
        status.value("name", ""), status.value("pid", 0), status.value("version", "?"),
        status.value("topology", "?"), status.value("seed", std::uint64_t{0}),
        status.value("uptime_s", 0.0));
    text += print_functions(status.value("functions", Json::array()));
    text += "\ncables\n" + print_cables(status.value("cables", Json::array()));
    text += "\nprograms\n" + print_attached(status.value("attached", Json::array()));
    text += print_cm(status.value("cm", Json::object()));
    for (const Json& capture : status.value("captures", Json::array())) {
        text += fmt::format("\ncapture at {}: {}\n", capture.value("at", ""),
                            capture.value("file", ""));
    }
    return text;
}

}  // namespace

void add_status_command(CLI::App& app, Session&) {
    CLI::App* command =
        app.add_subcommand("status", "Show a card: functions, cables, attached programs");
    auto options = std::make_shared<StatusOptions>();
    add_name_option(*command, options->name);
    command->add_flag("--json", options->json, "Print JSON");
    command->footer(
        "Examples:\n"
        "  rdmalab status\n"
        "  rdmalab status --json | jq -r '.functions[].device'");
    command->callback([options] {
        CardClient client = CardClient::connect_or_fail(card_name_or_default(options->name));
        Json status = client.admin({{"op", "status"}});
        fmt::print("{}", options->json ? status.dump(2) + "\n" : print_status(status));
    });
}

}  // namespace rdmalab::launcher
