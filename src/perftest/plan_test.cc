#include "perftest/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "perftest/parameters.h"

namespace rdmalab::perftest {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

std::vector<std::string> errors_of(const Request& request) {
    auto planned = make_plan(request);
    if (auto* refusal = std::get_if<Refusal>(&planned)) return refusal->errors;
    return {};
}

Planned planned(const Request& request) {
    auto result = make_plan(request);
    if (auto* refusal = std::get_if<Refusal>(&result)) {
        ADD_FAILURE() << refusal->errors.front();
        return {};
    }
    return std::get<Planned>(result);
}

TEST(Plan, defaults_are_those_of_the_guide) {
    Plan plan = planned({}).plan;
    EXPECT_EQ(plan.transport, Transport::kRc);
    EXPECT_EQ(plan.operations.size(), 1u);
    EXPECT_EQ(plan.operations[0].verb, Verb::kWrite);
    EXPECT_EQ(plan.operations[0].size, 65536u);
    EXPECT_EQ(plan.metric, Metric::kBandwidth);
    EXPECT_EQ(plan.duration_s, 10);
    EXPECT_EQ(plan.warmup_s, 2);
    EXPECT_EQ(plan.end_margin_s, 0);
    EXPECT_EQ(plan.processes, 1u);
    EXPECT_EQ(plan.tx_depth, 128u);
    EXPECT_EQ(plan.rx_depth, 512u);
    EXPECT_EQ(plan.qp_timeout, 14);
}

TEST(Plan, several_processes_get_an_end_margin_so_the_bar_shows_four_seconds_more) {
    EXPECT_EQ(planned({{"num_processes", "4"}, {"duration", "30"}}).plan.total_seconds(), 34);
    EXPECT_EQ(planned({{"cores", "5-9"}}).plan.processes, 5u);
    EXPECT_EQ(planned({{"num_processes", "4"}, {"metric", "lat"}}).plan.end_margin_s, 0);
}

TEST(Plan, defaults_follow_the_verb_and_the_transport) {
    EXPECT_EQ(planned({{"verb", "atomic_fa"}}).plan.operations[0].size, 8u);
    EXPECT_EQ(planned({{"verb", "send"}, {"connection_type", "UD"}}).plan.operations[0].size,
              1024u);
    EXPECT_EQ(planned({{"msg_size", "8"}}).plan.post_list, 16u);
    EXPECT_EQ(planned({{"msg_size", "1M"}}).plan.post_list, 1u);
    Request big = {
        {"verb", "send"}, {"validate", "true"}, {"warmup_time", "0"}, {"msg_size", "8M"}};
    EXPECT_LE(planned(big).plan.rx_depth, 8u);
}

TEST(Plan, operations_carry_their_own_sizes) {
    Plan plan = planned({{"operations", "write:65536,send:4k,atomic_fa:8"}}).plan;
    ASSERT_EQ(plan.operations.size(), 3u);
    EXPECT_EQ(plan.operations[1].size, 4096u);
    EXPECT_EQ(plan.bytes_per_iteration(), 65536u + 4096 + 8);
    EXPECT_EQ(plan.receives_per_iteration(), 1u);
    EXPECT_STREQ(plan.latency_definition(), "completion_time");
}

TEST(Plan, latency_definitions_say_what_is_measured) {
    auto definition = [](const Request& request) {
        return std::string(planned(request).plan.latency_definition());
    };
    EXPECT_EQ(definition({{"metric", "lat"}}), "half_round_trip");
    EXPECT_EQ(definition({{"metric", "lat"}, {"verb", "read"}}), "completion_time");
    EXPECT_EQ(definition({{"metric", "lat"}, {"lat_mode", "one_way"}}), "local_completion");
}

struct Bad {
    const char* flag;
    const char* value;
};

// Every kind of wrong value: the message names the flag and shows the value.
constexpr Bad kBadValues[] = {
    {"msg_size", ""},
    {"msg_size", "-1"},
    {"msg_size", "1e3"},
    {"msg_size", "0x10"},
    {"msg_size", "64q"},
    {"msg_size", "3G"},
    {"msg_size", "99999999999"},
    {"msg_size", " 8"},
    {"msg_size", "8 "},
    {"msg_size", "1.5k"},
    {"duration", ""},
    {"duration", "0"},
    {"duration", "-5"},
    {"duration", "1e3"},
    {"duration", "abc"},
    {"duration", "inf"},
    {"duration", "99999999999"},
    {"iterations", "0"},
    {"iterations", "-1"},
    {"iterations", "1k"},
    {"qps", "0"},
    {"qps", "16385"},
    {"qps", "1.5"},
    {"tx_depth", "0"},
    {"tx_depth", "65537"},
    {"rx_depth", "0"},
    {"gid_index", "256"},
    {"gid_index", "-1"},
    {"service_level", "16"},
    {"traffic_class", "256"},
    {"traffic_class", "300"},
    {"qp_timeout", "32"},
    {"retry_count", "8"},
    {"start_psn", "16777216"},
    {"start_psn", "0xff"},
    {"mtu", "1500"},
    {"mtu", "0"},
    {"mtu", ""},
    {"connection_type", "XRC"},
    {"connection_type", "rc"},
    {"connection_type", ""},
    {"verb", "writ"},
    {"verb", "write|read"},
    {"metric", "latency"},
    {"lat_mode", "two_way"},
    {"warmup_time", "-1"},
    {"warmup_iterations", "x"},
    {"end_margin", "2s"},
    {"bw_threshold", "fast"},
    {"lat_threshold", "-0.1"},
    {"num_processes", "0"},
    {"num_processes", "1025"},
    {"cores", "0-"},
    {"cores", "5,5"},
    {"cores", "9-5"},
    {"exclude_cores", "a"},
    {"mem_type", "gpu"},
    {"ph", "4"},
    {"tph_mem", "xx"},
    {"rdma_driver", "ofi"},
    {"engine", "gpu"},
    {"operations", "write"},
    {"operations", "write:8,"},
    {"operations", ""},
    {"operations", "fly:8"},
    {"report_interval", "1,5"},
    {"post_list", "0"},
    {"cq_mod", "0"},
    {"inline_size", "-1"},
    {"rate_limit", "1g"},
    {"device", ""},
    {"ib_port", "0"},
    {"ib_port", "257"},
    {"gid_family", "ipv5"},
    {"cuda", "-1"},
    {"cc_group_hints", "a,b"},
};

TEST(Plan, every_bad_value_is_refused_by_flag_and_value) {
    static_assert(std::size(kBadValues) >= 60);
    for (const Bad& bad : kBadValues) {
        std::vector<std::string> errors = errors_of({{bad.flag, bad.value}});
        EXPECT_THAT(errors, Contains(AllOf(HasSubstr(std::string("--") + bad.flag),
                                           HasSubstr(std::string("'") + bad.value + "'"))))
            << bad.flag << " " << bad.value;
    }
}

struct Conflict {
    Request request;
    const char* said;
};

TEST(Plan, what_does_not_go_together_is_refused_by_name) {
    const Conflict conflicts[] = {
        {{{"bidirectional", "true"}, {"verb", "read"}}, "--bidirectional with read"},
        {{{"msg_size", "8"}, {"operations", "write:8"}}, "--msg_size with --operations"},
        {{{"verb", "read"}, {"operations", "write:8"}}, "--verb with --operations"},
        {{{"metric", "lat"}, {"warmup_iterations", "5"}}, "--warmup_iterations with -m lat"},
        {{{"metric", "lat"}, {"validate", "true"}}, "--validate with -m lat"},
        {{{"validate", "true"}, {"verb", "send"}}, "--validate with warm-up"},
        {{{"validate", "true"},
          {"verb", "send"},
          {"warmup_time", "0"},
          {"rx_depth", "4"},
          {"tx_depth", "8"}},
         "--rx_depth"},
        {{{"validate", "true"}, {"warmup_time", "0"}}, "--validate with a verb other than send"},
        {{{"warmup_time", "1"}, {"warmup_iterations", "5"}},
         "--warmup_time with --warmup_iterations"},
        {{{"metric", "lat"}, {"end_margin", "1"}}, "--end_margin with -m lat"},
        {{{"tph_core_id", "0"}}, "--tph_core_id and --tph_mem"},
        {{{"tph_mem", "pm"}}, "--tph_core_id and --tph_mem"},
        {{{"tph_mem", "pm"}, {"tph_core_id", "0"}}, "need --ph"},
        {{{"ph", "1"}, {"mem_type", "cuda_data_direct"}}, "TPH and Data Direct"},
        {{{"engine", "gpunetio"}}, "needs --rdma_driver dv"},
        {{{"engine", "gpunetio"}, {"rdma_driver", "dv"}}, "needs GPU memory"},
        {{{"engine", "gpunetio"}, {"rdma_driver", "dv"}, {"mem_type", "cuda"}, {"verb", "send"}},
         "only write"},
        {{{"engine", "gpunetio"},
          {"rdma_driver", "dv"},
          {"mem_type", "cuda"},
          {"bidirectional", "true"}},
         "one direction"},
        {{{"use_ece", "true"}, {"rdma_driver", "dv"}}, "--use_ece with --rdma_driver dv"},
        {{{"use_ece", "true"}, {"connection_type", "UC"}}, "--use_ece with --connection_type"},
        {{{"verb", "atomic_fa"}, {"rdma_driver", "dv"}}, "--rdma_driver dv with atomics"},
        {{{"verb", "atomic_cs"}, {"connection_type", "UC"}}, "only RC"},
        {{{"verb", "atomic_cs"}, {"msg_size", "16"}}, "8 bytes"},
        {{{"verb", "atomic_cs"}, {"mem_type", "nullmr"}}, "nullmr"},
        {{{"metric", "lat"}, {"report_interval", "1"}}, "--report_interval with -m lat"},
        {{{"cc_group_hints", "/f,8,1,1"}}, "dv driver"},
        {{{"duration", "5"}, {"iterations", "5"}}, "--duration with --iterations"},
        {{{"run_infinitely", "true"}, {"duration", "5"}}, "has no end"},
        {{{"metric", "lat"}, {"lat_mode", "one_way"}, {"verb", "read"}}, "one_way with read"},
        {{{"metric", "lat"}, {"lat_mode", "one_way"}, {"bidirectional", "true"}},
         "only the requester"},
        {{{"lat_mode", "one_way"}}, "without -m lat"},
        {{{"metric", "lat"}, {"qps", "2"}}, "one queue pair"},
        {{{"cores", "1,2"}, {"num_processes", "3"}}, "2 cores for 3 processes"},
        {{{"cores", "1,2"}, {"exclude_cores", "2"}}, "core 2"},
        {{{"connection_type", "UD"}, {"verb", "write"}}, "only send"},
        {{{"connection_type", "UD"}, {"verb", "send"}, {"msg_size", "8k"}}, "MTU"},
        {{{"connection_type", "UC"}, {"verb", "read"}}, "only RC"},
        {{{"metric", "lat"}, {"msg_size", "0"}}, "write_imm"},
        {{{"metric", "lat"}, {"mem_type", "device"}}, "write_imm"},
        {{{"post_list", "200"}}, "--post_list"},
        {{{"server_device", "x"}}, "without -n"},
        {{{"cuda_device_id", "0"}}, "cuda memory type"},
        {{{"cuda", "0"}, {"mem_type", "host"}}, "--cuda with --mem_type"},
        {{{"gid_index", "1"}, {"gid_family", "ipv4"}}, "--gid_index with --gid_family"},
        {{{"metric", "lat"}, {"bw_threshold", "1"}}, "--lat_threshold"},
        {{{"lat_threshold", "1"}}, "--bw_threshold"},
    };
    for (const Conflict& conflict : conflicts) {
        EXPECT_THAT(errors_of(conflict.request), Contains(HasSubstr(conflict.said)));
    }
}

TEST(Plan, a_conflict_shows_the_values_that_were_given) {
    EXPECT_THAT(errors_of({{"post_list", "200"}}), Contains(HasSubstr("(given: --post_list 200)")));
}

TEST(Plan, all_errors_are_shown_together) {
    EXPECT_EQ(errors_of({{"qps", "0"}, {"mtu", "1500"}, {"verb", "fly"}}).size(), 3u);
}

// What the server is told leads to the same plan; a random walk through legal and illegal options.
TEST(Plan, a_scenario_leads_to_the_same_plan_again) {
    const std::pair<const char*, std::vector<const char*>> choices[] = {
        {"verb", {"write", "read", "send", "write_imm", "send_imm", "atomic_fa"}},
        {"connection_type", {"RC", "UC", "UD"}},
        {"metric", {"bw", "lat"}},
        {"msg_size", {"0", "1", "8", "1000", "64k", "8M"}},
        {"operations", {"write:64k,send:4k", "read:1,atomic_cs:8"}},
        {"qps", {"1", "3", "64"}},
        {"tx_depth", {"1", "7", "128", "1024"}},
        {"rx_depth", {"1", "9", "512"}},
        {"post_list", {"1", "3", "16"}},
        {"cq_mod", {"1", "5", "64"}},
        {"duration", {"0.5", "10", "3600"}},
        {"iterations", {"1", "1000"}},
        {"run_infinitely", {"true"}},
        {"bidirectional", {"true"}},
        {"validate", {"true"}},
        {"warmup_time", {"0", "1.25"}},
        {"warmup_iterations", {"0", "10"}},
        {"num_processes", {"1", "4"}},
        {"lat_mode", {"one_way", "full_round_trip"}},
        {"start_psn", {"0", "16777215"}},
        {"mtu", {"256", "4096"}},
        {"use_ece", {"true"}},
        {"rate_limit", {"0", "2.5"}},
        {"gid_family", {"ipv4", "ipv6"}},
    };
    Prng prng(11);
    int legal = 0;
    for (int round = 0; round < 20'000; ++round) {
        Request request;
        for (std::uint64_t i = prng.below(7); i > 0; --i) {
            const auto& [name, values] = choices[prng.below(std::size(choices))];
            request[name] = values[prng.below(values.size())];
        }
        auto first = make_plan(request);
        if (auto* refusal = std::get_if<Refusal>(&first)) {
            for (const std::string& error : refusal->errors) EXPECT_THAT(error, HasSubstr("--"));
            continue;
        }
        ++legal;
        const Plan& plan = std::get<Planned>(first).plan;
        Result<Request> back = request_of(Json::parse(scenario_json(plan).dump()));
        ASSERT_TRUE(back.ok()) << back.error().text;
        EXPECT_EQ(scenario_json(planned(*back).plan), scenario_json(plan));
        EXPECT_EQ(plan.block % plan.post_list, 0u);
        EXPECT_LE(plan.block * plan.operations.size(), plan.tx_depth);
    }
    EXPECT_GT(legal, 2000);
}

TEST(Plan, the_smallest_threshold_survives_the_way_to_the_server) {
    Result<Request> request = request_of({{"bwThreshold", 1e-6}});
    ASSERT_TRUE(request.ok()) << request.error().text;
    EXPECT_EQ(planned(*request).plan.bw_threshold_gbps, 1e-6);
}

TEST(Plan, an_unknown_field_is_refused_with_the_nearest_name) {
    Result<Request> request = request_of({{"msgsize", 8}});
    ASSERT_FALSE(request.ok());
    EXPECT_THAT(request.error().text, HasSubstr("did you mean 'msgSize'"));
    EXPECT_FALSE(request_of({{"msgSize", true}}).ok());
    EXPECT_FALSE(request_of({{"dataValidation", 1}}).ok());
    EXPECT_FALSE(request_of({{"trafficDirection", "SIDEWAYS"}}).ok());
    EXPECT_FALSE(request_of(Json::array()).ok());
}

}  // namespace
}  // namespace rdmalab::perftest
