#include "perftest/scenario/command.h"

#include <fmt/format.h>

#include <cstdio>

#include "perftest/cluster/run.h"
#include "perftest/failure.h"
#include "perftest/parameters.h"
#include "perftest/scenario/outline.h"

namespace rdmalab::perftest {

namespace {

// What the command line may add to a scenario from JSON: how it is run and shown, not what it is.
ScenarioWords words_of_input_flags(const Request& request) {
    ScenarioWords words = words_of_input(request.at("input_file"));
    for (const auto& [name, text] : request) {
        const Parameter* parameter = find_parameter(name);
        bool of_front =
            parameter->scope == Scope::kClient &&
            (parameter->topic == Topic::kOutput || parameter->topic == Topic::kScenario);
        if (name == "input_file") continue;
        if (of_front || name == "dry_run") {
            words.output[name] = text;
        } else if (name == "disable_connection_matrix") {
            for (TestWords& test : words.tests) test.prints_matrix = false;
        } else {
            words.errors.push_back(
                fmt::format("--{} with --input_file: the scenario says what is measured", name));
        }
    }
    return words;
}

}  // namespace

bool asks_for_scenario(const Request& request) {
    return request.contains("traffic_pattern") || request.contains("input_file");
}

int run_scenario_command(const std::string& program_path, const CommandLine& command) {
    const Request& request = command.request;
    ScenarioWords words =
        request.contains("input_file") ? words_of_input_flags(request) : words_of_flags(request);
    auto planned = plan_scenario(words);
    if (auto* refusal = std::get_if<Refusal>(&planned)) {
        for (const std::string& error : refusal->errors) {
            fmt::print(stderr, "{}: {}\n", command.program, error);
        }
        return kExitError;
    }
    const auto& scenario = std::get<Scenario>(planned);
    for (const std::string& note : scenario.notes) {
        fmt::print(stderr, "{}: note: {}\n", command.program, note);
    }
    if (scenario.output.contains("dry_run")) {
        bool json = scenario.output.contains("print_json_results");
        fmt::print("{}", json ? to_text(outline_json(scenario), 2) + "\n" : outline(scenario));
        return kExitOk;
    }
    return run_scenario(scenario, program_path);
}

}  // namespace rdmalab::perftest
