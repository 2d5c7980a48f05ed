#include "steer/option_completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace rdmalab::steer {

namespace {

struct Words {
    std::vector<std::string> names;  // with dashes
    bool takes_value = false, takes_file = false;
    std::string help;
};

std::vector<Words> words_of(const CLI::App& app) {
    std::vector<Words> all;
    for (const CLI::Option* option : app.get_options()) {
        // The options of paths 2 to 15 would bury the others.
        if (option->get_positional() || option->get_group().empty()) continue;
        Words words;
        for (const std::string& name : option->get_lnames()) words.names.push_back("--" + name);
        for (const std::string& name : option->get_snames()) words.names.push_back("-" + name);
        words.takes_value = option->get_items_expected_max() > 0;
        words.takes_file = option->get_type_name().find("FILE") != std::string::npos;
        words.help = option->get_description();
        all.push_back(std::move(words));
    }
    return all;
}

std::string quoted(const std::string& text) {
    std::string result = "'";
    for (char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

std::string bash_script(const std::vector<Words>& all, const std::vector<std::string>& programs) {
    std::vector<std::string> options, files;
    for (const Words& words : all) {
        options.insert(options.end(), words.names.begin(), words.names.end());
        if (words.takes_file) files.insert(files.end(), words.names.begin(), words.names.end());
    }
    return fmt::format(
        "_{0}() {{\n"
        "    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}\n"
        "    case $before in\n"
        "        {1})\n"
        "            mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
        "            return\n"
        "            ;;\n"
        "    esac\n"
        "    mapfile -t COMPREPLY < <(compgen -W '{2}' -- \"$word\")\n"
        "}}\n"
        "complete -F _{0} {3}\n",
        programs.front(), fmt::join(files, "|"), fmt::join(options, " "), fmt::join(programs, " "));
}

std::string zsh_script(const std::vector<Words>& all, const std::vector<std::string>& programs) {
    std::string text = fmt::format("#compdef {}\n_arguments", fmt::join(programs, " "));
    for (const Words& words : all) {
        std::string help = words.help;
        std::erase_if(help, [](char c) { return c == '[' || c == ']' || c == ':'; });
        for (const std::string& name : words.names) {
            const char* value = !words.takes_value ? ""
                                : words.takes_file ? ":file:_files"
                                                   : ":value:";
            fmt::format_to(std::back_inserter(text), " \\\n    {}",
                           quoted(fmt::format("{}[{}]{}", name, help, value)));
        }
    }
    return text + "\n";
}

std::string fish_script(const std::vector<Words>& all, const std::vector<std::string>& programs) {
    std::string text;
    for (const std::string& program : programs) {
        for (const Words& words : all) {
            std::string line = "complete -c " + program;
            for (const std::string& name : words.names) {
                line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
            }
            if (words.takes_value) line += words.takes_file ? " -r" : " -x";
            text += line + " -d " + quoted(words.help) + "\n";
        }
    }
    return text;
}

}  // namespace

Result<std::string> completion_script(const CLI::App& app, const std::vector<std::string>& names,
                                      const std::string& shell) {
    const std::vector<Words> all = words_of(app);
    if (shell == "bash") return bash_script(all, names);
    if (shell == "zsh") return zsh_script(all, names);
    if (shell == "fish") return fish_script(all, names);
    return Error{EINVAL,
                 fmt::format("--completion: '{}' is no shell; expected bash, zsh or fish", shell)};
}

}  // namespace rdmalab::steer
