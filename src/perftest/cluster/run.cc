#include "perftest/cluster/run.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "perftest/client.h"
#include "perftest/cluster/backend_local.h"
#include "perftest/cluster/backend_mpi.h"
#include "perftest/cluster/conductor.h"
#include "perftest/cluster/scenario_report.h"
#include "perftest/failure.h"
#include "perftest/launch.h"
#include "perftest/report_json.h"
#include "perftest/scenario/outline.h"

namespace rdmalab::perftest {

namespace {

// Above this many connections a report is lines of JSON rather than one document.
constexpr std::size_t kDocumentConnectionsMax = 20000;

std::string text_of(const Request& request, const char* name, const char* otherwise) {
    auto found = request.find(name);
    return found == request.end() ? otherwise : found->second;
}

std::string own_path() {
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    return std::string(path, length > 0 ? static_cast<std::size_t>(length) : 0);
}

// Of all rounds; 0 when some test ends by counts.
double seconds_of(const Scenario& scenario) {
    double sum = 0;
    for (const ScenarioTest& test : scenario.tests) {
        double one = test.plan.total_seconds();
        if (one == 0) return 0;
        sum = std::max(sum, (one + 1) * test.rounds());
    }
    return sum;
}

std::unique_ptr<Backend> choose_backend(const Scenario& scenario) {
    std::string word = text_of(scenario.output, "control", "auto");
    if (word != "auto" && word != "local" && word != "mpi") {
        throw Failure(fmt::format("--control: expected auto, local or mpi, found '{}'", word));
    }
    std::vector<std::string> hosts = scenario.hosts();
    bool here = std::all_of(hosts.begin(), hosts.end(), is_this_host);
    if (word == "local" || (word == "auto" && here)) return std::make_unique<LocalBackend>();
    MpiOptions options;
    options.mpirun = text_of(scenario.output, "mpirun", "mpirun");
    options.program = text_of(scenario.output, "remote_exe", own_path().c_str());
    options.interfaces = text_of(scenario.output, "mpi_tcp_network_interfaces", "");
    options.user = text_of(scenario.output, "ssh_user", "");
    options.seconds_max = seconds_of(scenario);
    return std::make_unique<MpiBackend>(options);
}

bool wants_colours() {
    const char* no_color = getenv("NO_COLOR");
    bool refused = no_color != nullptr && *no_color != '\0';
    return !refused && isatty(STDOUT_FILENO) == 1;
}

bool has_ending(const std::string& text, const std::string& ending) {
    return text.size() >= ending.size() &&
           text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

bool write_file(const ScenarioOutcome& outcome, const Output& output) {
    if (!output.json_file) return true;
    std::string path = output.json_path.empty() ? default_report_path() : output.json_path;
    bool lines = has_ending(path, ".ndjson") || outcome.results.size() > kDocumentConnectionsMax;
    Status written =
        lines ? write_whole(path, report_lines(outcome)) : write_report(path, report_json(outcome));
    if (!written.ok()) {
        fmt::print(stderr, "rdma_perftest: --json_output: {}\n", written.error().text);
        return false;
    }
    if (!output.json_on_stdout) fmt::print("JSON report: {}{}\n", path, lines ? " (lines)" : "");
    return true;
}

bool show(const ScenarioOutcome& outcome, const Output& output) {
    if (output.json_on_stdout) {
        fmt::print("{}\n", to_text(report_json(outcome), 2));
    } else {
        fmt::print("{}", text_report(outcome, {.colours = wants_colours()}));
    }
    fflush(stdout);
    return write_file(outcome, output);
}

// A report that cannot be written is found before anything runs.
void check_output(const Output& output) {
    if (!output.json_file || output.json_path.empty()) return;
    std::size_t slash = output.json_path.rfind('/');
    std::string folder = slash == std::string::npos ? "." : output.json_path.substr(0, slash + 1);
    if (access(folder.c_str(), W_OK) == 0) return;
    throw Failure(fmt::format("--json_output {}: cannot write into {}: {}", output.json_path,
                              folder, strerror(errno)));
}

}  // namespace

int run_scenario(const Scenario& scenario, const std::string&) {
    Output output = output_of(scenario.output);
    check_output(output);
    std::unique_ptr<Backend> backend = choose_backend(scenario);
    for (const ScenarioTest& test : scenario.tests) {
        if (!output.json_on_stdout) fmt::print("{}", size_matrix(test));
    }
    Signals signals;
    Progress progress(progress_style(output.non_interactive, output.json_on_stdout));
    try {
        ScenarioOutcome outcome = conduct(scenario, *backend, signals, progress);
        progress.finish();
        backend->end();
        return show(outcome, output) ? outcome.exit_code() : kExitError;
    } catch (const Failure& failure) {
        progress.finish();
        backend->end();
        show_failure(scenario_json(scenario), output, failure.what());
        throw;
    }
}

}  // namespace rdmalab::perftest
