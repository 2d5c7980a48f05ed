// rdma_perftest: an RDMA benchmark, for two hosts or for many.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "perftest/client.h"
#include "perftest/cluster/relay.h"
#include "perftest/device.h"
#include "perftest/failure.h"
#include "perftest/options.h"
#include "perftest/quantity.h"
#include "perftest/report_page.h"
#include "perftest/require.h"
#include "perftest/scenario/command.h"
#include "perftest/server.h"

namespace rdmalab::perftest {
namespace {

int report_errors(const CommandLine& command, const std::vector<std::string>& errors) {
    for (const std::string& error : errors) {
        fmt::print(stderr, "{}: {}\n", command.program, error);
    }
    fmt::print(stderr, "see '{} --help'\n", command.program);
    return kExitError;
}

// One line each, as grep and people want them.
void print_errors(const std::string& program, std::string_view text) {
    while (!text.empty()) {
        std::size_t end = std::min(text.find('\n'), text.size());
        fmt::print(stderr, "{}: {}\n", program, text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

int run(const char* path, const CommandLine& command) {
    auto planned = make_plan(command.request);
    if (auto* refusal = std::get_if<Refusal>(&planned))
        return report_errors(command, refusal->errors);
    const auto& plan = std::get<Planned>(planned);
    bool is_client = command.request.contains("server");
    try {
        require_parts(command.request, plan);
        if (!is_client) return run_server(path, command.request, plan);
        return run_client(path, command.request, plan);
    } catch (const Failure& failure) {
        fmt::print(stderr, "{}: {}\n", command.program, failure.what());
        if (is_client) {
            show_failure(scenario_json(plan.plan), output_of(command.request), failure.what());
        }
        return kExitError;
    }
}

}  // namespace
}  // namespace rdmalab::perftest

int main(int argc, char** argv) {
    using namespace rdmalab::perftest;
    if (argc == 2 && std::string_view(argv[1]) == kRelayFlag) return run_relay();
    try {
        if (argc > 1 && std::string_view(argv[1]) == "report") {
            return run_report_command(argv[0], {argv + 2, argv + argc});
        }
        CommandLine command = read_command_line(argc, argv);
        if (!command.errors.empty()) return report_errors(command, command.errors);
        if (command.print) {
            fmt::print("{}", *command.print);
            return kExitOk;
        }
        if (asks_for_scenario(command.request)) return run_scenario_command(argv[0], command);
        return run(argv[0], command);
    } catch (const std::exception& error) {
        print_errors("rdma_perftest", error.what());
        return kExitError;
    }
}
