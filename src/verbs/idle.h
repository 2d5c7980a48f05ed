// What a poller does that finds nothing, again and again. Polling is meant to be free, but on a
// machine with few cores every poller that spins keeps the card, or the peer, off the core: a round
// trip then takes milliseconds instead of microseconds. So after some empty polls in a row the
// poller yields each time, and when nothing at all has completed in this process for a while it
// sleeps on the CQ's producer index for some tens of microseconds at most.
//
// Sleeping is decided by the idleness of the whole process, not of one CQ: programs poll several
// CQs in turn, and a quiet one must not delay the busy one.
#pragma once

#include <atomic>
#include <cstdint>

namespace rdmalab::verbs {

struct Cq;

// 0 while completions are being polled, else the time when that was found to have stopped.
extern std::atomic<std::int64_t> idle_since_ns;

inline void note_activity() {
    if (idle_since_ns.load(std::memory_order_relaxed) != 0) {
        idle_since_ns.store(0, std::memory_order_relaxed);
    }
}

inline constexpr std::uint32_t kEmptyPollsBeforeYield = 50;

// Called without the CQ's lock, but announced to `sleepers` under it, when more empty polls than
// that have followed each other. `index` is where the next completion will stand. 0, or EIO when
// the card is dead.
int wait_when_idle(Cq& cq, std::uint32_t index);

}  // namespace rdmalab::verbs
