#include "perftest/cluster/scenario_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perftest/failure.h"

namespace rdmalab::perftest {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A run in which connection number i has moved i + 1 Gb/s, or had a latency of i + 1 us.
struct Made {
    Scenario scenario;
    ScenarioOutcome outcome;

    explicit Made(Request request) {
        request.try_emplace("server", "node[1-3]");
        request.try_emplace("device", "mlx5_0");
        request.try_emplace("traffic_pattern", "a2a");
        scenario = std::get<Scenario>(plan_scenario(words_of_flags(request)));
        outcome.scenario = &scenario;
        outcome.hosts = scenario.hosts();
        outcome.clocks.assign(outcome.hosts.size(), {0, 2500});
        outcome.start_time = "2026-01-01T00:00:00.000000Z";
        outcome.backend = "local";
        const ScenarioTest& test = scenario.tests[0];
        for (std::uint32_t i = 0; i < test.connections.size(); ++i) {
            for (int back = 0; back < (test.is_bidirectional() ? 2 : 1); ++back) {
                add(test, i, back != 0);
            }
        }
        for (std::uint32_t i = 0; i < outcome.hosts.size(); ++i) {
            outcome.timings.push_back({outcome.hosts[i] + ":mlx5_0", i, 0, 0, 1'000'000 + i * 1000,
                                       2'000'000 + i * 3000});
        }
    }

    void add(const ScenarioTest& test, std::uint32_t number, bool back) {
        DirectedResult result;
        result.connection = number;
        result.source = test.connections[number].source;
        result.destination = test.connections[number].destination;
        if (back) std::swap(result.source, result.destination);
        result.is_way_back = back;
        result.source_facts = result.destination_facts = Json::object();
        ProcessResult one;
        one.window_ns = 1'000'000'000;
        one.start_ns = 1;
        double index = static_cast<double>(outcome.results.size()) + 1;
        if (test.plan.metric == Metric::kLatency) {
            one.latency.record(static_cast<std::int64_t>(index * 2000));
            one.iterations_per_qp = {1};
        } else {
            double bytes = static_cast<double>(test.plan.bytes_per_iteration());
            one.iterations_per_qp = {static_cast<std::uint64_t>(index * 1e9 / 8 / bytes)};
        }
        result.direction.requesters = {one};
        ProcessResult other;
        other.is_requester = false;
        result.direction.responders = {other};
        outcome.results.push_back(std::move(result));
    }
};

TEST(ScenarioReport, the_matrix_has_senders_as_rows) {
    Made made(Request{{"msg_size", "125000"}});
    EXPECT_EQ(connection_matrix(made.outcome, 0, {}), R"(Test: Test 1, endpoints: 3
Hosts: node*
Connection Matrix [Gbit/sec]:
             |   1    |   2    |   3
             | mlx5_0 | mlx5_0 | mlx5_0
----- ------ | ------ | ------ | ------
1     mlx5_0 |   -    |  1.00  |  2.00
----- ------ | ------ | ------ | ------
2     mlx5_0 |  3.00  |   -    |  4.00
----- ------ | ------ | ------ | ------
3     mlx5_0 |  5.00  |  6.00  |   -
)");
}

TEST(ScenarioReport, colours_go_from_red_to_green_and_only_where_they_can_be_seen) {
    Made made(Request{{"msg_size", "125000"}});
    EXPECT_THAT(connection_matrix(made.outcome, 0, {}), Not(HasSubstr("\x1b")));
    std::string text = connection_matrix(made.outcome, 0, {.colours = true});
    EXPECT_THAT(text, HasSubstr("\x1b[48;5;196m\x1b[38;5;16m 1.00 "));
    EXPECT_THAT(text, HasSubstr("\x1b[48;5;46m\x1b[38;5;16m 6.00 "));
    Made latency(Request{{"metric", "lat"}});
    std::string inverse = connection_matrix(latency.outcome, 0, {.colours = true});
    EXPECT_THAT(inverse, HasSubstr("\x1b[48;5;46m\x1b[38;5;16m 1.00 "));
    EXPECT_THAT(inverse, HasSubstr("\x1b[48;5;196m\x1b[38;5;16m 6.00 "));
}

TEST(ScenarioReport, with_a_threshold_colours_say_pass_or_fail_and_every_connection_must_pass) {
    Made made(Request{{"msg_size", "125000"}, {"bw_threshold", "3"}});
    std::string text = connection_matrix(made.outcome, 0, {.colours = true});
    EXPECT_THAT(text, HasSubstr("\x1b[48;5;196m\x1b[38;5;16m 2.00 "));
    EXPECT_THAT(text, HasSubstr("\x1b[48;5;46m\x1b[38;5;16m 3.00 "));
    EXPECT_EQ(made.outcome.exit_code(), kExitThreshold);
    EXPECT_STREQ(made.outcome.status(), "fail");
    EXPECT_THAT(text_report(made.outcome, {}),
                HasSubstr("Threshold of every connection: at least 3.00 Gbit/sec: FAILED"));
    EXPECT_EQ(Made(Request{{"msg_size", "125000"}, {"bw_threshold", "0.5"}}).outcome.exit_code(),
              kExitOk);
}

TEST(ScenarioReport, above_sixteen_endpoints_the_best_and_worst_ten_are_listed) {
    Made made(Request{{"server", "node[01-17]"}, {"msg_size", "125000"}});
    std::string text = connection_matrix(made.outcome, 0, {});
    EXPECT_THAT(text, HasSubstr("Best 10 connections [Gbit/sec]:\n        272.00"));
    EXPECT_THAT(text, HasSubstr("Worst 10 connections"));
    EXPECT_THAT(text, HasSubstr("        1.00  node01:mlx5_0 -> node02:mlx5_0"));
    EXPECT_THAT(text, Not(HasSubstr("Matrix")));
    Made few(Request{{"server", "node[01-17]"}, {"traffic_pattern", "o2m"}});
    text = connection_matrix(few.outcome, 0, {});
    EXPECT_THAT(text, HasSubstr("Best 10 connections"));
    EXPECT_THAT(text, HasSubstr("Worst 6 connections"));
}

TEST(ScenarioReport, latency_is_best_where_it_is_lowest) {
    Made made(Request{{"metric", "lat"}});
    std::vector<std::size_t> order = ranked(made.outcome, 0);
    EXPECT_EQ(order.front(), 0u);
    EXPECT_EQ(figure_of(made.outcome, made.outcome.results[0]), 1);
}

TEST(ScenarioReport, sums_are_by_test_node_and_device) {
    Made made(Request{{"msg_size", "125000"}});
    Rollup test = rollup_of_test(made.outcome, 0);
    EXPECT_DOUBLE_EQ(test.bandwidth.gbps, 21);
    EXPECT_DOUBLE_EQ(*test.min_gbps, 1);
    EXPECT_DOUBLE_EQ(*test.max_gbps, 6);
    std::vector<Rollup> sent = rollups(made.outcome, 0, false, true);
    ASSERT_EQ(sent.size(), 3u);
    EXPECT_DOUBLE_EQ(sent[2].bandwidth.gbps, 11);
    std::vector<Rollup> received = rollups(made.outcome, 0, true, false);
    EXPECT_EQ(received[0].device, "mlx5_0");
    double sum = 0;
    for (const Rollup& each : received) sum += each.bandwidth.gbps;
    EXPECT_DOUBLE_EQ(sum, 21);
}

TEST(ScenarioReport, both_directions_of_a_pair_are_summed_and_the_extremes_are_named) {
    Made made(Request{{"msg_size", "125000"}, {"bidirectional", "true"}});
    EXPECT_EQ(made.outcome.results.size(), 6u);
    Json report = report_json(made.outcome);
    EXPECT_EQ(report["connections"].size(), 6u);
    const Json& pairs = report["aggregatedResults"]["bidirConnections"];
    ASSERT_EQ(pairs.size(), 3u);
    EXPECT_DOUBLE_EQ(pairs[0]["bwGbSec"].get<double>(), 3);
    EXPECT_EQ(pairs[2]["connectionIds"], Json({4, 5}));
    std::string text = text_report(made.outcome, {});
    EXPECT_THAT(text, HasSubstr("BIDIR Connections Summary"));
    EXPECT_THAT(text, HasSubstr("11.00 [Gbit/sec]  node2:mlx5_0 <-> node3:mlx5_0"));
}

TEST(ScenarioReport, a_failed_connection_is_named_and_is_not_part_of_the_sums) {
    Made made(Request{{"msg_size", "125000"}});
    made.outcome.results[5].error = "the cable was cut";
    EXPECT_EQ(made.outcome.exit_code(), kExitError);
    EXPECT_DOUBLE_EQ(rollup_of_test(made.outcome, 0).bandwidth.gbps, 15);
    std::string text = text_report(made.outcome, {});
    EXPECT_THAT(text, HasSubstr("node3:mlx5_0 -> node2:mlx5_0: the cable was cut"));
    EXPECT_THAT(text, HasSubstr("| failed"));
    Json report = report_json(made.outcome);
    EXPECT_EQ(report["connections"][5]["status"], "failed");
    EXPECT_EQ(report["connections"][5]["error"], "the cable was cut");
    EXPECT_EQ(report["aggregatedResults"]["perTest"][0]["failedConnections"], 1);
}

TEST(ScenarioReport, starts_and_stops_are_told_and_a_wide_start_is_warned_of) {
    Made made(Request{});
    Skew skew = made.outcome.skew();
    EXPECT_DOUBLE_EQ(skew.start_us, 2);
    EXPECT_DOUBLE_EQ(skew.stop_us, 6);
    EXPECT_DOUBLE_EQ(skew.clock_error_us, 2.5);
    EXPECT_THAT(text_report(made.outcome, {}), Not(HasSubstr("warning")));
    made.outcome.timings[1].started_ns += 5'000'000;
    EXPECT_THAT(text_report(made.outcome, {}), HasSubstr("warning: they started 5.0 ms apart"));
}

TEST(ScenarioReport, lines_are_one_summary_and_one_line_for_each_connection) {
    Made made(Request{});
    std::string lines = report_lines(made.outcome);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 7);
    Json first = Json::parse(lines.substr(0, lines.find('\n')));
    EXPECT_TRUE(first.contains("aggregatedResults"));
    EXPECT_FALSE(first.contains("connections"));
}

}  // namespace
}  // namespace rdmalab::perftest
