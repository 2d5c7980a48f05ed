#include "perftest/scenario/outline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perftest/scenario/table.h"

namespace rdmalab::perftest {
namespace {

using ::testing::HasSubstr;

ScenarioTest sample() {
    ScenarioTest test;
    test.name = "VariableA2A";
    test.ptini_datatype = "float32";
    for (int i = 1; i <= 5; ++i) {
        test.endpoints.push_back({"gb-ida-lr1-r8-0" + std::to_string(i), "mlx5_0", {}, 0});
    }
    test.sizes = parse_ptini(
                     "[collective]\ncounts = {0,33554432,262144,2097152,524288,33554432,0,1048576,"
                     "0,524288,262144,1048576,0,16777216,524288,2097152,0,16777216,0,524288,"
                     "2097152,0,16777216,1048576,0}",
                     5, 4)
                     .value();
    return test;
}

TEST(Outline, the_size_matrix_is_that_of_the_guide) {
    EXPECT_EQ(size_matrix(sample()), R"(Test: VariableA2A, endpoints: 5
Hosts: gb-ida-lr1-r8-*
.ptini counts scaled by datatype float32 (4 bytes per element)
Message Size Matrix [bytes]:
             |    01     |    02     |    03     |    04     |    05     |   Total
             |  mlx5_0   |  mlx5_0   |  mlx5_0   |  mlx5_0   |  mlx5_0   |   sent
----- ------ | --------- | --------- | --------- | --------- | --------- | ---------
01    mlx5_0 |     -     | 134217728 |  1048576  |  8388608  |  2097152  | 145752064
----- ------ | --------- | --------- | --------- | --------- | --------- | ---------
02    mlx5_0 | 134217728 |     -     |  4194304  |     0     |  2097152  | 140509184
----- ------ | --------- | --------- | --------- | --------- | --------- | ---------
03    mlx5_0 |  1048576  |  4194304  |     -     | 67108864  |  2097152  | 74448896
----- ------ | --------- | --------- | --------- | --------- | --------- | ---------
04    mlx5_0 |  8388608  |     0     | 67108864  |     -     |  2097152  | 77594624
----- ------ | --------- | --------- | --------- | --------- | --------- | ---------
05    mlx5_0 |  8388608  |     0     | 67108864  |  4194304  |     -     | 79691776
----- ------ | --------- | --------- | --------- | --------- | --------- | ---------
Total recv   | 152043520 | 138412032 | 139460608 | 79691776  |  8388608
skipped 3/20 zero-size pairs
)");
}

TEST(Outline, names_are_shortened_only_where_they_differ_by_their_end) {
    auto line = [](std::vector<std::string> hosts) {
        std::vector<TestEndpoint> endpoints;
        for (const std::string& host : hosts) endpoints.push_back({host, "d", {}, 0});
        return host_line(endpoints);
    };
    EXPECT_EQ(line({"node1", "node10"}), "Hosts: node*\n");
    EXPECT_EQ(line({"a1", "b1"}), "");
    EXPECT_EQ(line({"same", "same"}), "");
    EXPECT_EQ(line({"node", "node2"}), "");
}

TEST(Outline, a_plan_lists_ranks_connections_rounds_and_bytes) {
    ScenarioWords words = words_of_flags({{"server", "n[1-3]"},
                                          {"device", "mlx5_0"},
                                          {"msg_size", "1000"},
                                          {"traffic_pattern", "a2a"},
                                          {"peer_shifting", "true"}});
    Scenario scenario = std::get<Scenario>(plan_scenario(words));
    std::string text = outline(scenario);
    EXPECT_THAT(text, HasSubstr("1 test(s) at once, 3 host(s), 6 connection(s)"));
    EXPECT_THAT(text, HasSubstr("Connections: 6 in 2 rounds, 6000 bytes per iteration of all"));
    EXPECT_THAT(text, HasSubstr("  round 2: 0 n1:mlx5_0 -> 2 n3:mlx5_0: 1000 bytes per iteration"));
    EXPECT_THAT(text, HasSubstr("10 s, 2 s warm-up before, 2 s margin after"));
    Json json = outline_json(scenario);
    EXPECT_EQ(json["connections"].size(), 6u);
    EXPECT_EQ(json["connections"][5]["trafficPhaseId"], 2);
}

}  // namespace
}  // namespace rdmalab::perftest
