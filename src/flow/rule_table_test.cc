#include "flow/rule_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>
#include <tuple>

#include "base/prng.h"

namespace rdmalab::flow {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

using Targets = std::vector<std::uint64_t>;

FlatFrame udp_frame(std::uint16_t source, std::uint16_t destination) {
    FlatFrame frame;
    frame.layers = kRuleEthernet | kRuleIpv4 | kRuleUdp;
    frame.fields.outer.source_port = source;
    frame.fields.outer.destination_port = destination;
    return frame;
}

RuleMatch udp_rule(std::uint16_t source, std::uint16_t destination) {  // 0: any
    RuleMatch match;
    match.layers = kRuleEthernet | kRuleIpv4 | kRuleUdp;
    match.value.outer.source_port = source;
    match.value.outer.destination_port = destination;
    match.mask.outer.source_port = source == 0 ? 0 : 0xffff;
    match.mask.outer.destination_port = destination == 0 ? 0 : 0xffff;
    return match;
}

class RuleTableTest : public ::testing::Test {
protected:
    Targets targets(const FlatFrame& frame) {
        Targets all;
        trapped = table.visit(frame, [&](std::uint64_t target) { all.push_back(target); });
        return all;
    }
    RuleTable table;
    bool trapped = false;
};

TEST_F(RuleTableTest, an_empty_table_takes_nothing) {
    EXPECT_THAT(targets(udp_frame(1, 2)), IsEmpty());
    EXPECT_FALSE(trapped);
}

TEST_F(RuleTableTest, a_rule_takes_what_it_matches_and_nothing_else) {
    table.add(udp_rule(0, 2), 0, true, 7);
    EXPECT_THAT(targets(udp_frame(1, 2)), ElementsAre(7));
    EXPECT_TRUE(trapped);
    EXPECT_THAT(targets(udp_frame(2, 1)), IsEmpty());
}

TEST_F(RuleTableTest, a_frame_without_the_header_does_not_match_even_under_an_empty_mask) {
    table.add(udp_rule(0, 0), 0, true, 7);
    FlatFrame tcp = udp_frame(1, 2);
    tcp.layers = kRuleEthernet | kRuleIpv4 | kRuleTcp;
    EXPECT_THAT(targets(tcp), IsEmpty());
    EXPECT_THAT(targets(udp_frame(0, 0)), ElementsAre(7));
}

TEST_F(RuleTableTest, a_lower_priority_number_wins_whatever_the_order_of_creation) {
    table.add(udp_rule(1, 0), 5, true, 50);
    table.add(udp_rule(0, 2), 4, true, 40);
    EXPECT_THAT(targets(udp_frame(1, 2)), ElementsAre(40));
    table.add(udp_rule(0, 0), 3, true, 30);
    EXPECT_THAT(targets(udp_frame(1, 2)), ElementsAre(30));
}

TEST_F(RuleTableTest, at_equal_priority_the_more_specific_rule_wins) {
    table.add(udp_rule(0, 0), 1, true, 1);
    table.add(udp_rule(1, 2), 1, true, 3);
    table.add(udp_rule(0, 2), 1, true, 2);
    EXPECT_THAT(targets(udp_frame(1, 2)), ElementsAre(3));
    EXPECT_THAT(targets(udp_frame(9, 2)), ElementsAre(2));
    EXPECT_THAT(targets(udp_frame(9, 9)), ElementsAre(1));
}

TEST_F(RuleTableTest, equal_rules_each_get_the_frame) {
    table.add(udp_rule(1, 2), 1, true, 1);
    const RuleId second = table.add(udp_rule(1, 2), 1, true, 2);
    EXPECT_THAT(targets(udp_frame(1, 2)), UnorderedElementsAre(1, 2));
    EXPECT_TRUE(table.remove(second));
    EXPECT_THAT(targets(udp_frame(1, 2)), ElementsAre(1));
}

TEST_F(RuleTableTest, a_rule_that_does_not_trap_lets_lower_ones_have_the_frame_too) {
    table.add(udp_rule(1, 0), 0, false, 1);
    table.add(udp_rule(0, 2), 1, true, 2);
    table.add(udp_rule(0, 0), 2, true, 3);
    EXPECT_THAT(targets(udp_frame(1, 2)), ElementsAre(1, 2));
    EXPECT_TRUE(trapped);
}

TEST_F(RuleTableTest, without_a_trapping_rule_the_frame_goes_on) {
    table.add(udp_rule(1, 0), 0, false, 1);
    EXPECT_THAT(targets(udp_frame(1, 2)), ElementsAre(1));
    EXPECT_FALSE(trapped);
}

TEST_F(RuleTableTest, bits_of_the_value_outside_the_mask_do_not_count) {
    RuleMatch match = udp_rule(0, 2);
    match.value.outer.source_port = 99;
    table.add(match, 0, true, 7);
    EXPECT_THAT(targets(udp_frame(1, 2)), ElementsAre(7));
}

TEST_F(RuleTableTest, single_bits_can_be_matched) {
    RuleMatch match = udp_rule(0, 0);
    match.value.outer.destination_port = 1;
    match.mask.outer.destination_port = 1;
    table.add(match, 0, true, 7);
    EXPECT_THAT(targets(udp_frame(0, 4791)), ElementsAre(7));
    EXPECT_THAT(targets(udp_frame(0, 4790)), IsEmpty());
}

TEST_F(RuleTableTest, a_removed_rule_is_gone_and_removed_once) {
    const RuleId rule = table.add(udp_rule(1, 2), 0, true, 7);
    EXPECT_TRUE(table.remove(rule));
    EXPECT_FALSE(table.remove(rule));
    EXPECT_THAT(targets(udp_frame(1, 2)), IsEmpty());
    EXPECT_EQ(table.size(), 0u);
}

// --- Against a matcher that is obviously right.

struct PlainRule {
    RuleMatch match;
    std::uint16_t priority;
    bool traps;
    std::uint64_t target;
};

bool meets(const FlatFrame& frame, const RuleMatch& match) {
    const RuleWords f = words_of(frame.fields), v = words_of(match.value), m = words_of(match.mask);
    for (std::size_t i = 0; i < kRuleWords; ++i) {
        if ((f[i] & m[i]) != (v[i] & m[i])) return false;
    }
    return (frame.layers & match.layers) == match.layers;
}

auto rank(const PlainRule& rule) {
    int bits = 0;
    for (const std::uint64_t word : words_of(rule.match.mask)) bits += std::popcount(word);
    return std::tuple(rule.priority, -bits, -std::popcount(rule.match.layers), rule.match.layers,
                      words_of(rule.match.mask));
}

std::multiset<std::uint64_t> plain_targets(std::vector<PlainRule> rules, const FlatFrame& frame) {
    std::erase_if(rules, [&](const PlainRule& rule) { return !meets(frame, rule.match); });
    std::ranges::sort(rules, {}, rank);
    std::multiset<std::uint64_t> targets;
    for (std::size_t i = 0; i < rules.size();) {
        bool trapped = false;
        const auto level = rank(rules[i]);
        for (; i < rules.size() && rank(rules[i]) == level; ++i) {
            targets.insert(rules[i].target);
            trapped |= rules[i].traps;
        }
        if (trapped) break;
    }
    return targets;
}

// Few values, so that rules and frames meet.
class Drawer {
public:
    explicit Drawer(std::uint64_t seed) : prng_(seed) {}
    std::uint64_t below(std::uint64_t n) { return prng_.below(n); }
    std::uint32_t layers() {
        static constexpr std::uint32_t kChoices[] = {
            kRuleEthernet,
            kRuleEthernet | kRuleIpv4,
            kRuleEthernet | kRuleIpv4 | kRuleUdp,
            kRuleEthernet | kRuleVlan | kRuleIpv6 | kRuleTcp,
            kRuleEthernet | kRuleIpv4 | kRuleUdp | kRuleVxlan |
                (kRuleEthernet | kRuleIpv4) << kInnerShift,
        };
        return kChoices[below(std::size(kChoices))];
    }
    RuleFields fields(bool is_mask) {
        RuleFields f;
        const auto value = [&]() -> std::uint16_t {
            if (!is_mask) return static_cast<std::uint16_t>(below(3));
            static constexpr std::uint16_t kMasks[] = {0, 0, 0, 0xffff, 1, 2};
            return kMasks[below(std::size(kMasks))];
        };
        for (RuleHeaders* h : {&f.outer, &f.inner}) {
            h->destination_mac[5] = static_cast<std::uint8_t>(value());
            h->vlan_tag = value();
            h->ether_type = value();
            h->destination_ip[3] = static_cast<std::uint8_t>(value());
            h->source_port = value();
            h->destination_port = value();
        }
        f.vni = value();
        return f;
    }

private:
    Prng prng_;
};

TEST(RuleTableModel, a_million_pairs_of_rules_and_frames_meet_as_the_plain_matcher_says) {
    constexpr unsigned kRounds = 200, kRules = 100, kFrames = 50;
    for (unsigned seed = 1; seed <= kRounds; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Drawer draw(seed);
        RuleTable table;
        std::vector<PlainRule> plain;
        std::vector<RuleId> ids;
        for (unsigned i = 0; i < kRules; ++i) {
            RuleMatch match{draw.layers(), draw.fields(false), draw.fields(true)};
            if (!plain.empty() && draw.below(5) == 0) match = plain[draw.below(plain.size())].match;
            plain.push_back(
                {match, static_cast<std::uint16_t>(draw.below(4)), draw.below(3) != 0, i});
            ids.push_back(table.add(match, plain.back().priority, plain.back().traps, i));
            if (draw.below(4) != 0) continue;
            const std::size_t gone = draw.below(plain.size());
            ASSERT_TRUE(table.remove(ids[gone]));
            plain.erase(plain.begin() + static_cast<std::ptrdiff_t>(gone));
            ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(gone));
        }
        ASSERT_EQ(table.size(), plain.size());
        for (unsigned i = 0; i < kFrames; ++i) {
            const FlatFrame frame{draw.layers(), draw.fields(false)};
            std::multiset<std::uint64_t> found;
            table.visit(frame, [&](std::uint64_t target) { found.insert(target); });
            ASSERT_EQ(found, plain_targets(plain, frame)) << "frame " << i;
        }
    }
}

}  // namespace
}  // namespace rdmalab::flow
