// What a poller does that finds nothing, again and again. Polling is meant to be free, but on a
// machine with few cores every poller that spins keeps the card, or the peer, off the core: a round
// trip then takes milliseconds instead of microseconds. So a thread whose last polls were all in
// vain yields after each further one, and when nothing at all has completed in this process for a
// while it sleeps on the CQ's producer index for some tens of microseconds at most.
//
// Programs poll several CQs in turn, and the quiet ones must not delay the busy one: the vain polls
// are counted by thread, not by CQ, and sleeping is decided by the idleness of the whole process.
#pragma once

#include <atomic>
#include <cstdint>

namespace rdmalab::verbs {

struct Cq;

// Empty polls of this thread since it last polled a completion, and when the last one ended.
struct Vain {
    std::uint32_t polls;
    std::int64_t last_ns;
};
extern constinit thread_local Vain vain;

// 0 while completions are being polled, else the time when that was found to have stopped.
extern std::atomic<std::int64_t> idle_since_ns;

inline constexpr std::uint32_t kEmptyPollsBeforeYield = 50;

inline void note_hit() {
    vain.polls = 0;
    if (idle_since_ns.load(std::memory_order_relaxed) != 0) {
        idle_since_ns.store(0, std::memory_order_relaxed);
    }
}
inline bool is_persistent_miss() { return ++vain.polls > kEmptyPollsBeforeYield; }

// For persistent misses: without the CQ's lock, but announced to `sleepers` under it. `index` is
// where the next completion will stand. 0, or EIO when the card is dead.
int wait_when_idle(Cq& cq, std::uint32_t index);

}  // namespace rdmalab::verbs
