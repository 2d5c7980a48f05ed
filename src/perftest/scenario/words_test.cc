#include "perftest/scenario/words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perftest/parameters.h"
#include "perftest/scenario/strict_json.h"

namespace rdmalab::perftest {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ScenarioWords read(const std::string& text) { return words_of_json(text, "s.json"); }

std::string refusal(const std::string& text) {
    ScenarioWords words = read(text);
    return words.errors.empty() ? "accepted" : words.errors.front();
}

TEST(Words, a_flat_object_is_one_test) {
    ScenarioWords words = read(R"({"testNodes": [{"hostName": "a", "deviceName": "d"}],
                                   "trafficPattern": "RING", "msgSize": 4096, "name": "x"})");
    EXPECT_TRUE(words.errors.empty());
    ASSERT_EQ(words.tests.size(), 1u);
    EXPECT_EQ(words.tests[0].words.at("msg_size"), "4096");
    EXPECT_EQ(words.tests[0].words.at("traffic_pattern"), "RING");
    EXPECT_EQ(words.tests[0].nodes[0].words.at("host"), "a");
    EXPECT_EQ(words.tests[0].name, "x");
}

TEST(Words, root_fields_are_defaults_that_a_test_overrides) {
    ScenarioWords words = read(R"({"duration": 5, "trafficDirection": "BIDIR", "useEce": true,
        "testNodes": [{"hostName": "a", "deviceName": "d"}], "printConnectionMatrix": false,
        "tests": [{}, {"iterations": 7, "trafficDirection": "UNIDIR", "useEce": false,
                       "printConnectionMatrix": true}]})");
    ASSERT_EQ(words.tests.size(), 2u);
    EXPECT_EQ(words.tests[0].words.at("duration"), "5");
    EXPECT_EQ(words.tests[0].words.at("bidirectional"), "true");
    EXPECT_EQ(words.tests[0].words.at("use_ece"), "true");
    EXPECT_FALSE(words.tests[0].prints_matrix);
    EXPECT_EQ(words.tests[1].words.at("iterations"), "7");
    EXPECT_FALSE(words.tests[1].words.contains("duration"));
    EXPECT_FALSE(words.tests[1].words.contains("bidirectional"));
    EXPECT_FALSE(words.tests[1].words.contains("use_ece"));
    EXPECT_TRUE(words.tests[1].prints_matrix);
    EXPECT_EQ(words.tests[1].nodes.size(), 1u);
}

TEST(Words, older_spellings_are_read_with_a_note) {
    ScenarioWords words = read(R"({"testNodes": [{"hostname": "a", "DeviceName": "d"}],
        "Duration": 3, "num_processes": 2, "trafficPattern": "ALL_2_ALL", "useEce": "true"})");
    EXPECT_TRUE(words.errors.empty());
    EXPECT_EQ(words.tests[0].words.at("duration"), "3");
    EXPECT_EQ(words.tests[0].words.at("num_processes"), "2");
    EXPECT_EQ(words.tests[0].words.at("use_ece"), "true");
    EXPECT_THAT(words.notes, Contains(HasSubstr("num_processes: read as numProcesses")));
    EXPECT_THAT(words.notes, Contains(HasSubstr("testNodes[0].hostname: read as hostName")));
}

TEST(Words, unknown_fields_are_refused_with_the_nearest_one) {
    EXPECT_THAT(refusal(R"({"msgSizes": 1})"), HasSubstr("did you mean 'msgSize'?"));
    EXPECT_THAT(refusal(R"({"tests": [{"trafficPatern": "RING"}]})"),
                HasSubstr("tests[0].trafficPatern: unknown field; did you mean 'trafficPattern'?"));
    EXPECT_THAT(refusal(R"({"testNodes": [{"hostNam": "a"}]})"),
                HasSubstr("testNodes[0].hostNam: unknown field; did you mean 'hostName'?"));
    EXPECT_THAT(refusal(R"({"deviceName": "d"})"), HasSubstr("belongs into an entry of testNodes"));
    EXPECT_THAT(refusal(R"({"tests": [{"outputFile": "x"}]})"), HasSubstr("unknown field"));
    EXPECT_THAT(refusal(R"({"duration": 1, "Duration": 2})"), HasSubstr("the same field as"));
}

TEST(Words, wrong_types_name_path_and_value) {
    EXPECT_THAT(refusal(R"({"msgSize": true})"),
                HasSubstr("msgSize: expected a number, found true"));
    EXPECT_THAT(refusal(R"({"useEce": 1})"), HasSubstr("useEce: expected a boolean, found 1"));
    EXPECT_THAT(refusal(R"({"verb": 1})"), HasSubstr("verb: expected a text, found 1"));
    EXPECT_THAT(refusal(R"({"testNodes": {}})"), HasSubstr("testNodes: expected a list"));
    EXPECT_THAT(refusal(R"({"testNodes": ["a"]})"), HasSubstr("testNodes[0]: expected an object"));
    EXPECT_THAT(refusal(R"({"tests": {}})"), HasSubstr("tests: expected a list"));
    EXPECT_THAT(refusal(R"({"trafficDirection": "UP"})"), HasSubstr("DUAL_UNIDIR, found \"UP\""));
    EXPECT_THAT(refusal(R"({"cores": [1, "x"]})"), HasSubstr("cores: expected cores like"));
    EXPECT_THAT(refusal(R"([1])"), HasSubstr("expected an object"));
    EXPECT_THAT(refusal(R"({"connections": [{"source": {}}]})"),
                HasSubstr("connections[0]: expected an object of source and destination"));
}

TEST(Words, what_is_not_json_is_refused_with_the_place) {
    EXPECT_THAT(refusal(R"({"a": 1)"), HasSubstr("parse error"));
    EXPECT_THAT(refusal(R"({"duration": 1, "duration": 2})"),
                HasSubstr("duration: the same key a second time"));
    EXPECT_THAT(refusal(R"({"tests": [{}, {"qps": 1, "qps": 2}]})"),
                HasSubstr("tests[1].qps: the same key a second time"));
    EXPECT_THAT(refusal("{\"name\": \"\xff\xfe\"}"), HasSubstr("UTF-8"));
    EXPECT_THAT(refusal(R"({} x)"), HasSubstr("parse error"));
    EXPECT_THAT(refusal(""), HasSubstr("parse error"));
    std::string deep(2000, '[');
    EXPECT_THAT(refusal(deep), HasSubstr("nested more than"));
    EXPECT_THAT(words_of_input("/nowhere/s.json").errors, Contains(HasSubstr("/nowhere/s.json")));
}

TEST(Words, lists_and_objects_stand_for_what_flags_write_as_text) {
    ScenarioWords words = read(R"({"operations": [{"verb": "write", "msgSize": 65536},
        {"verb": "send", "msgSize": "4k"}], "cores": [5, 7],
        "ccGroupHints": {"filePath": "/h", "fileSize": 8, "vendorId": 1, "formatId": 2},
        "testNodes": [{"cudaDeviceId": 3, "cores": "1-2"}]})");
    EXPECT_TRUE(words.errors.empty());
    EXPECT_EQ(words.tests[0].words.at("operations"), "write:65536,send:4k");
    EXPECT_EQ(words.tests[0].words.at("cores"), "5,7");
    EXPECT_EQ(words.tests[0].words.at("cc_group_hints"), "/h,8,1,2");
    EXPECT_EQ(words.tests[0].nodes[0].words.at("cuda_device_id"), "3");
    EXPECT_EQ(words.tests[0].nodes[0].words.at("cores"), "1-2");
}

TEST(Words, output_belongs_to_the_scenario) {
    ScenarioWords words =
        read(R"({"outputFile": "r.json", "printJsonOutput": true, "nonInteractive": true})");
    EXPECT_EQ(words.output, (Request{{"json_output", "r.json"},
                                     {"print_json_results", "true"},
                                     {"non_interactive", "true"}}));
}

TEST(Words, flags_in_messages_become_fields) {
    EXPECT_EQ(in_json_words("--msg_size with --operations: each (given: --msg_size 8)"),
              "msgSize with operations: each (given: msgSize 8)");
    EXPECT_EQ(in_json_words("--validate with -m lat; give -w 0, not -wx or x-w or a - b"),
              "dataValidation with metric lat; give warmupTime 0, not -wx or x-w or a - b");
    EXPECT_EQ(in_json_words("--bidirectional"), "trafficDirection BIDIR");
    EXPECT_EQ(in_json_words("--no_such_flag"), "--no_such_flag");
}

TEST(Words, every_test_parameter_is_a_field_of_a_test) {
    std::vector<std::string> known = known_fields(FieldPlace::kTest);
    for (const Parameter& parameter : parameters()) {
        bool of_test = parameter.scope == Scope::kTest && parameter.json[0] != '\0';
        if (of_test) {
            EXPECT_THAT(known, Contains(std::string(parameter.json)));
        }
    }
}

}  // namespace
}  // namespace rdmalab::perftest
