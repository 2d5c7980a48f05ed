// How packets pick entries: every map algorithm, and BASIC pipes against a matcher that is
// obviously right.
#include <algorithm>
#include <cmath>

#include "flow/pipeline_fixture.h"

namespace rdmalab::flow {
namespace {

constexpr std::uint64_t kSeed = 7;

EntryActions to(const Forward& forward) {
    EntryActions actions;
    actions.forward = forward;
    return actions;
}

class HashPipe : public PipelineTest {
protected:
    // A root that leads to a HASH pipe of `entries` entries, each with a counter.
    void make(HashAlgorithm algorithms, std::uint32_t entries, const FieldValues& mask = {},
              HashAlgorithm chosen = HashAlgorithm::kNone) {
        PipeConfig hash;
        hash.name = "CLASSIFY";
        hash.type = PipeType::kHash;
        hash.algorithms = algorithms;
        hash.entries_max = entries;
        if (!mask.empty()) hash.match_mask = mask;
        hash.monitor.counter = true;
        hash.forward = Forward::to_port(kWire);
        hash_ = create(hash);
        for (std::uint32_t i = 0; i < entries; ++i) ids_.push_back(add(hash_, HashEntry{i, {}}));
        PipeConfig root;
        root.name = "root";
        root.is_root = true;
        root.forward = chosen == HashAlgorithm::kNone ? Forward::to_pipe(hash_)
                                                      : Forward::to_hash_pipe(hash_, chosen);
        add(create(root), BasicEntry{});
    }
    std::vector<std::uint64_t> counts() {
        std::vector<std::uint64_t> counts;
        const auto counters = control_->query_entries(ids_);
        for (const FlowCounters& counter : counters.value()) counts.push_back(counter.packets);
        return counts;
    }
    // Chi-squared of the counts, for equal shares, in standard deviations from its mean.
    double unevenness() {
        const auto all = counts();
        double sum = 0;
        for (const std::uint64_t count : all) sum += static_cast<double>(count);
        const double mean = sum / static_cast<double>(all.size());
        double chi = 0;
        for (const std::uint64_t count : all) {
            chi += (static_cast<double>(count) - mean) * (static_cast<double>(count) - mean) / mean;
        }
        const double freedom = static_cast<double>(all.size()) - 1;
        return (chi - freedom) / std::sqrt(2 * freedom);
    }

    PipeId hash_;
    std::vector<EntryId> ids_;
};

TEST_F(HashPipe, random_spreads_the_packets_of_one_flow_evenly) {
    make(HashAlgorithm::kRandom, 64);
    for (int i = 0; i < 64'000; ++i) send(roce_frame());
    EXPECT_LT(std::abs(unevenness()), 5);
}

TEST_F(HashPipe, a_hash_of_the_parsers_random_number_spreads_them_too) {
    make(HashAlgorithm::kHash, 64, {{Field::kParserRandom, 0xffff}});
    for (int i = 0; i < 64'000; ++i) send(roce_frame());
    EXPECT_LT(std::abs(unevenness()), 5);
}

TEST_F(HashPipe, a_hash_of_fields_keeps_flows_together_and_spreads_them) {
    make(HashAlgorithm::kHash, 16, {{Field::kIpv4Src, 0xffff'ffff}, {Field::kUdpSrc, 0xffff}});
    for (int i = 0; i < 4'000; ++i) {
        const std::string source =
            "10.1." + std::to_string(i / 250) + "." + std::to_string(i % 250);
        send(roce_frame({.source = source}));
    }
    EXPECT_LT(std::abs(unevenness()), 5);
    const auto before = counts();
    for (int i = 0; i < 100; ++i) send(roce_frame());
    const auto after = counts();
    int moved = 0;
    for (std::size_t i = 0; i < 16; ++i) moved += after[i] != before[i];
    EXPECT_EQ(moved, 1);
    EXPECT_EQ(send(arp_frame()), "drop");
}

TEST_F(HashPipe, identity_takes_the_masked_value) {
    make(HashAlgorithm::kIdentity, 8, {{Field::kBthDestQp, 0xf}});
    for (const std::uint32_t qp : {0x102u, 0x112u, 0x105u, 0x10du}) {
        send(roce_frame({.destination_qp = qp}));
    }
    EXPECT_EQ(counts(), (std::vector<std::uint64_t>{0, 0, 2, 0, 0, 2, 0, 0}));
}

TEST_F(HashPipe, round_robin_takes_turns) {
    make(HashAlgorithm::kRoundRobin, 4);
    for (int i = 0; i < 6; ++i) send(roce_frame());
    EXPECT_EQ(counts(), (std::vector<std::uint64_t>{2, 2, 1, 1}));
}

TEST_F(HashPipe, the_index_is_left_in_the_upper_half_of_the_third_metadata_word) {
    PipeConfig behind;
    behind.name = "behind";
    behind.match.values.set_all_ones(Field::kMetaU32_3);
    behind.match_mask = FieldValues{{Field::kMetaU32_3, 0xffff'ffff}};
    const PipeId last = create(behind);
    add(last, BasicEntry{{{Field::kMetaU32_3, 0x0001'beef}}, to(Forward::to_port(kSf4))});
    PipeConfig hash;
    hash.name = "hash";
    hash.type = PipeType::kHash;
    hash.algorithms = HashAlgorithm::kRoundRobin;
    hash.entries_max = 2;
    hash.forward = Forward::to_pipe(last);
    const PipeId middle = create(hash);
    for (const std::uint32_t i : {0u, 1u}) add(middle, HashEntry{i, {}});
    PipeConfig root;
    root.name = "root";
    root.is_root = true;
    root.actions.push_back({{{Field::kMetaU32_3, 0xdead'beef}}, std::nullopt, {}});
    root.forward = Forward::to_pipe(middle);
    add(create(root), BasicEntry{});
    EXPECT_EQ(send(roce_frame()), "drop");
    EXPECT_EQ(send(roce_frame()), "pf0sf4");
}

TEST_F(HashPipe, the_forward_chooses_one_of_several_algorithms) {
    make(HashAlgorithm::kRoundRobin | HashAlgorithm::kFlooding, 4, {}, HashAlgorithm::kFlooding);
    EXPECT_EQ(send(roce_frame()), "p0, p0, p0, p0");
    PipeConfig other;
    other.name = "other";
    other.forward = Forward::to_pipe(hash_);
    EXPECT_EQ(refusal(other),
              "pipe \"other\": forward to HASH pipe \"CLASSIFY\": expected one of its map "
              "algorithms (flags 24), found 24");
}

TEST_F(HashPipe, an_index_without_an_entry_misses) {
    make(HashAlgorithm::kRoundRobin, 2);
    ASSERT_TRUE(control_->remove_entry(ids_[1], Batch::kFlush).ok());
    expect_success();
    EXPECT_EQ(send(roce_frame()), "p0");
    EXPECT_EQ(send(roce_frame()), "drop");
    EXPECT_EQ(control_->query_miss(hash_)->packets, 1u);
}

TEST_F(HashPipe, a_seed_repeats_every_choice) {
    const auto choices = [](std::uint64_t seed) {
        Pipeline pipeline(test_ports(), {.seed = seed, .hash_root_allowed = true});
        const auto control = make_local_control(pipeline);
        PipeConfig hash;
        hash.name = "H";
        hash.is_root = true;
        hash.type = PipeType::kHash;
        hash.algorithms = HashAlgorithm::kRandom;
        hash.entries_max = 2;
        const PipeId pipe = control->create_pipe(hash).value();
        EXPECT_TRUE(
            control->add_entry(pipe, HashEntry{0, to(Forward::to_port(kSf0))}, Batch::kFlush).ok());
        EXPECT_TRUE(
            control->add_entry(pipe, HashEntry{1, to(Forward::to_port(kSf4))}, Batch::kFlush).ok());
        Collector sink;
        std::string text;
        for (int i = 0; i < 200; ++i) {
            wire::Frame frame = roce_frame();
            pipeline.process(kWire, frame, sink);
            text += sink.left.back().port == kSf0 ? '0' : '4';
        }
        return text;
    };
    EXPECT_EQ(choices(1), choices(1));
    EXPECT_NE(choices(1), choices(2));
}

TEST_F(PipelineTest, a_sample_of_random_bits_takes_its_share) {
    PipeConfig sample;
    sample.name = "RANDOM_SAMPLE";
    sample.is_root = true;
    sample.match_mask = FieldValues{{Field::kParserRandom, 0x00f0}};
    sample.monitor.counter = true;
    sample.forward = Forward::to_port(kSf0);
    const EntryId entry = add(create(sample), BasicEntry{});
    constexpr double kPackets = 160'000, kShare = 1.0 / 16;
    for (int i = 0; i < kPackets; ++i) send(roce_frame());
    const double deviation = std::sqrt(kPackets * kShare * (1 - kShare));
    EXPECT_NEAR(static_cast<double>(counters(entry).packets), kPackets * kShare, 5 * deviation);
}

// --- Against a linear matcher over values read field by field.

struct Rule {
    EntryId id;
    FieldValues values;
};

class Random : public PipelineTest {
protected:
    wire::Frame random_frame() {
        RoceOptions options;
        const auto few = [&](std::uint64_t n) { return std::to_string(random_.below(n)); };
        if (random_.chance(0.2)) {
            options.destination = "fd00::" + few(4);
            options.source = "fd00::" + few(4);
        } else {
            options.destination = "10.0.0." + few(4);
            options.source = "10.0.0." + few(4);
        }
        options.opcode = random_.chance(0.3) ? 0x81 : 0x0a;
        options.destination_qp = static_cast<std::uint32_t>(random_.below(4));
        options.traffic_class = static_cast<std::uint8_t>(random_.below(8));
        return random_.chance(0.1) ? arp_frame() : roce_frame(options);
    }
    FieldValue random_value(Field field) {
        if (field == Field::kIpv4Dst || field == Field::kIpv4Src) {
            return 0x0a00'0000 + random_.below(4);
        }
        if (field == Field::kIpv6Dst) {
            Gid gid = *Gid::parse("fd00::");
            gid.bytes[15] = static_cast<std::uint8_t>(random_.below(4));
            return FieldValue::of(gid);
        }
        if (field == Field::kEthType) return random_.chance(0.5) ? 0x0800 : 0x0806;
        return random_.below(8);
    }
    PipeConfig random_pipe() {
        constexpr Field kFields[] = {Field::kIpv4Dst,     Field::kIpv4Src,   Field::kIpv6Dst,
                                     Field::kIpv4DscpEcn, Field::kBthOpcode, Field::kBthDestQp,
                                     Field::kParserPort,  Field::kEthType,   Field::kParserL3Type};
        PipeConfig config;
        config.name = "random";
        config.is_root = true;
        config.monitor.counter = true;
        config.forward = Forward::to_port(kWire);
        const bool masked = random_.chance(0.7);
        if (masked) config.match_mask.emplace();
        for (std::uint64_t n = 1 + random_.below(4); n > 0; --n) {
            const Field field = kFields[random_.below(std::size(kFields))];
            const bool open = random_.chance(0.7);
            config.match.values.set(field, open ? all_ones(field) : random_value(field));
            if (!masked) continue;
            const FieldValue mask{random_.next() | random_.next(), random_.next() | random_.next()};
            config.match_mask->set(field, mask & all_ones(field));
        }
        return config;
    }
    // The key of a rule by the words of pipe_types.h.
    static bool takes(const PipeConfig& config, const Rule& rule, const Packet& packet) {
        const auto& looked_at = config.match_mask ? *config.match_mask : config.match.values;
        for (const auto& item : looked_at.items()) {
            if (item.value.is_zero()) continue;
            const FieldValue mask = config.match_mask ? item.value : all_ones(item.field);
            const std::uint32_t layers = layout_of(item.field).layers;
            if ((packet.layers & layers) != layers) return false;
            const FieldValue constant = config.match.values[item.field];
            const FieldValue wanted =
                constant == all_ones(item.field) ? rule.values[item.field] : constant;
            if ((read_field(packet, item.field) & mask) != (wanted & mask)) return false;
        }
        return true;
    }

    Prng random_{kSeed};
};

TEST_F(Random, pipes_agree_with_a_linear_search) {
    for (int run = 0; run < 300; ++run) {
        SCOPED_TRACE("seed " + std::to_string(kSeed) + " run " + std::to_string(run));
        ASSERT_TRUE(control_->flush_pipes().ok());
        const PipeConfig config = random_pipe();
        auto made = control_->create_pipe(config);
        if (!made.ok()) continue;  // fields that exclude each other
        std::vector<Rule> rules;
        for (int n = 0; n < 12; ++n) {
            Rule rule;
            for (const auto& item : config.match.values.items()) {
                const bool looked_at =
                    !config.match_mask || config.match_mask->contains(item.field);
                const bool is_zero =
                    config.match_mask && (*config.match_mask)[item.field].is_zero();
                if (item.value == all_ones(item.field) && looked_at && !is_zero) {
                    rule.values.set(item.field, random_value(item.field));
                }
            }
            rule.id =
                control_->add_entry(*made, BasicEntry{rule.values, {}}, Batch::kFlush).value();
            if (last_completion().status == EntryStatus::kSuccess) rules.push_back(rule);
            if (rules.size() > 3 && random_.chance(0.3)) {  // tables have gaps, too
                const std::size_t victim = random_.below(rules.size());
                ASSERT_TRUE(control_->remove_entry(rules[victim].id, Batch::kFlush).ok());
                expect_success();
                rules.erase(rules.begin() + static_cast<std::ptrdiff_t>(victim));
            }
        }
        for (int n = 0; n < 200; ++n) {
            wire::Frame frame = random_frame();
            const PortId ingress = random_.chance(0.5) ? kSf0 : kWire;
            Packet packet;
            packet.start(frame, ingress, 60, true);
            const auto found = std::find_if(rules.begin(), rules.end(), [&](const Rule& rule) {
                return takes(config, rule, packet);
            });
            const std::uint64_t before = found == rules.end() ? 0 : counters(found->id).packets;
            EXPECT_EQ(send(frame, ingress), found == rules.end() ? "drop" : "p0");
            if (found == rules.end()) continue;
            EXPECT_EQ(counters(found->id).packets, before + 1);
        }
    }
}

}  // namespace
}  // namespace rdmalab::flow
