// Shell completion. The scripts know the commands and options; names of running cards, cables and
// places of capture they ask from `rdmalab status --json` when they are needed.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace rdmalab::launcher {

// Made from the parser itself, so that an option cannot be forgotten. `shell` is bash, zsh or fish.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace rdmalab::launcher
