// What a server makes of a client's test and its own command line.
#include "perftest/serve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perftest/failure.h"

namespace rdmalab::perftest {
namespace {

using ::testing::HasSubstr;

Json test_of(const Request& client) {
    Plan plan = std::get<Planned>(make_plan(client)).plan;
    return {{"scenario", scenario_json(plan)}};
}

std::string refusal(const Request& own, const Json& test) {
    try {
        merge(own, test);
    } catch (const Failure& failure) {
        return failure.what();
    }
    return "";
}

TEST(Serve, the_server_takes_the_test_from_the_client) {
    Planned planned = merge({{"device", "mlx5_2"}}, test_of({{"msg_size", "4096"}, {"qps", "3"}}));
    EXPECT_EQ(planned.plan.operations[0].size, 4096u);
    EXPECT_EQ(planned.plan.qps, 3u);
    EXPECT_EQ(planned.side.device, "mlx5_2");
}

TEST(Serve, flags_that_agree_are_fine_however_they_are_written) {
    EXPECT_EQ(refusal({{"msg_size", "64k"}, {"duration", "10"}}, test_of({})), "");
}

TEST(Serve, a_contradiction_is_refused_by_name) {
    EXPECT_EQ(refusal({{"msg_size", "4096"}}, test_of({})),
              "refused: this server was started with --msg_size 4096, the client asks for 65536");
    EXPECT_THAT(refusal({{"verb", "send"}}, test_of({})), HasSubstr("--verb send"));
    EXPECT_THAT(refusal({{"bidirectional", "true"}}, test_of({})), HasSubstr("--bidirectional"));
}

TEST(Serve, wishes_for_this_side_are_taken_unless_it_was_told_otherwise) {
    Json test = test_of({});
    test["serverDevice"] = "mlx5_4";
    EXPECT_EQ(merge({}, test).side.device, "mlx5_4");
    EXPECT_EQ(merge({{"device", "mlx5_2"}}, test).side.device, "mlx5_2");
    test["serverDeviceFlag"] = true;
    EXPECT_THAT(refusal({{"device", "mlx5_2"}}, test), HasSubstr("--server_device mlx5_4"));
}

TEST(Serve, nonsense_from_a_client_is_refused) {
    Json test = test_of({});
    test["scenario"]["qps"] = "many";
    EXPECT_THAT(refusal({}, test), HasSubstr("--qps"));
    test["scenario"] = Json::array();
    EXPECT_THAT(refusal({}, test), HasSubstr("expected an object"));
    EXPECT_THROW(merge({}, Json::array()), Json::exception);
}

}  // namespace
}  // namespace rdmalab::perftest
