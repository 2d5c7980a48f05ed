// What a scenario asks for, in words that are not yet understood. Flags and JSON both become this,
// and only this is planned: that is why they make the same plan.
//
// Words of a test are those of its flags (parameters.h). A node's words are "host", "device",
// "cuda_device_id" (all with bracket ranges) and flags of its own side.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "perftest/plan.h"

namespace rdmalab::perftest {

struct NodeWords {
    std::string path;  // where it stands in the JSON
    Request words;
};

struct TestWords {
    std::string path;  // "tests[1]", or "" for flags and for a scenario that is one test
    std::string name;
    Request words;
    std::vector<NodeWords> nodes;
    std::vector<std::pair<NodeWords, NodeWords>> connections;  // instead of a pattern
    bool prints_matrix = true;
};

struct ScenarioWords {
    std::string source;  // what errors begin with: a file's name, or "" for flags
    bool is_json = false;
    std::string name;
    Request output;  // flags of the front-end: json_output and the like
    std::vector<TestWords> tests;
    std::vector<std::string> errors, notes;
};

ScenarioWords words_of_flags(const Request& request);
// A file, or JSON when it begins with a brace.
ScenarioWords words_of_input(const std::string& file_or_json);
ScenarioWords words_of_json(const std::string& text, const std::string& source);

// Every field that a scenario knows, by place: for the schema and for tests.
enum class FieldPlace { kScenario, kTest, kNode };
std::vector<std::string> known_fields(FieldPlace place);

// Flags in a message as the fields of JSON that they are: "--msg_size" is msgSize.
std::string in_json_words(const std::string& text);

}  // namespace rdmalab::perftest
