#include "perftest/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "perftest/parameters.h"
#include "perftest/quantity.h"

namespace rdmalab::perftest {

namespace {

using Given = std::map<std::string, std::vector<std::string>>;

std::string flag_name(const Parameter& parameter) {
    std::string name = "--" + std::string(parameter.name);
    return parameter.letter == 0 ? name : fmt::format("-{},{}", parameter.letter, name);
}

// Every use of every flag is kept, so that a repeated one can be refused with both values.
void add_parameters(CLI::App& app, Given& given) {
    for (const Parameter& parameter : parameters()) {
        std::vector<std::string>& values = given[parameter.name];
        if (parameter.kind == Kind::kFlag) {
            app.add_flag_function(
                   flag_name(parameter),
                   [&values](std::int64_t count) {
                       values.assign(static_cast<std::size_t>(count), "true");
                   },
                   parameter.help)
                ->disable_flag_override();
            continue;
        }
        CLI::Option* option =
            app.add_option(flag_name(parameter), values, parameter.help)->allow_extra_args(false);
        option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
        if (std::string_view(parameter.name) == "json_output") option->expected(0, 1);
    }
}

std::vector<std::string> all_flags() {
    std::vector<std::string> flags = {"--help", "--version", "--completion"};
    for (const Parameter& parameter : parameters()) {
        flags.push_back("--" + std::string(parameter.name));
    }
    return flags;
}

std::string extra_text(const std::string& word) {
    bool option = word.size() > 1 && word.front() == '-';
    std::string text = fmt::format("{}: unknown {}", word, option ? "flag" : "argument");
    std::string near = option ? nearest(word.substr(0, word.find('=')), all_flags()) : "";
    return near.empty() ? text : fmt::format("{}; did you mean '{}'?", text, near);
}

void collect(const CLI::App& app, const Given& given, CommandLine& out) {
    for (const Parameter& parameter : parameters()) {
        const std::vector<std::string>& values = given.at(parameter.name);
        std::size_t count = app.count("--" + std::string(parameter.name));
        if (count == 0) continue;
        if (std::max(count, values.size()) > 1) {
            std::string all;
            for (const std::string& value : values) all += (all.empty() ? "" : ", ") + value;
            out.errors.push_back(fmt::format("--{}: expected once, found {} times ({})",
                                             parameter.name, std::max(count, values.size()), all));
            continue;
        }
        out.request[parameter.name] = values.empty() ? "" : values.front();
    }
}

struct Asked {
    std::vector<std::string> help, completion;
    bool version = false;
};

void answer(const CLI::App& app, const Asked& asked, CommandLine& out) {
    if (app.count("--help") > 0) {
        std::string topic = asked.help.empty() ? "" : asked.help.front();
        out.print = help_text(out.program, topic);
        if (out.print) return;
        std::string names;
        for (const TopicInfo& each : topics()) names += fmt::format(" {}", each.name);
        out.errors.push_back(fmt::format("--help: expected one of:{}; found '{}'", names, topic));
    }
    if (asked.version) {
        out.print = fmt::format("{} {}\n", out.program, RDMALAB_VERSION);
    }
    if (app.count("--completion") > 0) {
        out.print = completion_script(asked.completion.front());
        if (!out.print) {
            out.errors.push_back(fmt::format("--completion: expected bash, zsh or fish, found '{}'",
                                             asked.completion.front()));
        }
    }
}

std::string parse_error_text(const CLI::ParseError& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

}  // namespace

CommandLine read_command_line(int argc, const char* const* argv) {
    CommandLine out;
    std::string path = argc > 0 ? argv[0] : "rdma_perftest";
    out.program = path.substr(path.rfind('/') + 1);
    CLI::App app("RDMA benchmark", out.program);
    app.set_help_flag();
    app.allow_extras();
    Given given;
    Asked asked;
    add_parameters(app, given);
    app.add_option("-h,--help", asked.help)->expected(0, 1);
    app.add_flag("-V,--version", asked.version);
    app.add_option("--completion", asked.completion)->expected(1);
    std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    std::reverse(words.begin(), words.end());
    try {
        app.parse(words);
    } catch (const CLI::ParseError& error) {
        out.errors.push_back(parse_error_text(error));
        return out;
    }
    for (const std::string& word : app.remaining()) out.errors.push_back(extra_text(word));
    if (out.errors.empty()) answer(app, asked, out);
    collect(app, given, out);
    return out;
}

}  // namespace rdmalab::perftest
