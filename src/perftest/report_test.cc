// Known samples and counters in, every printed and every JSON value out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "perftest/failure.h"
#include "perftest/metrics.h"
#include "perftest/report_json.h"
#include "perftest/report_text.h"

namespace rdmalab::perftest {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kSecond = 1'000'000'000;

Plan plan_of(const Request& request) { return std::get<Planned>(make_plan(request)).plan; }

ProcessResult counted(std::uint32_t process, std::int64_t window_ns,
                      std::vector<std::uint64_t> iterations) {
    ProcessResult result;
    result.process = process;
    result.window_ns = window_ns;
    result.start_ns = 1'788'000'000'000'000'000;
    result.iterations_per_qp = std::move(iterations);
    return result;
}

Outcome outcome_of(const Plan& plan, std::vector<ProcessResult> requesters,
                   std::vector<ProcessResult> responders = {}) {
    Outcome outcome;
    outcome.plan = plan;
    outcome.client = {{"host", "a"}, {"device", "mlx5_0"}, {"mtu", 4096}};
    outcome.server = {{"host", "b"}, {"device", "mlx5_1"}, {"mtu", 4096}};
    outcome.start_time = rfc3339(1'788'000'000'000'000'000);
    Direction direction{"a", "mlx5_0", "b", "mlx5_1", std::move(requesters), std::move(responders),
                        {}};
    outcome.directions.push_back(std::move(direction));
    return outcome;
}

TEST(Report, bandwidth_is_counted_iterations_over_the_window) {
    Outcome outcome =
        outcome_of(plan_of({{"msg_size", "65536"}}), {counted(0, 2 * kSecond, {1'000'000})});
    // 1e6 * 65536 B * 8 / 2 s
    Json report = report_json(outcome);
    const Json& results = report["connections"][0]["bwResults"];
    EXPECT_DOUBLE_EQ(results["bwGbSec"].get<double>(), 262.144);
    EXPECT_DOUBLE_EQ(results["msgRateMpps"].get<double>(), 0.5);
    EXPECT_DOUBLE_EQ(results["durationSec"].get<double>(), 2.0);
    EXPECT_EQ(results["iterations"].get<std::uint64_t>(), 1'000'000u);
    std::string text = text_report(outcome);
    EXPECT_THAT(text, HasSubstr("BW:                                     262.14 [Gbit/sec]\n"));
    EXPECT_THAT(text, HasSubstr("Message Rate:                           0.5000 [Mpps]\n"));
    EXPECT_THAT(text, HasSubstr("Duration:                                 2.00 [sec]\n"));
}

TEST(Report, counters_up_to_2_to_the_53_keep_every_digit) {
    std::uint64_t huge = (1ull << 53) - 1;
    Outcome outcome =
        outcome_of(plan_of({{"msg_size", "8"}}), {counted(0, 3600 * kSecond, {huge})});
    Json results = report_json(outcome)["connections"][0]["bwResults"];
    EXPECT_EQ(Json::parse(results.dump())["iterations"].get<std::uint64_t>(), huge);
    EXPECT_NEAR(results["bwGbSec"].get<double>(), 9007199254740991.0 * 64 / 3600 * 1e-9, 1e-3);
    EXPECT_THAT(text_report(outcome), HasSubstr("9007199254740991"));
}

TEST(Report, processes_are_summed_each_over_its_own_window_and_durations_averaged) {
    Outcome outcome = outcome_of(plan_of({{"msg_size", "1000"}, {"num_processes", "2"}}),
                                 {counted(0, kSecond, {1000}), counted(1, 3 * kSecond, {6000})});
    Bandwidth total = total_bandwidth(outcome.plan, outcome.directions[0].requesters);
    EXPECT_DOUBLE_EQ(total.gbps, 0.008 + 0.016);
    EXPECT_DOUBLE_EQ(total.mpps, 0.001 + 0.002);
    EXPECT_DOUBLE_EQ(total.duration_s, 2.0);
    EXPECT_EQ(total.iterations, 7000u);
    Json processes = report_json(outcome)["connections"][0]["resultsPerProcess"];
    ASSERT_EQ(processes.size(), 2u);
    EXPECT_DOUBLE_EQ(processes[1]["bwResults"]["bwGbSec"].get<double>(), 0.016);
}

TEST(Report, a_mix_counts_the_bytes_and_messages_of_all_its_operations) {
    Outcome outcome = outcome_of(plan_of({{"operations", "write:1000,send:500"}}),
                                 {counted(0, kSecond, {1'000'000})});
    Json results = report_json(outcome)["connections"][0]["bwResults"];
    EXPECT_DOUBLE_EQ(results["bwGbSec"].get<double>(), 12.0);
    EXPECT_DOUBLE_EQ(results["msgRateMpps"].get<double>(), 2.0);
}

TEST(Report, a_ping_pong_reports_half_of_the_round_trip) {
    ProcessResult result = counted(0, kSecond, {5});
    for (int ns : {1000, 2000, 3000, 4000, 20000}) result.latency.record(ns);
    Outcome outcome = outcome_of(plan_of({{"metric", "lat"}, {"msg_size", "8"}}), {result});
    Json results = report_json(outcome)["connections"][0]["latResults"];
    EXPECT_DOUBLE_EQ(results["minUsec"].get<double>(), 0.5);
    EXPECT_DOUBLE_EQ(results["maxUsec"].get<double>(), 10.0);
    EXPECT_DOUBLE_EQ(results["meanUsec"].get<double>(), 3.0);
    EXPECT_NEAR(results["medianUsec"].get<double>(), 1.5, 1.5 / 2048);
    EXPECT_DOUBLE_EQ(results["stdevUsec"].get<double>(), std::sqrt(12.5));
    EXPECT_DOUBLE_EQ(results["p99Usec"].get<double>(), 10.0);
    EXPECT_DOUBLE_EQ(results["p999Usec"].get<double>(), 10.0);
    EXPECT_EQ(results["samples"], 5);
    EXPECT_EQ(results["latencyDefinition"], "half_round_trip");
    std::string text = text_report(outcome);
    for (const char* line : {"Min:                                      0.50 [usec]",
                             "Max:                                     10.00 [usec]",
                             "Mean:                                     3.00 [usec]",
                             "Median:                                   1.50 [usec]",
                             "Stdev:                                    3.54 [usec]",
                             "99%:                                     10.00 [usec]",
                             "99.9%:                                   10.00 [usec]"}) {
        EXPECT_THAT(text, HasSubstr(line));
    }
}

TEST(Report, a_read_reports_its_whole_completion_time) {
    ProcessResult result = counted(0, kSecond, {1});
    result.latency.record(1500);
    Outcome outcome = outcome_of(plan_of({{"metric", "lat"}, {"verb", "read"}}), {result});
    EXPECT_DOUBLE_EQ(report_json(outcome)["connections"][0]["latResults"]["meanUsec"].get<double>(),
                     1.5);
}

TEST(Report, percentiles_come_from_all_samples_of_all_processes) {
    ProcessResult fast = counted(0, kSecond, {99}), slow = counted(1, kSecond, {1});
    for (int i = 0; i < 99; ++i) fast.latency.record(1000);
    slow.latency.record(1'000'000);
    Outcome outcome = outcome_of(
        plan_of({{"metric", "lat"}, {"verb", "read"}, {"num_processes", "2"}}), {fast, slow});
    Json results = report_json(outcome)["connections"][0]["latResults"];
    EXPECT_DOUBLE_EQ(results["p99Usec"].get<double>(), 1.0);
    EXPECT_DOUBLE_EQ(results["p999Usec"].get<double>(), 1000.0);
}

TEST(Report, nothing_measured_is_null_in_json_and_na_in_text) {
    Outcome outcome = outcome_of(plan_of({{"metric", "lat"}}), {counted(0, kSecond, {0})});
    Json report = report_json(outcome);
    EXPECT_TRUE(report["connections"][0]["latResults"]["meanUsec"].is_null());
    EXPECT_THAT(report.dump(), Not(HasSubstr("nan")));
    EXPECT_THAT(text_report(outcome), HasSubstr("N/A [usec]"));
}

TEST(Report, the_qp_histogram_shows_shares_and_deviations_from_their_mean) {
    Plan plan = plan_of({{"qps", "2"}, {"msg_size", "1000"}, {"qp_histogram", "true"}});
    Outcome outcome = outcome_of(plan, {counted(0, kSecond, {1'000'000, 3'000'000})});
    Json rows = report_json(outcome)["connections"][0]["resultsPerProcess"][0]["qpHistogram"];
    EXPECT_DOUBLE_EQ(rows[0]["bwGbSec"].get<double>(), 8.0);
    EXPECT_DOUBLE_EQ(rows[0]["relativeDeviation"].get<double>(), -50.0);
    EXPECT_DOUBLE_EQ(rows[1]["relativeDeviation"].get<double>(), 50.0);
    std::string text = text_report(outcome), bar;
    EXPECT_THAT(text,
                HasSubstr("--------------------- QP WORK DISTRIBUTION ---------------------\n"));
    for (int i = 0; i < 40; ++i) bar += "\u2588";
    EXPECT_THAT(text, HasSubstr("Qp num 1:  " + bar +
                                "     24.00 Gbit/sec  |  Relative deviation: 50.0%\n"));
    std::size_t at = text.find("Qp num 0:");
    std::string line = text.substr(at, text.find('\n', at) - at);
    // 13 cells of three bytes each: the unit stands at column 61.
    EXPECT_EQ(line.find(" Gbit/sec"), 61u + 13 * 2);
    EXPECT_THAT(line, HasSubstr("Relative deviation: -50.0%"));
}

TEST(Report, thresholds_decide_the_exit_code) {
    auto code = [](const Request& request, std::uint64_t iterations) {
        return outcome_of(plan_of(request), {counted(0, kSecond, {iterations})}).exit_code();
    };
    Request wish = {{"msg_size", "1000"}, {"bw_threshold", "8"}};
    EXPECT_EQ(code(wish, 1'000'000), kExitOk);
    EXPECT_EQ(code(wish, 999'999), kExitThreshold);
    ProcessResult slow = counted(0, kSecond, {3});
    for (int ns : {1000, 12'000, 90'000}) slow.latency.record(ns);
    Outcome lat = outcome_of(plan_of({{"metric", "lat"}, {"lat_threshold", "5.9"}}), {slow});
    EXPECT_EQ(lat.exit_code(), kExitThreshold);
    EXPECT_FALSE(report_json(lat)["connections"][0]["threshold"]["passed"].get<bool>());
    EXPECT_THAT(text_report(lat), HasSubstr("FAILED"));
    lat.plan.lat_threshold_us = 6.1;
    EXPECT_EQ(lat.exit_code(), kExitOk);
}

TEST(Report, corrupt_data_beats_a_missed_threshold_and_an_error_beats_both) {
    ProcessResult responder = counted(0, 0, {});
    responder.invalid = 2;
    responder.is_requester = false;
    Plan plan = plan_of(
        {{"verb", "send"}, {"validate", "true"}, {"warmup_time", "0"}, {"bw_threshold", "999999"}});
    Outcome outcome = outcome_of(plan, {counted(0, kSecond, {1})}, {responder});
    EXPECT_EQ(outcome.exit_code(), kExitCorrupt);
    Json connection = report_json(outcome)["connections"][0];
    EXPECT_EQ(connection["validationResults"]["invalidDataSampleCount"], 2);
    outcome.interrupted = true;
    EXPECT_EQ(outcome.exit_code(), kExitError);
    EXPECT_EQ(report_json(outcome)["status"], "error");
}

TEST(Report, validation_results_are_absent_when_validation_is_off) {
    Outcome outcome = outcome_of(plan_of({}), {counted(0, kSecond, {1})});
    EXPECT_FALSE(report_json(outcome)["connections"][0].contains("validationResults"));
}

TEST(Report, both_directions_are_directed_connections_and_one_pair) {
    Outcome outcome = outcome_of(plan_of({{"bidirectional", "true"}, {"msg_size", "1000"}}),
                                 {counted(0, kSecond, {1'000'000})});
    Direction back{"b", "mlx5_1", "a", "mlx5_0", {counted(0, kSecond, {2'000'000})}, {}, {}};
    outcome.directions.push_back(back);
    Json report = report_json(outcome);
    ASSERT_EQ(report["connections"].size(), 2u);
    EXPECT_EQ(report["connections"][1]["source"]["hostName"], "b");
    const Json& pair = report["aggregatedResults"]["bidirConnections"][0];
    EXPECT_DOUBLE_EQ(pair["bwGbSec"].get<double>(), 24.0);
    EXPECT_DOUBLE_EQ(pair["msgRateMpps"].get<double>(), 3.0);
    EXPECT_THAT(text_report(outcome), HasSubstr("Both directions together"));
    // A threshold is judged by direction, not by the sum.
    outcome.plan.bw_threshold_gbps = 10;
    EXPECT_EQ(outcome.exit_code(), kExitThreshold);
}

TEST(Report, an_outcome_survives_the_way_to_the_server) {
    ProcessResult result = counted(0, kSecond, {1, 2});
    result.core = 3;
    result.latency.record(77);
    Outcome outcome = outcome_of(plan_of({}), {result});
    outcome.directions[0].intervals.add({5, 1});
    Result<Outcome> back =
        read_outcome(outcome.plan, Json::parse(to_text(outcome_message(outcome))));
    ASSERT_TRUE(back.ok()) << back.error().text;
    EXPECT_EQ(report_json(*back), report_json(outcome));
    EXPECT_FALSE(read_outcome(outcome.plan, Json::object()).ok());
}

TEST(Report, host_names_that_are_not_utf8_do_not_break_the_json) {
    Outcome outcome = outcome_of(plan_of({}), {counted(0, kSecond, {1})});
    outcome.client["host"] = "bad\xff\"name";
    EXPECT_FALSE(Json::parse(to_text(report_json(outcome)), nullptr, false).is_discarded());
}

TEST(Report, a_report_that_cannot_be_written_says_so_and_leaves_nothing) {
    Status status = write_report("/nonexistent/folder/report.json", Json::object());
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().text, HasSubstr("/nonexistent/folder/report.json"));
}

}  // namespace
}  // namespace rdmalab::perftest
