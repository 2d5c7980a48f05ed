// The command line: turned into a request (what is asked for, not yet understood) or into text to
// print (help, version, completion, the man page's list).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perftest/plan.h"

namespace rdmalab::perftest {

struct CommandLine {
    std::string program;  // the name it was called by
    Request request;
    std::optional<std::string> print;  // print this and end
    std::vector<std::string> errors;
};

CommandLine read_command_line(int argc, const char* const* argv);

// "" lists everything; else one topic. Nothing for an unknown topic.
std::optional<std::string> help_text(const std::string& program, const std::string& topic);
// For bash, zsh or fish.
std::optional<std::string> completion_script(const std::string& shell);

}  // namespace rdmalab::perftest
