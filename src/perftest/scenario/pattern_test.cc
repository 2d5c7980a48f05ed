#include "perftest/scenario/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>

namespace rdmalab::perftest {
namespace {

using ::testing::HasSubstr;
using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

std::vector<TestEndpoint> endpoints(std::uint32_t hosts, std::uint32_t devices = 1) {
    std::vector<TestEndpoint> out;
    for (std::uint32_t h = 0; h < hosts; ++h) {
        for (std::uint32_t d = 0; d < devices; ++d) {
            out.push_back({"node" + std::to_string(h), "mlx5_" + std::to_string(d), {}, 0});
        }
    }
    return out;
}

std::vector<ScenarioConnection> wired(const Wiring& wiring, const std::vector<TestEndpoint>& list) {
    Result<std::vector<ScenarioConnection>> out = wire(wiring, list);
    if (!out.ok()) {
        ADD_FAILURE() << out.error().text;
        return {};
    }
    return *out;
}

std::size_t count(Pattern pattern, std::uint32_t hosts,
                  TrafficDirection direction = TrafficDirection::kUnidir) {
    return wired({.pattern = pattern, .direction = direction}, endpoints(hosts)).size();
}

Pairs pairs(const Wiring& wiring, const std::vector<TestEndpoint>& list) {
    Pairs out;
    for (const ScenarioConnection& each : wired(wiring, list)) {
        out.emplace_back(each.source, each.destination);
    }
    return out;
}

std::string refusal(const Wiring& wiring, const std::vector<TestEndpoint>& list) {
    Result<std::vector<ScenarioConnection>> out = wire(wiring, list);
    return out.ok() ? "accepted" : out.error().text;
}

TEST(Pattern, counts_are_those_of_the_guide) {
    EXPECT_EQ(count(Pattern::kOneToOne, 2), 1u);
    EXPECT_EQ(count(Pattern::kOneToMany, 11), 10u);
    EXPECT_EQ(count(Pattern::kManyToOne, 21), 20u);
    EXPECT_EQ(count(Pattern::kAllToAll, 16), 240u);
    EXPECT_EQ(count(Pattern::kAllToAll, 16, TrafficDirection::kDualUnidir), 240u);
    EXPECT_EQ(count(Pattern::kAllToAll, 16, TrafficDirection::kBidir), 120u);
    EXPECT_EQ(count(Pattern::kBisection, 20), 10u);
    EXPECT_EQ(count(Pattern::kRing, 8), 8u);
}

TEST(Pattern, each_pattern_joins_the_right_ends) {
    EXPECT_EQ(pairs({.pattern = Pattern::kOneToMany}, endpoints(3)), (Pairs{{0, 1}, {0, 2}}));
    EXPECT_EQ(pairs({.pattern = Pattern::kManyToOne}, endpoints(3)), (Pairs{{1, 0}, {2, 0}}));
    EXPECT_EQ(pairs({.pattern = Pattern::kRing}, endpoints(3)), (Pairs{{0, 1}, {1, 2}, {2, 0}}));
    EXPECT_EQ(pairs({.pattern = Pattern::kBisection}, endpoints(4)), (Pairs{{0, 2}, {1, 3}}));
    EXPECT_EQ(pairs({.pattern = Pattern::kAllToAll}, endpoints(3)),
              (Pairs{{0, 1}, {0, 2}, {1, 0}, {1, 2}, {2, 0}, {2, 1}}));
}

TEST(Pattern, dual_unidir_adds_the_way_back) {
    Wiring wiring{.pattern = Pattern::kOneToMany, .direction = TrafficDirection::kDualUnidir};
    EXPECT_EQ(pairs(wiring, endpoints(3)), (Pairs{{0, 1}, {1, 0}, {0, 2}, {2, 0}}));
    // A ring of two already goes both ways.
    wiring.pattern = Pattern::kRing;
    EXPECT_EQ(pairs(wiring, endpoints(2)).size(), 2u);
    wiring.direction = TrafficDirection::kBidir;
    EXPECT_EQ(pairs(wiring, endpoints(2)).size(), 1u);
}

TEST(Pattern, one_to_one_pairs_the_devices_of_two_hosts) {
    EXPECT_EQ(pairs({}, endpoints(2, 3)), (Pairs{{0, 3}, {1, 4}, {2, 5}}));
    EXPECT_THAT(refusal({}, endpoints(3)), HasSubstr("two hosts with as many devices each"));
    std::vector<TestEndpoint> uneven = endpoints(2, 2);
    uneven.pop_back();
    EXPECT_THAT(refusal({}, uneven), HasSubstr("found 3 endpoints"));
}

TEST(Pattern, partitions_keep_what_they_say) {
    Wiring railed{.pattern = Pattern::kAllToAll, .partition = Partition::kRailed};
    EXPECT_EQ(wired(railed, endpoints(16, 2)).size(), 2u * 240);
    for (const ScenarioConnection& each : wired(railed, endpoints(4, 2))) {
        EXPECT_EQ(each.source % 2, each.destination % 2);
        EXPECT_NE(each.source, each.destination);
    }
    Wiring local{.pattern = Pattern::kAllToAll, .partition = Partition::kLocal};
    EXPECT_EQ(wired(local, endpoints(3, 2)).size(), 6u);
    Wiring remote{.pattern = Pattern::kAllToAll, .partition = Partition::kRemote};
    EXPECT_EQ(wired(remote, endpoints(3, 2)).size(), 30u - 6);
}

TEST(Pattern, a_partition_that_keeps_nothing_is_an_error) {
    EXPECT_THAT(
        refusal({.pattern = Pattern::kAllToAll, .partition = Partition::kLocal}, endpoints(4)),
        HasSubstr("ALL_TO_ALL makes 12, and partition LOCAL keeps none"));
    EXPECT_THAT(
        refusal({.pattern = Pattern::kOneToOne, .partition = Partition::kRemote}, endpoints(1, 2)),
        HasSubstr("partition REMOTE keeps none"));
}

TEST(Pattern, rules_of_patterns) {
    EXPECT_THAT(refusal({.pattern = Pattern::kBisection}, endpoints(5)), HasSubstr("even number"));
    EXPECT_THAT(refusal({.pattern = Pattern::kRing}, endpoints(1)),
                HasSubstr("RING needs at least"));
    EXPECT_THAT(refusal({.pattern = Pattern::kOneToMany}, endpoints(1)), HasSubstr("at least two"));
    EXPECT_THAT(refusal({.pattern = Pattern::kAllToAll}, endpoints(5000)),
                HasSubstr("24995000 connections"));
}

TEST(Pattern, peer_shifting_meets_every_pair_once_with_one_peer_per_round) {
    Wiring wiring{.pattern = Pattern::kAllToAll, .peer_shifting = true};
    std::vector<ScenarioConnection> all = wired(wiring, endpoints(8));
    ASSERT_EQ(all.size(), 56u);
    std::set<std::pair<std::uint32_t, std::uint32_t>> met, sends, receives;
    for (const ScenarioConnection& each : all) {
        EXPECT_GE(each.phase, 1u);
        EXPECT_LE(each.phase, 7u);
        EXPECT_EQ(each.destination, (each.source + each.phase) % 8);
        EXPECT_TRUE(met.emplace(each.source, each.destination).second);
        EXPECT_TRUE(sends.emplace(each.phase, each.source).second);
        EXPECT_TRUE(receives.emplace(each.phase, each.destination).second);
    }
}

TEST(Pattern, a_partition_drops_rounds_of_peer_shifting_without_renumbering) {
    Wiring wiring{
        .pattern = Pattern::kAllToAll, .partition = Partition::kRailed, .peer_shifting = true};
    std::set<std::uint32_t> rounds;
    for (const ScenarioConnection& each : wired(wiring, endpoints(2, 2))) rounds.insert(each.phase);
    EXPECT_EQ(rounds, (std::set<std::uint32_t>{2}));
}

TEST(Pattern, endpoints_that_are_listed_twice_are_one) {
    std::vector<TestEndpoint> list = endpoints(2);
    list.push_back(list[0]);
    EXPECT_EQ(pairs({.pattern = Pattern::kManyToOne}, {list[1], list[0], list[0]}),
              (Pairs{{1, 0}}));
    EXPECT_EQ(pairs({.pattern = Pattern::kAllToAll}, list), (Pairs{{0, 1}, {0, 0}, {1, 0}}));
    list[2].gpu = 1;
    EXPECT_EQ(wired({.pattern = Pattern::kAllToAll}, list).size(), 6u);
}

TEST(Pattern, every_spelling_is_understood) {
    for (const char* word : {"ALL_TO_ALL", "all_to_all", "a2a", "A2A", "ALL_2_ALL", "All-To-All"}) {
        EXPECT_EQ(pattern_named(word), Pattern::kAllToAll) << word;
    }
    EXPECT_EQ(pattern_named("b"), Pattern::kBisection);
    EXPECT_EQ(pattern_named("r"), Pattern::kRing);
    EXPECT_EQ(pattern_named("m2o"), Pattern::kManyToOne);
    EXPECT_FALSE(pattern_named(""));
    EXPECT_FALSE(pattern_named("A2"));
    EXPECT_EQ(partition_named("railed"), Partition::kRailed);
    EXPECT_FALSE(partition_named(""));
    EXPECT_EQ(direction_named("dual_unidir"), TrafficDirection::kDualUnidir);
}

TEST(Pattern, a_thousand_endpoints_are_wired_at_once) {
    auto begun = std::chrono::steady_clock::now();
    std::vector<ScenarioConnection> all = wired({.pattern = Pattern::kAllToAll}, endpoints(1024));
    EXPECT_EQ(all.size(), 1024u * 1023);
    // Milliseconds in fact; the bound allows for a machine that does ten other things.
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
}

}  // namespace
}  // namespace rdmalab::perftest
