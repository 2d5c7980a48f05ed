// Help and completion, made from the table of parameters.
#include <fmt/format.h>

#include "perftest/options.h"
#include "perftest/parameters.h"

namespace rdmalab::perftest {

namespace {

constexpr std::size_t kColumn = 34;
constexpr std::size_t kWidth = 100;

std::string wrapped(std::string_view text, std::size_t indent, std::size_t start) {
    std::string out;
    std::size_t column = start;
    while (!text.empty()) {
        std::size_t space = text.find(' ');
        std::string_view word = text.substr(0, space);
        if (column + word.size() > kWidth) {
            out += "\n" + std::string(indent, ' ');
            column = indent;
        } else if (!out.empty()) {
            out += ' ';
        }
        out += word;
        column += word.size() + 1;
        text = space == std::string_view::npos ? "" : text.substr(space + 1);
    }
    return out;
}

std::string line_of(const Parameter& parameter) {
    std::string flag = parameter.letter == 0
                           ? fmt::format("      --{}", parameter.name)
                           : fmt::format("  -{}, --{}", parameter.letter, parameter.name);
    std::string value = parameter.value, help = parameter.help;
    // Long lists of words go with the text.
    if (value.find('|') != std::string::npos && value.size() > 14) {
        for (std::size_t at = 0; (at = value.find('|', at)) != std::string::npos; at += 2) {
            value.replace(at, 1, ", ");
        }
        help = value + ": " + help;
        value = "WORD";
    }
    if (!value.empty()) flag += " " + value;
    if (flag.size() + 2 > kColumn)
        return flag + "\n" + std::string(kColumn, ' ') + wrapped(help, kColumn, kColumn) + "\n";
    return fmt::format("{:<{}}{}\n", flag, kColumn, wrapped(help, kColumn, kColumn));
}

std::string topic_text(const TopicInfo& info) {
    std::string out = fmt::format("{}: {}\n", info.title,
                                  wrapped(info.text, 2, std::string(info.title).size() + 2));
    for (const Parameter& parameter : parameters()) {
        if (parameter.topic == info.topic) out += line_of(parameter);
    }
    return out;
}

std::string usage(const std::string& program) {
    return fmt::format(
        "Measures RDMA bandwidth and latency, between two hosts or among many, on any adapter with "
        "libibverbs.\n"
        "\n"
        "  {0} [flags]              on one host: the server\n"
        "  {0} [flags] -n HOST      on the other: the client, which starts the server if it has "
        "to\n"
        "  {0} [flags] -n HOSTS -d DEVICES --traffic_pattern PATTERN    many hosts, from any one\n"
        "  {0} -f SCENARIO          many tests at once\n"
        "  {0} report RESULTS.json  a page with charts of a JSON report (-j); see report --help\n"
        "\n",
        program);
}

std::string footer(const std::string& program) {
    std::string names;
    for (const TopicInfo& info : topics()) names += fmt::format(" {}", info.name);
    return fmt::format(
        "  -h, --help [TOPIC]              {1}\n"
        "  -V, --version                   the version\n"
        "      --completion SHELL          completion for bash, zsh or fish\n"
        "\n"
        "Examples:\n"
        "  {0} -d mlx5_0 -n node02                        write bandwidth, 64 KiB, 10 s\n"
        "  {0} -d mlx5_0 -n node02 -m lat -v send -s 8    latency of small sends\n"
        "  {0} -d mlx5_0 -n node02 -N 4 -q 8 -b           both ways, 4 processes, 32 queue pairs\n"
        "  rdmalab run -- {0} -n localhost                without an adapter: a software card\n"
        "  {0} -n node[01-12] -d mlx5_[0,1] --traffic_pattern a2a --traffic_partition railed\n",
        program, wrapped("this text, or one topic:" + names, kColumn, kColumn));
}

std::string words_of(const Parameter& parameter) {
    std::string value = parameter.value;
    bool words = value.find('|') != std::string::npos && value.find(':') == std::string::npos;
    for (char& c : value) c = c == '|' ? ' ' : c;
    return words ? value : "";
}

std::string bash_script() {
    std::string flags = "report --help --version --completion", cases;
    for (const Parameter& parameter : parameters()) {
        flags += fmt::format(" --{}", parameter.name);
        if (parameter.letter != 0) flags += fmt::format(" -{}", parameter.letter);
        std::string words = words_of(parameter);
        if (words.empty()) continue;
        std::string names = fmt::format("--{}", parameter.name);
        if (parameter.letter != 0) names += fmt::format("|-{}", parameter.letter);
        cases += fmt::format("        {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return;;\n",
                             names, words);
    }
    return fmt::format(
        "_rdma_perftest() {{\n"
        "    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}\n"
        "    case $before in\n{}"
        "        -d|--device|--server_device)\n"
        "            COMPREPLY=($(compgen -W \"$(ls /sys/class/infiniband 2>/dev/null)\" -- "
        "\"$word\")); return;;\n"
        "    esac\n"
        "    COMPREPLY=($(compgen -W '{}' -- \"$word\"))\n"
        "}}\n"
        "complete -o default -F _rdma_perftest rdma_perftest doca_perftest\n",
        cases, flags);
}

std::string quoted(std::string text) {
    for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4) {
        text.replace(at, 1, "'\\''");
    }
    return text;
}

std::string zsh_script() {
    std::string out = "#compdef rdma_perftest doca_perftest\n_arguments \\\n";
    for (const Parameter& parameter : parameters()) {
        std::string help = quoted(parameter.help), words = words_of(parameter), tail;
        for (char& c : help) c = c == '[' ? '(' : (c == ']' ? ')' : (c == ':' ? ',' : c));
        if (parameter.kind != Kind::kFlag) {
            tail = words.empty() ? ":value:" : fmt::format(":value:({})", words);
        }
        out += fmt::format("  '--{}[{}]{}' \\\n", parameter.name, help, tail);
        if (parameter.letter != 0) {
            out += fmt::format("  '-{}[{}]{}' \\\n", parameter.letter, help, tail);
        }
    }
    return out + "  '--help[help]' '--version[version]' '1::command:(report)' '2::report:_files'\n";
}

std::string fish_script() {
    std::string out;
    for (const char* program : {"rdma_perftest", "doca_perftest"}) {
        out += fmt::format(
            "complete -c {} -n __fish_use_subcommand -a report -d 'a page with charts of a JSON "
            "report'\n",
            program);
        for (const Parameter& parameter : parameters()) {
            out += fmt::format("complete -c {} -f -l {}", program, parameter.name);
            if (parameter.letter != 0) out += fmt::format(" -s {}", parameter.letter);
            if (parameter.kind != Kind::kFlag) out += " -r";
            std::string words = words_of(parameter);
            if (!words.empty()) out += fmt::format(" -a '{}'", words);
            out += fmt::format(" -d '{}'\n", quoted(parameter.help));
        }
    }
    return out;
}

}  // namespace

std::optional<std::string> help_text(const std::string& program, const std::string& topic) {
    std::string out;
    for (const TopicInfo& info : topics()) {
        if (topic.empty()) out += topic_text(info) + "\n";
        if (topic == info.name) return topic_text(info);
    }
    if (!topic.empty()) return std::nullopt;
    return usage(program) + out + footer(program);
}

std::optional<std::string> completion_script(const std::string& shell) {
    if (shell == "bash") return bash_script();
    if (shell == "zsh") return zsh_script();
    if (shell == "fish") return fish_script();
    return std::nullopt;
}

}  // namespace rdmalab::perftest
