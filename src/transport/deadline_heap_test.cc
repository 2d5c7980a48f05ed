#include "transport/deadline_heap.h"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.h"

namespace rdmalab::transport {
namespace {

TEST(DeadlineHeap, an_empty_heap_is_never_due) { EXPECT_TRUE(DeadlineHeap().next().is_never()); }

TEST(DeadlineHeap, moving_later_keeps_the_early_time) {
    DeadlineHeap heap;
    heap.schedule(3, Instant{100});
    heap.schedule(3, Instant{200});
    EXPECT_EQ(heap.next(), Instant{100});
    heap.schedule(3, Instant{50});
    EXPECT_EQ(heap.next(), Instant{50});
    EXPECT_EQ(heap.pop(), 3u);
    EXPECT_TRUE(heap.next().is_never());
}

// Against a map that does the same slowly.
TEST(DeadlineHeap, gives_out_slots_in_the_order_of_their_times) {
    Prng prng(1);
    DeadlineHeap heap;
    std::map<std::uint32_t, Instant> model;
    for (int step = 0; step < 100'000; ++step) {
        const auto slot = static_cast<std::uint32_t>(prng.below(300));
        const Instant time{static_cast<std::int64_t>(prng.below(1'000'000))};
        switch (prng.below(4)) {
            case 0:
                heap.remove(slot);
                model.erase(slot);
                break;
            case 1:
                if (!model.empty()) {
                    const Instant next = heap.next();
                    const std::uint32_t popped = heap.pop();
                    ASSERT_EQ(model.at(popped), next);
                    for (const auto& [other, due] : model) ASSERT_GE(due, next) << other;
                    model.erase(popped);
                }
                break;
            default:
                heap.schedule(slot, time);
                if (!model.contains(slot) || time < model[slot]) model[slot] = time;
                break;
        }
    }
}

}  // namespace
}  // namespace rdmalab::transport
