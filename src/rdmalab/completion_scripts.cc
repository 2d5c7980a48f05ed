#include "rdmalab/completion_scripts.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <vector>

namespace rdmalab::launcher {

namespace {

struct OptionWords {
    std::vector<std::string> names;  // with dashes
    bool takes_value = false;
    bool is_file = false;
    std::string help;
};

struct CommandWords {
    std::string name;
    std::string help;
    std::vector<OptionWords> options;
};

OptionWords words_of(const CLI::Option& option) {
    OptionWords words;
    for (const std::string& name : option.get_lnames()) words.names.push_back("--" + name);
    for (const std::string& name : option.get_snames()) words.names.push_back("-" + name);
    words.takes_value = option.get_items_expected_max() > 0;
    words.is_file = option.get_type_name().find("FILE") != std::string::npos;
    words.help = option.get_description();
    return words;
}

std::vector<CommandWords> commands_of(const CLI::App& app) {
    std::vector<CommandWords> commands;
    for (const CLI::App* command : app.get_subcommands({})) {
        CommandWords words{command->get_name(), command->get_description(), {}};
        for (const CLI::Option* option : command->get_options()) {
            if (!option->get_positional()) words.options.push_back(words_of(*option));
        }
        commands.push_back(std::move(words));
    }
    return commands;
}

std::string joined_names(const CommandWords& command) {
    std::string text;
    for (const OptionWords& option : command.options) {
        for (const std::string& name : option.names) text += (text.empty() ? "" : " ") + name;
    }
    return text;
}

// Between single quotes of a POSIX shell.
std::string quoted(const std::string& text) {
    std::string result = "'";
    for (char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

constexpr char kBashHead[] = R"sh(# bash completion for rdmalab

_rdmalab_facts() {  # prints the strings that follow a key in the status of the chosen card
    rdmalab status --json "${name_option[@]}" 2>/dev/null |
        sed -n "s/^ *\"$1\": \"\(.*\)\",\{0,1\}$/\1/p"
}

_rdmalab_cards() {
    local folder="${RDMALAB_RUNTIME_DIR:-${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/rdmalab}}"
    if [[ -z $folder ]]; then
        if [[ $EUID == 0 ]]; then folder=/run/rdmalab; else folder="/tmp/rdmalab-$EUID"; fi
    fi
    local socket
    for socket in "$folder"/*.sock; do
        [[ -S $socket ]] && basename "$socket" .sock
    done
}

_rdmalab() {
    local word="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD - 1]}"
    local command="" index name_option=()
    for ((index = 1; index < COMP_CWORD; ++index)); do
        case "${COMP_WORDS[index]}" in
            --name) name_option=(--name "${COMP_WORDS[index + 1]}") ;;
            --)
                if [[ $command == run ]]; then
                    if declare -F _command_offset >/dev/null; then
                        _command_offset $((index + 1))
                    else
                        COMPREPLY=($(compgen -c -f -- "$word"))
                    fi
                    return
                fi
                ;;
            -*) ;;
            *) [[ -z $command ]] && command="${COMP_WORDS[index]}" ;;
        esac
    done
    local choices=""
    case "$previous" in
        --name) choices="$(_rdmalab_cards)" ;;
        --at)
            choices="$(_rdmalab_facts name) $(_rdmalab_facts representor) $(_rdmalab_facts device)"
            ;;
        --direction) choices="a-to-b b-to-a both" ;;
        --verify-icrc | --pacing | --algorithms) choices="true false" ;;
        --flows) choices="cm all" ;;
        --dcqcn)
            choices="g= rtt_us= initial_alpha= rate_on_first_cnp_mbps= min_dec_fac= gd="
            choices="$choices min_rate_mbps= monitor_period_us= time_reset_us= byte_reset="
            choices="$choices threshold= ai_rate_mbps= hai_rate_mbps="
            ;;
        --topology)
            COMPREPLY=($(compgen -W "loopback impaired" -f -- "$word"))
            return
            ;;
        *)
            case "$command" in
)sh";

constexpr char kBashTail[] = R"sh(                *) choices="COMMANDS --help --version" ;;
            esac
            if [[ $word != -* ]]; then
                case "$command" in
                    link) choices="$(_rdmalab_facts name)" ;;
                    completion) choices="bash zsh fish" ;;
                    lab)
                        if [[ $previous == lab ]]; then
                            choices="up exec agent crash link status down"
                        else
                            choices="$(rdmalab lab status --json 2>/dev/null |
                                sed -n 's/^ *"name": "\(.*\)",$/\1/p') up down cut"
                        fi
                        ;;
                    flow)
                        if [[ $previous == flow ]]; then
                            choices="dump counters trace"
                        else
                            choices="$(_rdmalab_facts pf | sort -u)"
                        fi
                        ;;
                    pcap)
                        COMPREPLY=($(compgen -f -- "$word"))
                        return
                        ;;
                esac
            fi
            ;;
    esac
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
}

complete -F _rdmalab rdmalab
)sh";

std::string bash_script(const std::vector<CommandWords>& commands) {
    std::string text = kBashHead;
    std::string names;
    for (const CommandWords& command : commands) {
        names += (names.empty() ? "" : " ") + command.name;
        text += fmt::format("                {}) choices=\"{}\" ;;\n", command.name,
                            joined_names(command));
    }
    std::string tail = kBashTail;
    tail.replace(tail.find("COMMANDS"), 8, names);
    return text + tail;
}

// zsh's _arguments wants "[", "]" and ":" of descriptions escaped.
std::string zsh_description(const std::string& text) {
    std::string result;
    for (char c : text) {
        if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
        result += c;
    }
    return result;
}

std::string zsh_script(const std::vector<CommandWords>& commands) {
    std::string text = "#compdef rdmalab\n\n_rdmalab() {\n    local -a commands\n    commands=(\n";
    for (const CommandWords& command : commands) {
        text +=
            fmt::format("        {}\n", quoted(command.name + ":" + zsh_description(command.help)));
    }
    text +=
        "    )\n    if ((CURRENT == 2)); then\n        _describe 'command' commands\n"
        "        return\n    fi\n    local chosen=$words[2]\n    shift words\n    ((CURRENT--))\n"
        "    case $chosen in\n";
    for (const CommandWords& command : commands) {
        text += fmt::format("        {})\n            _arguments \\\n", command.name);
        for (const OptionWords& option : command.options) {
            for (const std::string& name : option.names) {
                std::string value = option.is_file ? ":value:_files" : ":value: ";
                text +=
                    fmt::format("                {} \\\n",
                                quoted(fmt::format("{}[{}]{}", name, zsh_description(option.help),
                                                   option.takes_value ? value : "")));
            }
        }
        bool runs = command.name == "run";
        text += fmt::format("                {}\n            ;;\n",
                            runs ? "'*::program:_normal'" : "'*:file:_files'");
    }
    return text + "    esac\n}\n\n_rdmalab \"$@\"\n";
}

std::string fish_quoted(const std::string& text) {
    std::string result = "'";
    for (char c : text) {
        if (c == '\'' || c == '\\') result += '\\';
        result += c;
    }
    return result + "'";
}

std::string fish_script(const std::vector<CommandWords>& commands) {
    std::string text = "# fish completion for rdmalab\n";
    for (const CommandWords& command : commands) {
        text += fmt::format("complete -c rdmalab -n __fish_use_subcommand -f -a {} -d {}\n",
                            command.name, fish_quoted(command.help));
        for (const OptionWords& option : command.options) {
            std::string flags;
            for (const std::string& name : option.names) {
                bool is_long = name.starts_with("--");
                flags += fmt::format(" {} {}", is_long ? "-l" : "-s", name.substr(is_long ? 2 : 1));
            }
            text += fmt::format(
                "complete -c rdmalab -n '__fish_seen_subcommand_from {}'{}{} -d {}\n", command.name,
                flags, option.takes_value ? (option.is_file ? " -r" : " -x") : "",
                fish_quoted(option.help));
        }
    }
    return text;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
    std::vector<CommandWords> commands = commands_of(app);
    if (shell == "bash") return bash_script(commands);
    if (shell == "zsh") return zsh_script(commands);
    return fish_script(commands);
}

}  // namespace rdmalab::launcher
