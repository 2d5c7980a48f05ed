// Completion of command lines by the shell, made from the parser itself (--completion SHELL).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace rdmalab::steer {

// A script for "bash", "zsh" or "fish" that completes the options of `app`, also under its other
// `names`. EINVAL for another shell.
Result<std::string> completion_script(const CLI::App& app, const std::vector<std::string>& names,
                                      const std::string& shell);

}  // namespace rdmalab::steer
