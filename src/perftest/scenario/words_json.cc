// JSON scenarios into words. Keys are matched without regard to case and underscores, with a note,
// because older texts spelled them so; everything else that is not known is refused with the
// nearest known name, since a mistyped key that is ignored would measure something else.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "perftest/fields.h"
#include "perftest/parameters.h"
#include "perftest/quantity.h"
#include "perftest/scenario/pattern.h"
#include "perftest/scenario/strict_json.h"
#include "perftest/scenario/text_file.h"
#include "perftest/scenario/words.h"

namespace rdmalab::perftest {

namespace {

constexpr std::size_t kInputBytesMax = 64u << 20;
constexpr std::size_t kTestsMax = 1024;

// Words that a more special place can also take back (nothing = off).
using Overlay = std::map<std::string, std::optional<std::string>>;

// Choices that exclude each other: a test that makes one forgets the defaults for all of its group.
const std::vector<std::vector<std::string>> kGroups = {
    {"duration", "iterations", "run_infinitely"},
    {"msg_size", "operations", "ptini_file", "verb"},
    {"warmup_time", "warmup_iterations"},
    {"bidirectional", "dual_unidir"},
    {"num_processes", "cores"},
    {"bw_threshold", "lat_threshold"}};

std::string plain_key(std::string_view key) {
    std::string out;
    for (char c : key) {
        if (c == '_' || c == '-') continue;
        out += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    return out;
}

std::string join(const std::string& path, const std::string& key) {
    return path.empty() ? key : path + "." + key;
}

bool is_test_parameter(const Parameter& parameter) {
    bool scope = parameter.scope == Scope::kTest || parameter.scope == Scope::kSide ||
                 parameter.scope == Scope::kScenario;
    return scope && parameter.json[0] != '\0' && std::string_view(parameter.name) != "device";
}

std::string shown(const Json& value) {
    std::string text = to_text(value);
    return text.size() > 80 ? text.substr(0, 77) + "..." : text;
}

class Reader {
public:
    explicit Reader(ScenarioWords& out) : out_(out) {}
    void read(const Json& root);

private:
    struct TestFields {
        Overlay words;
        std::optional<std::vector<NodeWords>> nodes;
        std::optional<std::vector<std::pair<NodeWords, NodeWords>>> connections;
        std::optional<bool> prints_matrix;
        std::string name;
    };

    void complain(const std::string& path, const std::string& text) {
        out_.errors.push_back(path.empty() ? text : path + ": " + text);
    }
    std::string known_key(const std::string& path, const std::string& key, FieldPlace place,
                          std::map<std::string, std::string>& seen);
    void read_field(const std::string& path, const std::string& key, const Json& value,
                    TestFields& fields);
    void read_scenario_field(const std::string& key, const Json& value);
    void read_direction(const std::string& path, const Json& value, Overlay& words);
    TestFields read_test(const std::string& path, const Json& json, FieldPlace place);
    std::vector<NodeWords> read_nodes(const std::string& path, const Json& value);
    NodeWords read_node(const std::string& path, const Json& value);
    void read_connections(const std::string& path, const Json& value, TestFields& fields);
    std::optional<bool> read_bool(const std::string& path, const Json& value);
    TestWords merge(const std::string& path, const TestFields& defaults, const TestFields& own);

    ScenarioWords& out_;
};

// The field that a key means, as it is spelled properly; "" when there is none.
std::string Reader::known_key(const std::string& path, const std::string& key, FieldPlace place,
                              std::map<std::string, std::string>& seen) {
    static const std::array<std::vector<std::string>, 3> kKnown = {
        known_fields(FieldPlace::kScenario), known_fields(FieldPlace::kTest),
        known_fields(FieldPlace::kNode)};
    const std::vector<std::string>& known = kKnown[static_cast<std::size_t>(place)];
    auto found = std::find_if(known.begin(), known.end(), [&](const std::string& each) {
        return plain_key(each) == plain_key(key);
    });
    if (found == known.end()) {
        bool of_node = place != FieldPlace::kNode &&
                       (plain_key(key) == "hostname" || plain_key(key) == "devicename");
        std::string near = nearest(key, known);
        complain(join(path, key),
                 of_node ? "belongs into an entry of testNodes"
                         : fmt::format("unknown field{}",
                                       near.empty() ? "" : "; did you mean '" + near + "'?"));
        return "";
    }
    if (*found != key) out_.notes.push_back(fmt::format("{}: read as {}", join(path, key), *found));
    auto [entry, is_new] = seen.emplace(*found, key);
    if (!is_new) {
        complain(join(path, key), fmt::format("the same field as {}", entry->second));
        return "";
    }
    return *found;
}

std::optional<bool> Reader::read_bool(const std::string& path, const Json& value) {
    if (value == true || value == "true") return true;
    if (value == false || value == "false") return false;
    complain(path, "expected a boolean, found " + shown(value));
    return std::nullopt;
}

void Reader::read_direction(const std::string& path, const Json& value, Overlay& words) {
    std::optional<TrafficDirection> direction =
        value.is_string() ? direction_named(value.get<std::string>()) : std::nullopt;
    if (!direction) {
        complain(path, "expected UNIDIR, BIDIR or DUAL_UNIDIR, found " + shown(value));
        return;
    }
    words["bidirectional"] = std::nullopt;
    if (*direction == TrafficDirection::kBidir) words["bidirectional"] = "true";
    if (*direction == TrafficDirection::kDualUnidir) words["dual_unidir"] = "true";
}

NodeWords Reader::read_node(const std::string& path, const Json& value) {
    NodeWords out{path, {}};
    if (!value.is_object()) {
        complain(path, "expected an object with hostName and deviceName, found " + shown(value));
        return out;
    }
    std::map<std::string, std::string> seen;
    for (const auto& [key, field] : value.items()) {
        std::string name = known_key(path, key, FieldPlace::kNode, seen);
        if (name.empty()) continue;
        if (name == "hostName") {
            if (field.is_string()) {
                out.words["host"] = field.get<std::string>();
            } else {
                complain(join(path, key), "expected a text, found " + shown(field));
            }
            continue;
        }
        const Parameter& parameter = *find_json_field(name);
        Result<std::optional<std::string>> text = field_text(parameter, field);
        if (!text.ok()) {
            complain(join(path, key), text.error().text);
        } else if (text->has_value()) {
            out.words[parameter.name] = **text;
        }
    }
    return out;
}

std::vector<NodeWords> Reader::read_nodes(const std::string& path, const Json& value) {
    std::vector<NodeWords> out;
    if (!value.is_array() || value.empty()) {
        complain(path, "expected a list of nodes, found " + shown(value));
        return out;
    }
    for (std::size_t i = 0; i < value.size(); ++i) {
        out.push_back(read_node(fmt::format("{}[{}]", path, i), value[i]));
    }
    return out;
}

void Reader::read_connections(const std::string& path, const Json& value, TestFields& fields) {
    fields.connections.emplace();
    if (!value.is_array() || value.empty()) {
        complain(path, "expected a list of connections, found " + shown(value));
        return;
    }
    for (std::size_t i = 0; i < value.size(); ++i) {
        std::string where = fmt::format("{}[{}]", path, i);
        const Json& each = value[i];
        if (!each.is_object() || each.size() != 2 || !each.contains("source") ||
            !each.contains("destination")) {
            complain(where, "expected an object of source and destination, found " + shown(each));
            continue;
        }
        fields.connections->emplace_back(read_node(where + ".source", each["source"]),
                                         read_node(where + ".destination", each["destination"]));
    }
}

void Reader::read_field(const std::string& path, const std::string& key, const Json& value,
                        TestFields& fields) {
    if (key == "testNodes") {
        fields.nodes = read_nodes(path, value);
    } else if (key == "connections") {
        read_connections(path, value, fields);
    } else if (key == "trafficDirection") {
        read_direction(path, value, fields.words);
    } else if (key == "printConnectionMatrix") {
        fields.prints_matrix = read_bool(path, value);
    } else if (key == "name") {
        if (value.is_string()) {
            fields.name = value.get<std::string>();
        } else {
            complain(path, "expected a text, found " + shown(value));
        }
    } else if (key == "port") {
        out_.notes.push_back(path + ": not used; scenarios need no port of their own");
    } else {
        const Parameter& parameter = *find_json_field(key);
        Result<std::optional<std::string>> text = field_text(parameter, value);
        if (text.ok()) {
            fields.words[parameter.name] = *text;
        } else {
            complain(path, text.error().text);
        }
    }
}

void Reader::read_scenario_field(const std::string& key, const Json& value) {
    if (key == "tests") return;
    const Parameter& parameter = *find_json_field(key);
    Result<std::optional<std::string>> text = field_text(parameter, value);
    if (!text.ok()) {
        complain(key, text.error().text);
    } else if (text->has_value()) {
        out_.output[parameter.name] = **text;
    }
}

Reader::TestFields Reader::read_test(const std::string& path, const Json& json, FieldPlace place) {
    TestFields fields;
    if (!json.is_object()) {
        complain(path, "expected an object with the fields of a test, found " + shown(json));
        return fields;
    }
    std::vector<std::string> of_tests = known_fields(FieldPlace::kTest);
    std::map<std::string, std::string> seen;
    for (const auto& [key, value] : json.items()) {
        std::string name = known_key(path, key, place, seen);
        if (name.empty()) continue;
        if (std::find(of_tests.begin(), of_tests.end(), name) != of_tests.end()) {
            read_field(join(path, key), name, value, fields);
        } else {
            read_scenario_field(name, value);
        }
    }
    return fields;
}

TestWords Reader::merge(const std::string& path, const TestFields& defaults,
                        const TestFields& own) {
    Overlay words = defaults.words;
    for (const auto& [name, text] : own.words) {
        for (const std::vector<std::string>& group : kGroups) {
            bool of_group = std::find(group.begin(), group.end(), name) != group.end();
            for (const std::string& other : of_group ? group : std::vector<std::string>()) {
                if (!own.words.contains(other)) words.erase(other);
            }
        }
        words[name] = text;
    }
    TestWords out;
    out.path = path;
    out.name = own.name;
    for (const auto& [name, text] : words) {
        if (text) out.words[name] = *text;
    }
    if (own.nodes || own.connections) {
        out.nodes = own.nodes.value_or(out.nodes);
        out.connections = own.connections.value_or(out.connections);
    } else {
        out.nodes = defaults.nodes.value_or(out.nodes);
        out.connections = defaults.connections.value_or(out.connections);
    }
    out.prints_matrix = own.prints_matrix.value_or(true) && defaults.prints_matrix.value_or(true);
    if (own.prints_matrix) out.prints_matrix = *own.prints_matrix;
    return out;
}

void Reader::read(const Json& root) {
    TestFields defaults = read_test("", root, FieldPlace::kScenario);
    if (!root.is_object()) return;
    out_.name = defaults.name;
    auto tests = std::find_if(root.items().begin(), root.items().end(),
                              [](const auto& item) { return plain_key(item.key()) == "tests"; });
    if (tests == root.items().end()) {
        out_.tests.push_back(merge("", {}, defaults));
        return;
    }
    const Json& list = tests.value();
    if (!list.is_array() || list.empty() || list.size() > kTestsMax) {
        complain("tests",
                 fmt::format("expected a list of 1 to {} tests, found {}", kTestsMax, shown(list)));
        return;
    }
    for (std::size_t i = 0; i < list.size(); ++i) {
        std::string path = fmt::format("tests[{}]", i);
        out_.tests.push_back(merge(path, defaults, read_test(path, list[i], FieldPlace::kTest)));
    }
}

}  // namespace

std::vector<std::string> known_fields(FieldPlace place) {
    if (place == FieldPlace::kNode) {
        return {"hostName", "deviceName", "cudaDeviceId", "gidIndex",
                "ibPort",   "cores",      "excludeCores", "memoryType"};
    }
    std::vector<std::string> out = {"name", "testNodes", "connections", "printConnectionMatrix",
                                    "port"};
    for (const Parameter& parameter : parameters()) {
        if (is_test_parameter(parameter)) out.emplace_back(parameter.json);
    }
    if (place == FieldPlace::kScenario) {
        for (const Parameter& parameter : parameters()) {
            bool of_front = parameter.scope == Scope::kClient && parameter.json[0] != '\0' &&
                            std::string_view(parameter.name) != "port";
            if (of_front) out.emplace_back(parameter.json);
        }
        out.emplace_back("tests");
    }
    return out;
}

ScenarioWords words_of_json(const std::string& text, const std::string& source) {
    ScenarioWords out;
    out.is_json = true;
    out.source = source;
    Result<Json> json = parse_strictly(text);
    if (!json.ok()) {
        out.errors.push_back(json.error().text);
        return out;
    }
    Reader(out).read(*json);
    return out;
}

ScenarioWords words_of_input(const std::string& file_or_json) {
    std::size_t first = file_or_json.find_first_not_of(" \t\r\n");
    bool is_json =
        first != std::string::npos && (file_or_json[first] == '{' || file_or_json[first] == '[');
    if (is_json) return words_of_json(file_or_json, "inline JSON");
    Result<std::string> text = read_text_file(file_or_json, kInputBytesMax);
    if (text.ok()) return words_of_json(*text, file_or_json);
    ScenarioWords out;
    out.source = "--input_file";
    out.is_json = true;
    out.errors.push_back(text.error().text);
    return out;
}

}  // namespace rdmalab::perftest
