// What the loop counts of itself.
#pragma once

#include <cstdint>

namespace rdmalab::card::host {

struct LoopCounters {
    std::uint64_t rounds = 0, idle_rounds = 0;
    std::uint64_t spins = 0;          // times it waited awake
    std::uint64_t spin_hits = 0;      // ... and work came
    std::uint64_t sleeps = 0;         // times it went to sleep
    std::uint64_t bell_wakeups = 0;   // ... and a doorbell ended it
    std::uint64_t timer_wakeups = 0;  // ... and the next deadline ended it
};

}  // namespace rdmalab::card::host
