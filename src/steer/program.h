// What the mains of flow_steer and pcc share: from the words of the command line to exit statuses.
// 0: ended as asked. 1: something went wrong while running. 2: what was asked for cannot be.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/result.h"
#include "flow/client/client.h"
#include "steer/console.h"
#include "steer/steer_options.h"

namespace rdmalab::steer {

inline constexpr int kExitFailed = 1, kExitBadInput = 2;

class ProgramFailure : public std::runtime_error {
public:
    ProgramFailure(int exit_status, const std::string& text)
        : std::runtime_error(text), exit_status_(exit_status) {}
    explicit ProgramFailure(const Error& error);
    int exit_status() const { return exit_status_; }

private:
    int exit_status_;
};
// Throws what `result` holds instead of a value.
template <class T>
T take(Result<T> result) {
    if (!result.ok()) throw ProgramFailure(result.error());
    return std::move(*result);
}
void check(const Status& status);

// Parses, runs, and turns whatever is thrown into a message and an exit status. `run` gets the
// options.
template <class CommandLine, class Run>
int run_program(int argument_count, char** arguments, Run run) {
    CommandLine line;
    const std::string name = line.app().get_name();
    try {
        return run(line.parse({arguments + 1, arguments + argument_count}));
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return line.app().exit(error);
        fmt::print(stderr, "{0}: {1}\nsee '{0} --help'\n", name, error.what());
        return kExitBadInput;
    } catch (const ProgramFailure& failure) {
        fmt::print(stderr, "{}: {}\n", name, failure.what());
        return failure.exit_status();
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}: {}\n", name, error.what());
        return kExitFailed;
    }
}

// --tell: prints the answer.
int tell_program(const TellOptions& tell);
// --card and --socket are found by every client in the environment.
void select_card(const CommonOptions& options);
void open_console(const CommonOptions& options, ProcessConsole& console);
std::unique_ptr<flow::client::Domain> attach(const CommonOptions& options);

}  // namespace rdmalab::steer
