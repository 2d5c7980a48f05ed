#include "pcc/event_link.h"

#include <gtest/gtest.h>

#include <memory>

namespace rdmalab::pcc {
namespace {

struct EventLinkTest : testing::Test {
    static constexpr std::uint32_t kWorkers = 2;
    EventLinkTest() {
        base = static_cast<std::byte*>(std::aligned_alloc(4096, shared_size(kWorkers)));
        std::fill(base, base + shared_size(kWorkers), std::byte{0});
        format_shared(base, kWorkers);
        link = std::make_unique<EventLink>(base, kWorkers);
    }
    ~EventLinkTest() override { std::free(base); }
    static Event event(std::uint32_t flow) {
        Event e;
        e.type = EventType::kTx;
        e.flow = flow;
        return e;
    }
    void publish(Instant now) {
        link->publish(now, [this](std::atomic<std::uint32_t>&) { ++wakes; });
    }
    std::byte* base;
    std::unique_ptr<EventLink> link;
    int wakes = 0;
};

TEST_F(EventLinkTest, a_page_tells_where_the_rings_are) {
    const PccPage& page = link->page();
    EXPECT_EQ(page.version, kAbiVersion);
    EXPECT_EQ(page.workers, kWorkers);
    EXPECT_EQ(base + page.ring_offset + page.ring_stride,
              reinterpret_cast<std::byte*>(&rings_of(base, 1)));
    EXPECT_EQ(base + page.algorithm_offset, reinterpret_cast<std::byte*>(&algorithm_page_of(base)));
}

TEST_F(EventLinkTest, a_flow_stays_with_its_worker_and_in_order) {
    for (std::uint32_t sn = 0; sn < 10; ++sn) {
        for (std::uint32_t flow = 2; flow < 4; ++flow) {
            Event e = event(flow);
            e.sn = sn;
            ASSERT_TRUE(link->push(e));
        }
    }
    for (std::uint32_t worker = 0; worker < kWorkers; ++worker) {
        const WorkerRings& rings = rings_of(base, worker);
        ASSERT_EQ(rings.event_producer, 10u);
        for (std::uint32_t i = 0; i < 10; ++i) {
            EXPECT_EQ(rings.events[i].flow % kWorkers, worker);
            EXPECT_EQ(rings.events[i].sn, i);
        }
    }
}

TEST_F(EventLinkTest, a_full_ring_takes_nothing_more) {
    for (std::uint32_t i = 0; i < kEventRingCapacity; ++i) ASSERT_TRUE(link->push(event(2)));
    EXPECT_FALSE(link->push(event(2)));
    EXPECT_TRUE(link->push(event(3))) << "of the other worker";
    rings_of(base, 0).event_consumer = 1;
    EXPECT_TRUE(link->push(event(2)));
    EXPECT_FALSE(link->is_broken());
}

TEST_F(EventLinkTest, answers_of_all_workers_are_taken) {
    for (std::uint32_t worker = 0; worker < kWorkers; ++worker) {
        WorkerRings& rings = rings_of(base, worker);
        rings.answers[0] = {worker + 10, 1000, 0, 0};
        rings.answer_producer = 1;
    }
    EXPECT_TRUE(link->has_answer());
    Answer answer;
    std::uint32_t flows = 0;
    while (link->pop(answer)) flows += answer.flow;
    EXPECT_EQ(flows, 21u);
    EXPECT_FALSE(link->has_answer());
}

TEST_F(EventLinkTest, indexes_that_cannot_be_break_the_link) {
    Answer answer;
    rings_of(base, 1).answer_producer = kAnswerRingCapacity + 1;
    EXPECT_FALSE(link->pop(answer));
    EXPECT_TRUE(link->is_broken());
    EventLink other(base, kWorkers);
    rings_of(base, 0).event_consumer = 77;
    EXPECT_FALSE(other.push(event(2)));
    EXPECT_TRUE(other.is_broken());
}

TEST_F(EventLinkTest, a_worker_that_is_awake_is_not_woken) {
    ASSERT_TRUE(link->push(event(2)));
    publish(Instant{1'000});
    EXPECT_EQ(wakes, 0);
    EXPECT_TRUE(link->next_deadline().is_never());
}

TEST_F(EventLinkTest, a_sleeping_worker_is_woken_when_an_event_is_old_enough) {
    rings_of(base, 0).sleeping = 1;
    ASSERT_TRUE(link->push(event(2)));
    publish(Instant{1'000});
    EXPECT_EQ(wakes, 0);
    EXPECT_EQ(link->next_deadline(), Instant{1'000} + EventLink::kWakeDelay);
    publish(link->next_deadline());
    EXPECT_EQ(wakes, 1);
    publish(Instant{1'000'000});
    EXPECT_EQ(wakes, 1);
}

TEST_F(EventLinkTest, a_sleeping_worker_is_woken_when_there_are_many_events) {
    rings_of(base, 0).sleeping = 1;
    for (std::uint32_t i = 0; i < EventLink::kWakeEvents; ++i) ASSERT_TRUE(link->push(event(2)));
    publish(Instant{1'000});
    EXPECT_EQ(wakes, 1);
}

TEST_F(EventLinkTest, a_worker_that_takes_nothing_is_stuck) {
    EXPECT_EQ(link->stuck_for(Instant{5}), Duration{0});
    ASSERT_TRUE(link->push(event(2)));
    EXPECT_EQ(link->stuck_for(Instant{0} + seconds(1)), Duration{0}) << "it has just come";
    EXPECT_EQ(link->stuck_for(Instant{0} + seconds(3)), seconds(2));
    rings_of(base, 0).event_consumer = 1;
    EXPECT_EQ(link->stuck_for(Instant{0} + seconds(4)), Duration{0});
    EXPECT_EQ(link->stuck_for(Instant{0} + seconds(90)), Duration{0}) << "nothing to do";
}

}  // namespace
}  // namespace rdmalab::pcc
