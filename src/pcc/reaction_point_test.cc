#include "pcc/reaction_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace rdmalab::pcc {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr FlowId kFlow = make_flow_id(3, 0x10001), kOther = make_flow_id(3, 0x10002);

struct FakeCard final : ReactionPort {
    void watch(FlowId flow, bool on) override {
        if (on)
            watched.insert(flow);
        else
            watched.erase(flow);
    }
    void watch_all(bool on) override { watches_all = on; }
    bool send_probe(FlowId flow, Instant now) override {
        probes.push_back({flow, now});
        return has_way;
    }
    void wake(std::atomic<std::uint32_t>&) override { ++wakes; }
    std::set<FlowId> watched;
    bool watches_all = false, has_way = true;
    std::vector<std::pair<FlowId, Instant>> probes;
    int wakes = 0;
};

struct ReactionTest : testing::Test {
    ReactionTest() {
        memory = static_cast<std::byte*>(std::aligned_alloc(4096, shared_size(1)));
        std::fill(memory, memory + shared_size(1), std::byte{0});
        settings.flows = FlowPolicy::kAll;
        settings.line_rate_bps = 10'000'000'000;
        point = std::make_unique<ReactionPoint>(settings, 1, std::uint8_t{1}, card);
    }
    ~ReactionTest() override {
        point.reset();
        std::free(memory);
    }
    void attach(bool report_only = false) {
        format_shared(memory, 1);
        link = std::make_unique<EventLink>(memory, 1);
        point->attach(*link, report_only, now);
    }
    Instant send(FlowId flow = kFlow, std::uint32_t bytes = 4096) {
        return point->handle_sent({flow, ++psn, bytes, true, false}, now);
    }
    void step(Duration time) {
        now = now + time;
        point->poll(now);
    }
    std::vector<Event> events() {
        WorkerRings& rings = rings_of(memory, 0);
        std::vector<Event> all;
        std::uint32_t i = rings.event_consumer;
        for (; i != rings.event_producer; ++i)
            all.push_back(rings.events[i & (kEventRingCapacity - 1)]);
        rings.event_consumer = i;
        return all;
    }
    void answer(std::uint32_t rate, bool probe = false, FlowId flow = kFlow) {
        WorkerRings& rings = rings_of(memory, 0);
        rings.answers[rings.answer_producer & (kAnswerRingCapacity - 1)] = {
            flow, rate, probe ? std::uint32_t{kAnswerProbe} : 0u, 0};
        ++rings.answer_producer;
    }
    // Time that 1000 packets of 4096 bytes take, as a share of the time at line rate.
    double slowness() {
        const Instant start = now;
        for (int i = 0; i < 1000; ++i) {
            Instant hold = send();
            while (hold > now) {
                now = hold;
                point->poll(now);
                hold = point->may_send(kFlow, now);
            }
        }
        return static_cast<double>((now - start).ns) / (1000 * 4096 * 0.8);
    }
    const ReactionCounters::Type& counted(EventType type) const {
        return point->counters().types[static_cast<std::size_t>(type)];
    }

    Settings settings;
    FakeCard card;
    std::byte* memory;
    std::unique_ptr<EventLink> link;
    std::unique_ptr<ReactionPoint> point;
    Instant now{5'000'000'000};
    std::uint32_t psn = 0;
};

TEST_F(ReactionTest, without_cnps_nothing_is_watched_and_nothing_waits) {
    EXPECT_EQ(send(), Instant{});
    EXPECT_TRUE(card.watched.empty());
    EXPECT_FALSE(point->poll(now));
    EXPECT_TRUE(point->next_deadline().is_never());
}

TEST_F(ReactionTest, a_cnp_makes_the_built_in_algorithm_slow_the_flow_down_until_it_recovers) {
    point->handle_cnp(kFlow, now);
    EXPECT_THAT(card.watched, ElementsAre(kFlow));
    EXPECT_EQ(point->limited_count(), 1u);
    EXPECT_GT(slowness(), 1.03);
    for (int i = 0; i < 1'000'000 && !card.watched.empty(); ++i) {
        now = std::max(now + microseconds(3), send());
    }
    EXPECT_TRUE(card.watched.empty()) << "line rate again: nobody looks at it";
    EXPECT_EQ(send(), Instant{});
}

TEST_F(ReactionTest, flows_are_limited_one_by_one) {
    point->handle_cnp(kFlow, now);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(send(kOther), Instant{});
}

TEST_F(ReactionTest, pacing_can_be_switched_off) {
    settings.is_pacing = false;
    point->handle_cnp(kFlow, now);
    EXPECT_EQ(slowness(), 0);
    settings.is_pacing = true;
    point->settings_changed(now);
    EXPECT_GT(slowness(), 0.5);
}

TEST_F(ReactionTest, packets_become_one_event) {
    attach();
    EXPECT_TRUE(card.watches_all);
    settings.tx_packets_per_event = 8;
    for (int i = 0; i < 16; ++i) {
        send(kFlow, 1000);
        step(microseconds(1));
    }
    const auto seen = events();
    ASSERT_THAT(seen, SizeIs(2));
    EXPECT_EQ(seen[0].type, EventType::kTx);
    EXPECT_EQ(seen[0].port, 1);
    EXPECT_EQ(seen[0].flow, kFlow);
    EXPECT_EQ(seen[0].qpn, 0x10001u);
    EXPECT_EQ(seen[0].tx.sent_packets, 8u);
    EXPECT_EQ(seen[0].tx.sent_bytes, 8000u);
    EXPECT_EQ(seen[0].sn, 8u);
    EXPECT_EQ(seen[0].timestamp_ns - seen[0].tx.first_timestamp_ns, 7'000u);
    EXPECT_EQ(seen[0].flags, kTxIsRequester);
    EXPECT_EQ(counted(EventType::kTx).handled, 16u);
    EXPECT_EQ(counted(EventType::kTx).events, 2u);
}

TEST_F(ReactionTest, a_burst_ends_by_itself_after_a_while) {
    attach();
    send();
    send();
    EXPECT_EQ(point->next_deadline(), now + settings.tx_delay);
    step(settings.tx_delay - nanoseconds(1));
    EXPECT_THAT(events(), SizeIs(0));
    step(nanoseconds(1));
    const auto seen = events();
    ASSERT_THAT(seen, SizeIs(1));
    EXPECT_EQ(seen[0].tx.sent_packets, 2u);
    EXPECT_TRUE(point->next_deadline().is_never());
}

TEST_F(ReactionTest, cnps_and_acks_are_coalesced_as_set) {
    attach();
    settings.cnps_per_event = 3;
    settings.acks_per_event = 2;
    for (int i = 0; i < 4; ++i) point->handle_cnp(kFlow, now);
    for (int i = 0; i < 2; ++i) point->handle_ack(kFlow, 100u + i, now);
    auto seen = events();
    ASSERT_THAT(seen, SizeIs(2));
    EXPECT_EQ(seen[0].type, EventType::kCnp);
    EXPECT_EQ(seen[0].feedback.coalesced, 3u);
    EXPECT_EQ(seen[1].type, EventType::kAck);
    EXPECT_EQ(seen[1].feedback.coalesced, 2u);
    EXPECT_EQ(seen[1].feedback.first_sn, 100u);
    EXPECT_EQ(seen[1].sn, 101u);
    step(settings.tx_delay);
    seen = events();
    ASSERT_THAT(seen, SizeIs(1)) << "the fourth CNP";
    EXPECT_EQ(seen[0].feedback.coalesced, 1u);
}

TEST_F(ReactionTest, a_nack_says_what_was_wrong) {
    attach();
    point->handle_nack(kFlow, NackKind::kOutOfSequence, 77, now);
    const auto seen = events();
    ASSERT_THAT(seen, SizeIs(1));
    EXPECT_EQ(seen[0].type, EventType::kNack);
    EXPECT_EQ(seen[0].subtype, 2);
    EXPECT_EQ(seen[0].sn, 77u);
}

TEST_F(ReactionTest, an_answer_is_enforced) {
    attach();
    send();
    answer(kRateMax / 4);
    step(microseconds(1));
    slowness();
    EXPECT_NEAR(slowness(), 4, 0.1);
    EXPECT_EQ(point->flows().at(0).rate, kRateMax / 4);
}

TEST_F(ReactionTest, in_report_only_mode_nothing_is_enforced) {
    attach(true);
    send();
    answer(kRateMax / 4);
    point->handle_cnp(kFlow, now);
    step(microseconds(1));
    EXPECT_EQ(slowness(), 0);
    EXPECT_EQ(point->flows().at(0).rate, kRateMax);
    EXPECT_EQ(point->counters().answers, 1u);
}

TEST_F(ReactionTest, a_process_serves_negotiated_flows_only_when_so_set) {
    settings.flows = FlowPolicy::kCm;
    attach();
    point->set_negotiated(kOther);
    point->handle_cnp(kFlow, now);
    point->handle_cnp(kOther, now);
    const auto seen = events();
    ASSERT_THAT(seen, SizeIs(1));
    EXPECT_EQ(seen[0].flow, kOther);
    EXPECT_GT(slowness(), 1.03) << "the built-in algorithm has the other";
}

TEST_F(ReactionTest, rates_that_cannot_be_are_a_fault) {
    for (const std::uint32_t rate : {0u, kRateMax + 1, 0xffff'ffffu}) {
        attach();
        send();
        answer(rate);
        step(microseconds(1));
        EXPECT_EQ(point->fault(), ErrorReason::kBadRate);
        point->detach(now);
        EXPECT_FALSE(point->is_attached());
    }
    EXPECT_EQ(point->counters().answers_refused, 3u);
    EXPECT_EQ(point->counters().fallbacks, 3u);
}

TEST_F(ReactionTest, a_process_that_takes_no_events_is_a_fault) {
    attach();
    for (int i = 0; i < 64; ++i) send();
    step(milliseconds(60));
    step(settings.patience - milliseconds(1));
    EXPECT_EQ(point->fault(), ErrorReason::kNone);
    step(milliseconds(200));
    EXPECT_EQ(point->fault(), ErrorReason::kNoProgress);
}

TEST_F(ReactionTest, when_the_process_goes_the_built_in_algorithm_starts_at_line_rate) {
    attach();
    send();
    answer(1000);
    step(microseconds(1));
    EXPECT_EQ(point->limited_count(), 1u);
    point->detach(now);
    EXPECT_FALSE(card.watches_all);
    EXPECT_EQ(point->limited_count(), 0u);
    EXPECT_EQ(send(), Instant{});
    point->handle_cnp(kFlow, now);
    EXPECT_THAT(card.watched, ElementsAre(kFlow));
}

TEST_F(ReactionTest, limits_of_the_built_in_algorithm_survive_a_process_that_does_not_serve_them) {
    settings.flows = FlowPolicy::kCm;
    point->handle_cnp(kFlow, now);
    attach();
    point->detach(now);
    EXPECT_THAT(card.watched, ElementsAre(kFlow));
    EXPECT_EQ(point->limited_count(), 1u);
}

TEST_F(ReactionTest, probes_keep_their_distance_and_are_not_doubled) {
    attach();
    send();
    answer(kRateMax, true);
    step(microseconds(1));
    ASSERT_THAT(card.probes, SizeIs(1));
    answer(kRateMax, true);
    step(microseconds(1));
    EXPECT_THAT(card.probes, SizeIs(1)) << "one is on its way";
    const Instant sent = card.probes[0].second;
    point->handle_rtt(kFlow, {static_cast<std::uint64_t>(sent.ns), 7, 8}, now);
    const auto seen = events();
    ASSERT_THAT(seen, SizeIs(1));
    EXPECT_EQ(seen[0].type, EventType::kRtt);
    EXPECT_EQ(seen[0].rtt.request_sent_ns, static_cast<std::uint64_t>(sent.ns));
    EXPECT_EQ(seen[0].rtt.request_received_ns, 7u);
    EXPECT_EQ(seen[0].rtt.response_sent_ns, 8u);
    answer(kRateMax, true);
    step(microseconds(1));
    EXPECT_THAT(card.probes, SizeIs(1));
    EXPECT_LE(point->next_deadline(), sent + settings.probe_interval);
    step(sent + settings.probe_interval - now - nanoseconds(1));
    EXPECT_THAT(card.probes, SizeIs(1));
    step(nanoseconds(1));
    EXPECT_THAT(card.probes, SizeIs(2));
}

TEST_F(ReactionTest, a_lost_probe_is_given_up_and_its_late_answer_ignored) {
    attach();
    send();
    answer(kRateMax, true);
    step(microseconds(1));
    const Instant first = card.probes.at(0).second;
    step(settings.probe_timeout);
    answer(kRateMax, true);
    step(microseconds(1));
    ASSERT_THAT(card.probes, SizeIs(2));
    events();
    point->handle_rtt(kFlow, {static_cast<std::uint64_t>(first.ns), 0, 0}, now);
    EXPECT_THAT(events(), SizeIs(0));
    EXPECT_EQ(point->counters().probes_lost, 2u);
}

TEST_F(ReactionTest, a_tx_event_tells_that_a_probe_has_left) {
    attach();
    settings.tx_packets_per_event = 1;
    send();
    answer(kRateMax, true);
    step(microseconds(1));
    send();
    send();
    const auto seen = events();
    ASSERT_THAT(seen, SizeIs(3));
    EXPECT_EQ(seen[0].flags & kTxProbeSent, 0);
    EXPECT_EQ(seen[1].flags & kTxProbeSent, kTxProbeSent);
    EXPECT_EQ(seen[2].flags & kTxProbeSent, 0);
}

TEST_F(ReactionTest, injected_loss_is_counted_and_told_with_the_next_event) {
    attach();
    settings.tx_packets_per_event = 1;
    settings.event_loss = 1;
    send();
    EXPECT_THAT(events(), SizeIs(0));
    EXPECT_EQ(counted(EventType::kTx).lost_injected, 1u);
    EXPECT_EQ(link->page().events_lost, 1u);
    settings.event_loss = 0;
    send();
    const auto seen = events();
    ASSERT_THAT(seen, SizeIs(1));
    EXPECT_EQ(seen[0].flags & kTxOverloaded, kTxOverloaded);
}

TEST_F(ReactionTest, injected_loss_meets_its_share) {
    attach();
    settings.tx_packets_per_event = 1;
    settings.event_loss = 0.1;
    for (int i = 0; i < 5'000; ++i) send();
    EXPECT_NEAR(static_cast<double>(counted(EventType::kTx).lost_injected), 500, 100);
}

TEST_F(ReactionTest, events_that_find_no_room_are_counted) {
    attach();
    settings.tx_packets_per_event = 1;
    for (std::uint32_t i = 0; i < kEventRingCapacity + 10; ++i) send();
    EXPECT_EQ(counted(EventType::kTx).lost, 10u);
}

TEST_F(ReactionTest, the_end_of_a_flow_is_told_even_when_there_is_no_room_at_first) {
    attach();
    settings.tx_packets_per_event = 1;
    for (std::uint32_t i = 0; i < kEventRingCapacity; ++i) send();
    point->forget(kFlow);
    EXPECT_EQ(point->flow_count(), 0u);
    step(microseconds(1));
    events();
    step(microseconds(1));
    const auto seen = events();
    ASSERT_THAT(seen, SizeIs(1));
    EXPECT_EQ(seen[0].type, EventType::kFlowGone);
    EXPECT_EQ(seen[0].flow, kFlow);
}

TEST_F(ReactionTest, an_answer_for_a_flow_that_is_gone_is_harmless) {
    attach();
    send();
    point->forget(kFlow);
    answer(5, true);
    step(microseconds(1));
    EXPECT_EQ(point->fault(), ErrorReason::kNone);
    EXPECT_TRUE(card.probes.empty());
}

TEST_F(ReactionTest, rates_follow_the_line_rate) {
    attach();
    send();
    answer(kRateMax / 2);
    step(microseconds(1));
    point->set_line_rate(1'000'000'000, now);
    EXPECT_EQ(link->page().line_rate_bps, 1'000'000'000u);
    slowness();
    EXPECT_NEAR(slowness(), 20, 0.5);
}

}  // namespace
}  // namespace rdmalab::pcc
