#include "perftest/scenario/scenario.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

namespace rdmalab::perftest {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::vector<std::string> errors_of(const ScenarioWords& words) {
    auto planned = plan_scenario(words);
    if (auto* refusal = std::get_if<Refusal>(&planned)) return refusal->errors;
    return {"accepted"};
}
std::vector<std::string> errors_of(const std::string& json) {
    return errors_of(words_of_json(json, "s.json"));
}
std::vector<std::string> errors_of_flags(Request request) {
    request.try_emplace("server", "node[1-4]");
    request.try_emplace("device", "mlx5_0");
    request.try_emplace("traffic_pattern", "a2a");
    return errors_of(words_of_flags(request));
}

Scenario planned(const ScenarioWords& words) {
    auto out = plan_scenario(words);
    if (auto* refusal = std::get_if<Refusal>(&out)) {
        ADD_FAILURE() << refusal->errors.front();
        Scenario empty;
        empty.tests.emplace_back();
        return empty;
    }
    return std::get<Scenario>(out);
}
Scenario planned(const std::string& json) { return planned(words_of_json(json, "s.json")); }

std::string flat(const std::string& fields, const std::string& host = "node[1-4]",
                 const std::string& device = "mlx5_0") {
    return fmt::format(R"({{"testNodes": [{{"hostName": "{}", "deviceName": "{}"}}], {}}})", host,
                       device, fields);
}

std::vector<std::string> labels(const ScenarioTest& test) {
    std::vector<std::string> out;
    for (const TestEndpoint& each : test.endpoints) out.push_back(each.label());
    return out;
}

class TemporaryFile {
public:
    explicit TemporaryFile(const std::string& text) {
        char path[] = "/tmp/rdmalab-scenario-XXXXXX";
        int fd = mkstemp(path);
        path_ = path;
        std::ofstream(path_) << text;
        close(fd);
    }
    ~TemporaryFile() { unlink(path_.c_str()); }
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

TEST(Scenario, hosts_and_devices_multiply_host_by_host) {
    Scenario scenario = planned(flat(R"("trafficPattern": "A2A")", "host[1-2]", "mlx5_[0-1]"));
    EXPECT_EQ(
        labels(scenario.tests[0]),
        (std::vector<std::string>{"host1:mlx5_0", "host1:mlx5_1", "host2:mlx5_0", "host2:mlx5_1"}));
    EXPECT_EQ(scenario.hosts(), (std::vector<std::string>{"host1", "host2"}));
    EXPECT_EQ(scenario.connections(), 12u);
}

TEST(Scenario, devices_and_gpus_are_paired_by_position) {
    auto gpus = [](const std::string& device, const std::string& gpu) {
        ScenarioWords words = words_of_flags({{"server", "h[1-2]"},
                                              {"device", device},
                                              {"cuda_device_id", gpu},
                                              {"mem_type", "cuda"},
                                              {"traffic_pattern", "ring"}});
        return labels(planned(words).tests[0]);
    };
    EXPECT_EQ(
        gpus("mlx5_[0-1]", "[1,0]"),
        (std::vector<std::string>{"h1:mlx5_0:1", "h1:mlx5_1:0", "h2:mlx5_0:1", "h2:mlx5_1:0"}));
    EXPECT_EQ(gpus("mlx5_[0-3]", "[0,0,1,1]")[3], "h1:mlx5_3:1");
    EXPECT_EQ(gpus("mlx5_[0-1]", "2")[1], "h1:mlx5_1:2");
    EXPECT_THAT(errors_of_flags(
                    {{"device", "mlx5_[0-2]"}, {"cuda_device_id", "[0,1]"}, {"mem_type", "cuda"}}),
                Contains(HasSubstr("2 GPUs for 3 devices")));
}

TEST(Scenario, scenarios_have_an_end_margin_and_the_defaults_of_the_command_line) {
    Scenario scenario = planned(flat(R"("trafficPattern": "RING")"));
    EXPECT_EQ(scenario.tests[0].plan.end_margin_s, 2);
    EXPECT_EQ(scenario.tests[0].plan.total_seconds(), 14);
    EXPECT_EQ(scenario.tests[0].name, "Test 1");
    Scenario latency = planned(flat(R"("trafficPattern": "RING", "metric": "lat")"));
    EXPECT_EQ(latency.tests[0].plan.end_margin_s, 0);
}

// The same test as flags and as JSON.
TEST(Scenario, flags_and_json_make_the_same_plan) {
    struct Row {
        Request flags;
        const char* json;
    };
    const Row rows[] = {
        {{{"traffic_pattern", "a2a"},
          {"msg_size", "1024"},
          {"qps", "10"},
          {"duration", "60"},
          {"traffic_partition", "railed"}},
         R"("trafficPattern": "ALL_TO_ALL", "msgSize": 1024, "qps": 10, "duration": 60,
            "trafficPartition": "RAILED")"},
        {{{"traffic_pattern", "bisection"},
          {"bidirectional", "true"},
          {"verb", "send"},
          {"iterations", "500"},
          {"warmup_iterations", "10"}},
         R"("trafficPattern": "B", "trafficDirection": "BIDIR", "verb": "send",
            "iterations": 500, "warmupIterations": 10)"},
        {{{"traffic_pattern", "o2m"},
          {"dual_unidir", "true"},
          {"metric", "lat"},
          {"lat_threshold", "5.5"}},
         R"("trafficPattern": "one_to_many", "trafficDirection": "DUAL_UNIDIR", "metric": "lat",
            "latThreshold": 5.5)"},
        {{{"traffic_pattern", "a2a"},
          {"iteration_sync", "true"},
          {"iterations", "9"},
          {"qps", "2"},
          {"validate", "true"}},
         R"("trafficPattern": "A2A", "iterationSync": true, "iterations": 9, "qps": 2,
            "dataValidation": true)"},
        {{{"traffic_pattern", "a2a"}, {"peer_shifting", "true"}, {"cores", "1-2"}},
         R"("trafficPattern": "A2A", "peerShifting": true, "cores": "1-2")"},
        {{{"traffic_pattern", "ring"},
          {"operations", "write:64k,send:64"},
          {"tx_depth", "64"},
          {"mtu", "1024"},
          {"qp_timeout", "18"},
          {"gid_index", "3"},
          {"bw_threshold", "90"}},
         R"("trafficPattern": "RING", "operations": "write:64k,send:64", "txDepth": 64,
            "mtu": 1024, "qpTimeOut": 18, "gidIndex": 3, "bwThreshold": 90)"},
    };
    for (const Row& row : rows) {
        Request flags = row.flags;
        flags["server"] = "node[1-4]";
        flags["device"] = "mlx5_[0,1]";
        Scenario from_flags = planned(words_of_flags(flags));
        Scenario from_json = planned(flat(row.json, "node[1-4]", "mlx5_[0,1]"));
        EXPECT_EQ(to_text(scenario_json(from_flags)), to_text(scenario_json(from_json)));
        EXPECT_EQ(from_flags.connections(), from_json.connections()) << row.json;
    }
}

// Reproducibility: the scenario in a report can be run again.
TEST(Scenario, the_scenario_of_a_report_is_a_scenario) {
    for (const char* fields :
         {R"("trafficPattern": "A2A", "cores": [1, 2], "gidIndex": 1)",
          R"("trafficPattern": "RING", "metric": "lat", "verb": "send", "msgSize": 8)",
          R"("trafficPattern": "A2A", "iterationSync": true, "iterations": 3)",
          R"("trafficPattern": "B", "trafficDirection": "BIDIR", "rateLimit": 0.5)",
          R"("trafficPattern": "A2A", "peerShifting": true, "trafficPartition": "REMOTE")"}) {
        Json json = scenario_json(planned(flat(fields)));
        EXPECT_EQ(to_text(scenario_json(planned(to_text(json)))), to_text(json));
    }
}

TEST(Scenario, connections_can_be_listed) {
    Scenario scenario = planned(R"({"connections": [
        {"source": {"hostName": "a", "deviceName": "d0"},
         "destination": {"hostName": "b", "deviceName": "d0"}},
        {"source": {"hostName": "a", "deviceName": "d0"},
         "destination": {"hostName": "c", "deviceName": "d1", "gidIndex": 3}}]})");
    const ScenarioTest& test = scenario.tests[0];
    ASSERT_EQ(test.connections.size(), 2u);
    EXPECT_EQ(test.endpoints.size(), 3u);
    EXPECT_EQ(test.endpoints[test.connections[1].destination].label(), "c:d1");
    EXPECT_EQ(test.side_of(test.endpoints[test.connections[1].destination]).gid_index, 3);
    EXPECT_FALSE(test.side_of(test.endpoints[0]).gid_index);
    Scenario zipped = planned(R"({"connections": [
        {"source": {"hostName": "a[1-3]", "deviceName": "d"},
         "destination": {"hostName": "b[1-3]", "deviceName": "d"}}]})");
    EXPECT_EQ(zipped.connections(), 3u);
    EXPECT_THAT(errors_of(R"({"connections": [
        {"source": {"hostName": "a[1-3]", "deviceName": "d"},
         "destination": {"hostName": "b[1-2]", "deviceName": "d"}}]})"),
                Contains(HasSubstr("2 endpoints for 3 sources")));
}

TEST(Scenario, nodes_may_differ_in_their_side_but_not_in_the_test) {
    Scenario scenario = planned(R"({"trafficPattern": "RING", "testNodes": [
        {"hostName": "a", "deviceName": "d", "gidIndex": 1, "cores": "2"},
        {"hostName": "b", "deviceName": "d", "cores": 3}]})");
    EXPECT_EQ(scenario.tests[0].side_of(scenario.tests[0].endpoints[0]).gid_index, 1);
    EXPECT_EQ(scenario.tests[0].side_of(scenario.tests[0].endpoints[1]).cores,
              (std::vector<int>{3}));
    EXPECT_THAT(errors_of(R"({"trafficPattern": "RING", "testNodes": [
        {"hostName": "a", "deviceName": "d"}, {"hostName": "b", "deviceName": "d", "cores": "1-2"}
        ]})"),
                Contains(HasSubstr("testNodes[1].cores: 2 processes here, 1 at the first node")));
}

TEST(Scenario, all_errors_come_at_once_with_path_and_value) {
    std::vector<std::string> errors = errors_of(R"({"tests": [
        {"testNodes": [{"hostName": "node[3-1]", "deviceName": "d"}], "trafficPattern": "STAR",
         "msgSize": "64q"},
        {"testNodes": [{"hostName": "a"}], "trafficPattern": "RING", "qps": 0, "bogus": 1},
        {"trafficPattern": "RING"}]})");
    EXPECT_THAT(errors, Contains(HasSubstr("s.json: tests[0].testNodes[0].hostName: range '3-1'")));
    EXPECT_THAT(errors, Contains(HasSubstr("s.json: tests[0].trafficPattern: expected one of")));
    EXPECT_THAT(errors, Contains(HasSubstr("s.json: tests[0].msgSize: expected bytes")));
    EXPECT_THAT(errors, Contains(HasSubstr("'64q'")));
    EXPECT_THAT(errors, Contains(HasSubstr("tests[1].testNodes[0].deviceName: expected the RDMA")));
    EXPECT_THAT(errors, Contains(HasSubstr("tests[1].qps: expected")));
    EXPECT_THAT(errors, Contains(HasSubstr("tests[1].bogus: unknown field")));
    EXPECT_THAT(errors, Contains(HasSubstr("tests[2]: expected testNodes")));
}

TEST(Scenario, contradictions_are_named_in_the_words_of_their_source) {
    auto one = [](const std::string& fields) { return errors_of(flat(fields)); };
    EXPECT_THAT(one(R"("trafficPattern": "A2A", "duration": 1, "iterations": 1)"),
                Contains(HasSubstr("duration with iterations: the window is a time or a count")));
    EXPECT_THAT(errors_of_flags({{"duration", "1"}, {"iterations", "1"}}),
                Contains(HasSubstr("--duration with --iterations")));
    EXPECT_THAT(one(R"("trafficPattern": "RING", "iterationSync": true, "iterations": 4)"),
                Contains(HasSubstr("iterationSync with a trafficPattern other than ALL_TO_ALL")));
    EXPECT_THAT(one(R"("trafficPattern": "A2A", "iterationSync": true)"),
                Contains(HasSubstr("iterationSync without iterations")));
    EXPECT_THAT(one(R"("trafficPattern": "A2A", "iterationSync": true, "iterations": 4,
                       "warmupTime": 1)"),
                Contains(HasSubstr("warm up by warmupIterations")));
    EXPECT_THAT(one(R"("trafficPattern": "A2A", "iterationSync": true, "iterations": 4,
                       "metric": "lat")"),
                Contains(HasSubstr("iterationSync with metric lat")));
    EXPECT_THAT(one(R"("trafficPattern": "A2A", "iterationSync": true, "iterations": 4,
                       "trafficDirection": "DUAL_UNIDIR")"),
                Contains(HasSubstr("iterationSync with trafficDirection DUAL_UNIDIR")));
    EXPECT_THAT(one(R"("trafficPattern": "RING", "peerShifting": true)"),
                Contains(HasSubstr("peerShifting with a trafficPattern other")));
    EXPECT_THAT(one(R"("trafficPattern": "A2A", "peerShifting": true,
                       "trafficDirection": "BIDIR")"),
                Contains(HasSubstr("peerShifting with trafficDirection BIDIR")));
    EXPECT_THAT(one(R"("trafficPattern": "A2A", "ptiniDatatype": "int8")"),
                Contains(HasSubstr("ptiniDatatype without ptiniFile")));
    EXPECT_THAT(one(R"("trafficPattern": "A2A", "runInfinitely": true)"),
                Contains(HasSubstr("runInfinitely in a scenario")));
    EXPECT_THAT(one(R"("trafficPattern": "A2A", "reportInterval": 1)"),
                Contains(HasSubstr("reportInterval in a scenario")));
    EXPECT_THAT(one(R"("trafficPattern": "A2A", "trafficDirection": "DUAL_UNIDIR",
                       "metric": "lat", "verb": "send", "latencyMode": "one_way")"),
                Contains(HasSubstr("latencyMode one_way with trafficDirection DUAL_UNIDIR")));
    EXPECT_THAT(errors_of_flags({{"bidirectional", "true"}, {"dual_unidir", "true"}}),
                Contains(HasSubstr("--bidirectional with --dual_unidir")));
    EXPECT_THAT(errors_of_flags({{"launch_server", "disable"}}),
                Contains(HasSubstr("--launch_server with --traffic_pattern")));
}

TEST(Scenario, tests_must_go_together) {
    std::string nodes = R"("testNodes": [{"hostName": "a[1-3]", "deviceName": "d"}],
                           "trafficPattern": "A2A")";
    EXPECT_THAT(
        errors_of("{" + nodes + R"(, "tests": [{"iterationSync": true, "iterations": 3}, {}]})"),
        Contains(HasSubstr("1 of 2 with iterationSync")));
    EXPECT_THAT(errors_of("{" + nodes + R"(, "tests": [{"peerShifting": true}, {}]})"),
                Contains(HasSubstr("1 of 2 with peerShifting")));
}

TEST(Scenario, a_million_endpoints_are_refused) {
    EXPECT_THAT(errors_of(flat(R"("trafficPattern": "RING")", "n[1-1000]", "d[1-1000]")),
                Contains(HasSubstr("more than 65536 endpoints")));
    EXPECT_THAT(errors_of(flat(R"("trafficPattern": "RING")", "n[1-1000000]")),
                Contains(HasSubstr("more than 65536 names")));
    EXPECT_THAT(errors_of(flat(R"("trafficPattern": "RING")", "n[1-1000][1-1000]")),
                Contains(HasSubstr("more than 65536 names")));
}

TEST(Scenario, nothing_left_odd_halves_and_rings_of_one_are_refused) {
    EXPECT_THAT(errors_of(flat(R"("trafficPattern": "A2A", "trafficPartition": "LOCAL")")),
                Contains(HasSubstr("ALL_TO_ALL makes 12, and partition LOCAL keeps none")));
    EXPECT_THAT(errors_of(flat(R"("trafficPattern": "BISECTION")", "n[1-3]")),
                Contains(HasSubstr("BISECTION needs an even number of endpoints, found 3")));
    EXPECT_THAT(errors_of(flat(R"("trafficPattern": "RING")", "n1")),
                Contains(HasSubstr("RING needs at least two endpoints, found 1")));
}

TEST(Scenario, sizes_of_pairs_come_from_a_file) {
    TemporaryFile file("[collective]\ncounts = {0, 8, 0, 4, 0, 2, 1, 1, 0}\n");
    std::string fields = fmt::format(R"("trafficPattern": "A2A", "ptiniFile": "{}")", file.path());
    Scenario scenario = planned(flat(fields, "n[1-3]"));
    const ScenarioTest& test = scenario.tests[0];
    ASSERT_EQ(test.connections.size(), 5u);
    EXPECT_EQ(test.plan_of(test.connections[0]).operations[0].size, 32u);
    EXPECT_EQ(test.sizes->skipped, 1u);
    EXPECT_THAT(errors_of(flat(fields, "n[1-4]")),
                Contains(HasSubstr("expected 4 times 4 values")));
    EXPECT_THAT(errors_of(flat(fields + R"(, "msgSize": 8)", "n[1-3]")),
                Contains(HasSubstr("ptiniFile with msgSize: the file has the sizes")));
    EXPECT_THAT(errors_of(flat(fields + R"(, "trafficDirection": "BIDIR")", "n[1-3]")),
                Contains(HasSubstr("ptiniFile with trafficDirection BIDIR")));
    EXPECT_THAT(errors_of(flat(fields + R"(, "ptiniDatatype": "floot32")", "n[1-3]")),
                Contains(HasSubstr("did you mean 'float32'?")));
    EXPECT_THAT(errors_of(flat(fields + R"(, "iterationSync": true, "iterations": 2,
                                            "bwThreshold": 3)",
                               "n[1-3]")),
                Contains(HasSubstr("bwThreshold with ptiniFile and iterationSync")));
}

TEST(Scenario, a_thousand_endpoints_are_planned_within_a_second) {
    auto begun = std::chrono::steady_clock::now();
    Scenario scenario =
        planned(flat(R"("trafficPattern": "A2A")", "node[0001-0256]", "mlx5_[0-3]"));
    auto took = std::chrono::steady_clock::now() - begun;
    EXPECT_EQ(scenario.connections(), 1024u * 1023);
    RecordProperty("milliseconds", static_cast<int>(took / std::chrono::milliseconds(1)));
    EXPECT_LT(took, std::chrono::seconds(5));
}

TEST(Scenario, the_hub_of_a_star_is_one_endpoint_and_said_so) {
    Scenario scenario = planned(flat(R"("trafficPattern": "O2M")", "n[1-2]", "mlx5_[0-1]"));
    EXPECT_EQ(scenario.connections(), 3u);
    EXPECT_THAT(scenario.notes, Contains(HasSubstr("n1:mlx5_0 alone is the hub")));
}

}  // namespace
}  // namespace rdmalab::perftest
