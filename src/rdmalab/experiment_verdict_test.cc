#include "rdmalab/experiment_verdict.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "rdmalab/experiment_view.h"

namespace rdmalab::launcher {
namespace {

constexpr double kBegin = 1000, kSteady = 1030, kEnd = 1045;

// A run as it should be: shares go from 32 to 38 in the third second.
ExperimentFacts good_run() {
    ExperimentFacts facts;
    facts.traffic_begin_s = kBegin;
    facts.steady_begin_s = kSteady;
    facts.traffic_end_s = kEnd;
    facts.ingress_lines = {"steer started (role=ingress, path0=0.025% path1=0.05%)"};
    facts.pcc_lines = {
        "EGRESS_BUCKET_DISPATCH ready: meta.u32[4] bucket -> changeable path forward",
        "Classify random-bucket pipe ready: HASH/random writes bucket to meta.u32[4]",
        "egress assigned counters: path0=0 path1=0 ratio=32:32 buckets",
        "RDMA-CM REQ grouping: sender QPN 0x000012 receiver IP=0x0a000001 -> path0",
        "RDMA-CM REQ grouping: sender QPN 0x000013 receiver IP=0x0a00000b -> path1"};
    facts.flow_gigabits_per_second = {5, 5.1};
    for (double second = 1; kBegin + second <= kEnd; ++second) {
        const double share = second < 3 ? 32 : 38, before = second < 4 ? 32 : 38;
        EgressSample egress;
        egress.time_s = kBegin + second;
        egress.applied = {share, 64 - share};
        egress.packets = {1000 * before, 1000 * (64 - before)};
        egress.updates = second == 3 ? 6 : 0;
        egress.flows = {{0x12, 0, 20'000}, {0x13, 1, 14'000}};
        facts.egress.push_back(egress);
        IngressSample ingress;
        ingress.time_s = kBegin + second;
        ingress.packets = egress.packets;
        ingress.gigabits_per_second = {before / 6, (64 - before) / 6};
        ingress.marked = {before, 2 * (64 - before)};
        facts.ingress.push_back(ingress);
    }
    return facts;
}

const ExperimentExpectation kExpected{.percents = {0.025, 0.05}};

std::vector<std::string> failed(const ExperimentFacts& facts,
                                const ExperimentExpectation& expected = kExpected) {
    std::vector<std::string> names;
    for (const Criterion& one : judge(facts, expected)) {
        if (!one.passed) names.push_back(one.name);
    }
    return names;
}
using Names = std::vector<std::string>;

TEST(ExperimentVerdict, a_good_run_passes) {
    EXPECT_EQ(failed(good_run()), Names{});
    EXPECT_TRUE(all_passed(judge(good_run(), kExpected)));
}

TEST(ExperimentVerdict, analytic_shares_follow_the_square_root_law) {
    EXPECT_NEAR(analytic_shares({0.025, 0.05}, 64)[0], 37.5, 0.1);
    EXPECT_NEAR(analytic_shares({0.05, 0.025}, 64)[0], 26.5, 0.1);
    EXPECT_NEAR(analytic_shares({1, 1}, 64)[0], 32, 0.001);
    EXPECT_NEAR(analytic_shares({0, 0.05}, 64)[0], 61, 0.001);
    EXPECT_NEAR(analytic_shares({0.05, 0}, 64)[0], 3, 0.001);
    EXPECT_NEAR(analytic_shares({0, 0}, 64)[0], 32, 0.001);
    EXPECT_NEAR(analytic_shares({1, 1, 1, 1}, 64)[3], 16, 0.001);
}

TEST(ExperimentVerdict, each_criterion_can_fail) {
    ExperimentFacts facts = good_run();
    std::swap(facts.pcc_lines[0], facts.pcc_lines[1]);
    EXPECT_EQ(failed(facts), Names{"egress pipeline"}) << "the order counts";

    facts = good_run();
    facts.ingress_lines.clear();
    EXPECT_EQ(failed(facts), Names{"ingress pipeline"});

    facts = good_run();
    facts.pcc_lines.pop_back();
    EXPECT_EQ(failed(facts), Names{"flows mapped to paths"});

    facts = good_run();
    for (EgressSample& sample : facts.egress) sample.pending_map = 1;
    EXPECT_EQ(failed(facts), Names{"pending-map=0"});

    facts = good_run();
    facts.sender_troubles = {"'ib_write_bw' ended with 1"};
    EXPECT_EQ(failed(facts), Names{"senders and receivers"});

    facts = good_run();
    facts.flow_gigabits_per_second = {5, 7};
    EXPECT_EQ(failed(facts), Names{"flow0/flow1 throughput"});

    facts = good_run();
    facts.pcc_lines[2] = "egress assigned counters: path0=0 path1=0 ratio=33:31 buckets";
    EXPECT_EQ(failed(facts), Names{"first shares"});
    facts.pcc_lines.insert(facts.pcc_lines.begin() + 2,
                           "PCC path share applied: path0 32->33/64 path1=31/64");
    EXPECT_EQ(failed(facts), Names{}) << "a program that starts in the middle of traffic";

    facts = good_run();
    facts.losses["p0.dropped"] = 1;
    EXPECT_EQ(failed(facts), Names{"share updates"});
    ExperimentExpectation lossy = kExpected;
    lossy.losses_allowed = true;
    EXPECT_EQ(failed(facts, lossy), Names{});

    facts = good_run();
    facts.egress.back().failures_total = 1;
    EXPECT_EQ(failed(facts), Names{"share updates"});
}

TEST(ExperimentVerdict, shares_that_stay_fail_twice) {
    ExperimentFacts facts = good_run();
    for (EgressSample& sample : facts.egress) {
        sample.applied = {32, 32};
        sample.packets = {32'000, 32'000};
    }
    EXPECT_EQ(failed(facts), (Names{"path 0's share moves", "path 0's steady share"}));
}

TEST(ExperimentVerdict, marks_and_throughput_must_fit) {
    ExperimentFacts facts = good_run();
    for (IngressSample& sample : facts.ingress) sample.marked[1] *= 1.5;
    EXPECT_EQ(failed(facts), Names{"(CE1/bw1)/(CE0/bw0)"});
    facts = good_run();
    for (IngressSample& sample : facts.ingress) {
        std::swap(sample.gigabits_per_second[0], sample.gigabits_per_second[1]);
        std::swap(sample.marked[0], sample.marked[1]);
    }
    EXPECT_EQ(failed(facts), (Names{"path0/path1 throughput", "(CE1/bw1)/(CE0/bw0)"}));
}

TEST(ExperimentVerdict, packets_must_follow_the_buckets_within_chance) {
    ExperimentFacts facts = good_run();
    for (EgressSample& sample : facts.egress) {
        sample.packets[0] *= 1.05;
        sample.packets[1] *= 0.95;
    }
    EXPECT_EQ(failed(facts), Names{"packets follow buckets"});
}

TEST(ExperimentVerdict, a_run_without_records_fails_and_does_not_crash) {
    EXPECT_FALSE(all_passed(judge({}, kExpected)));
}

TEST(ExperimentFacts, are_read_from_records) {
    const auto ingress = read_ingress(Json::parse(
        R"({"type":"ingress","time":5,"interval":1.5,"paths":[
            {"packets_delta":10,"gbps":1.5,"marked_delta":2,"percent":0.025},
            {"packets_delta":20,"gbps":2.5,"marked_delta":3,"percent":0.05}]})"));
    ASSERT_TRUE(ingress);
    EXPECT_EQ(ingress->packets, (std::vector<double>{10, 20}));
    EXPECT_EQ(ingress->total_gigabits_per_second(), 4);
    const auto egress = read_egress(Json::parse(
        R"({"type":"egress","time":5,"interval":1,"buckets":64,"applied":[38,26],"target":[39,25],
            "pending_map":1,"updates":6,"failures_total":0,"paths":[{"packets_delta":1},{}],
            "flows":[{"qpn":18,"average":1000,"path":1},{"qpn":19,"average":5}]})"));
    ASSERT_TRUE(egress);
    EXPECT_EQ(egress->applied, (std::vector<double>{38, 26}));
    EXPECT_EQ(egress->flows[0].path, 1u);
    EXPECT_FALSE(egress->flows[1].path);
    EXPECT_FALSE(read_egress(Json::parse(R"({"type":"ingress"})")));
    EXPECT_FALSE(read_ingress(Json::parse("[1]")));
    EXPECT_TRUE(read_ingress(Json::parse(R"({"type":"ingress","paths":"no"})")));
}

TEST(ExperimentView, fits_the_terminal_and_a_line) {
    const ExperimentMoment moment{12.3, 45, "percentages changed", {5, 5.25}};
    const ExperimentFacts facts = good_run();
    for (std::size_t width : {60u, 80u, 100u}) {
        for (const std::string& line : print_moment_picture(moment, facts, width)) {
            EXPECT_LE(line.size(), width);
        }
    }
    const std::string line = print_moment_line(moment, facts);
    EXPECT_NE(line.find("share 38:26  pending 0"), std::string::npos) << line;
    EXPECT_NE(line.find("flows 5.00 5.25 Gb/s  percentages changed"), std::string::npos) << line;
    EXPECT_FALSE(print_moment_picture({}, {}, 80).empty());
    EXPECT_FALSE(print_moment_line({}, {}).empty());
}

}  // namespace
}  // namespace rdmalab::launcher
