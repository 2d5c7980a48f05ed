#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "perftest/json.h"
#include "perftest/scenario/words.h"

namespace rdmalab::perftest {
namespace {

std::vector<std::string> keys(const Json& object) {
    std::vector<std::string> out;
    for (const auto& item : object.items()) out.push_back(item.key());
    return out;
}

// The schema that is shipped lists exactly the fields that are read.
TEST(ScenarioSchema, fields_are_those_that_are_read) {
    std::ifstream file(RDMALAB_SCENARIO_SCHEMA);
    Json schema = Json::parse(file);
    using ::testing::UnorderedElementsAreArray;
    EXPECT_THAT(keys(schema["properties"]),
                UnorderedElementsAreArray(known_fields(FieldPlace::kScenario)));
    EXPECT_THAT(keys(schema["definitions"]["test"]["properties"]),
                UnorderedElementsAreArray(known_fields(FieldPlace::kTest)));
    EXPECT_THAT(keys(schema["definitions"]["node"]["properties"]),
                UnorderedElementsAreArray(known_fields(FieldPlace::kNode)));
}

}  // namespace
}  // namespace rdmalab::perftest
