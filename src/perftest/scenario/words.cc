#include "perftest/scenario/words.h"

#include <fmt/format.h>

#include <array>

#include "perftest/parameters.h"

namespace rdmalab::perftest {

namespace {

bool is_word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// What a flag is called in JSON, when that is not its own field.
std::string json_name(const Parameter& parameter) {
    std::string_view name = parameter.name;
    if (name == "bidirectional") return "trafficDirection BIDIR";
    if (name == "dual_unidir") return "trafficDirection DUAL_UNIDIR";
    if (name == "server") return "hostName";
    if (name == "disable_connection_matrix") return "printConnectionMatrix";
    return parameter.json[0] != '\0' ? parameter.json : "--" + std::string(name);
}

const Parameter* parameter_with(char letter) {
    for (const Parameter& parameter : parameters()) {
        if (parameter.letter == letter) return &parameter;
    }
    return nullptr;
}

// The flag that begins at `at`, and its length in the text.
std::pair<const Parameter*, std::size_t> flag_at(const std::string& text, std::size_t at) {
    bool begins = at == 0 || !is_word_char(text[at - 1]);
    if (!begins || text[at] != '-' || at + 1 >= text.size()) return {nullptr, 0};
    if (text[at + 1] == '-') {
        std::size_t end = at + 2;
        while (end < text.size() && is_word_char(text[end])) ++end;
        return {find_parameter(std::string_view(text).substr(at + 2, end - at - 2)), end - at};
    }
    bool ends = at + 2 == text.size() || !is_word_char(text[at + 2]);
    return {ends ? parameter_with(text[at + 1]) : nullptr, 2};
}

}  // namespace

std::string in_json_words(const std::string& text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        auto [parameter, length] = flag_at(text, at);
        if (parameter == nullptr) {
            out += text[at++];
            continue;
        }
        out += json_name(*parameter);
        at += length;
    }
    return out;
}

ScenarioWords words_of_flags(const Request& request) {
    ScenarioWords out;
    TestWords test;
    NodeWords node;
    for (const auto& [name, text] : request) {
        const Parameter* parameter = find_parameter(name);
        bool of_front = parameter != nullptr && parameter->scope == Scope::kClient;
        if (name == "server") {
            node.words["host"] = text;
        } else if (name == "device" || name == "cuda_device_id") {
            node.words[name] = text;
        } else if (of_front || name == "dry_run") {
            out.output[name] = text;
        } else if (name == "disable_connection_matrix") {
            test.prints_matrix = false;
        } else {
            test.words[name] = text;
        }
    }
    for (const char* name : {"launch_server", "server_exe", "server_username", "server_device",
                             "server_mem_type", "server_cores", "lease", "port"}) {
        if (!request.contains(name)) continue;
        out.errors.push_back(
            fmt::format("--{} with --traffic_pattern: there is no server, all "
                        "hosts are alike",
                        name));
    }
    test.nodes.push_back(std::move(node));
    out.tests.push_back(std::move(test));
    return out;
}

}  // namespace rdmalab::perftest
