#include <fmt/format.h>

#include <memory>

#include "rdmalab/commands.h"
#include "rdmalab/completion_scripts.h"
#include "rdmalab/failure.h"

namespace rdmalab::launcher {

void add_completion_command(CLI::App& app, Session&) {
    CLI::App* command =
        app.add_subcommand("completion", "Print a completion script for bash, zsh or fish");
    auto shell = std::make_shared<std::string>();
    command->add_option("SHELL", *shell, "bash, zsh or fish")->required();
    command->footer(
        "Examples:\n"
        "  source <(rdmalab completion bash)\n"
        "  rdmalab completion fish > ~/.config/fish/completions/rdmalab.fish");
    command->callback([&app, shell] {
        if (*shell != "bash" && *shell != "zsh" && *shell != "fish") {
            throw Failure(kExitBadInput,
                          fmt::format("SHELL: expected bash, zsh or fish, found '{}'", *shell));
        }
        fmt::print("{}", completion_script(app, *shell));
    });
}

}  // namespace rdmalab::launcher
