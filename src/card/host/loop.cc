#include "card/host/loop.h"

#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>

#include "card/host/clock.h"

namespace rdmalab::card::host {
namespace {

constexpr std::uint32_t kLooksMax = 2'048;
constexpr std::uint32_t kLooksMin = 64;
constexpr std::uint32_t kLooksMaxRealtime = 64;
constexpr std::uint32_t kLooksPerYield = 32;
// A look takes a load from each context; with more than these there are fewer looks.
constexpr std::size_t kContextsPerLook = 8;

// Between two looks at the descriptors of a busy card.
constexpr std::uint32_t kRoundsPerLook = 64;
constexpr Duration kTimePerLook = microseconds(50);

// A sleep and its end cost about 10 us: one that lasted less than kShortSleep was not worth it.
constexpr Duration kShortSleep = microseconds(50);
constexpr Duration kLongSleep = microseconds(500);
// A deadline nearer than this is waited for awake.
constexpr Duration kTooNearToSleep = microseconds(15);

void relax() { __builtin_ia32_pause(); }

}  // namespace

void SpinBudget::note_sleep(Duration slept) {
    if (slept < kShortSleep) {
        looks_ = std::min(looks_ * 2, looks_max_);
    } else if (slept > kLongSleep) {
        looks_ = std::max(looks_ / 2, std::min(kLooksMin, looks_max_));
    }
}

void SpinBudget::note_message() { looks_ = std::max(looks_ / 2, std::min(kLooksMin, looks_max_)); }

Loop::Loop(const Parts& parts, LoopCounters& counters)
    : parts_(parts), counters_(counters), budget_(parts.may_spin ? kLooksMax : kLooksMaxRealtime) {
    bell_watch_ = parts_.poller.add(parts_.bell_fd, EPOLLIN, [this](std::uint32_t) {
        std::uint64_t rings = 0;
        bell_rang_ = ::read(parts_.bell_fd, &rings, sizeof rings) == sizeof rings;
    });
}

Loop::~Loop() { parts_.poller.remove(bell_watch_); }

void Loop::run() {
    while (!stopping_) {
        now_ = monotonic_now();
        ++counters_.rounds;
        bool busy = parts_.card.poll(now_);
        // Frames that keep coming are fetched between rounds, not only when somebody looks.
        if (parts_.uplinks != nullptr && parts_.uplinks->is_busy(now_))
            busy |= parts_.uplinks->poll();
        parts_.attachments.bury_dead();
        if (!busy) {
            ++counters_.idle_rounds;
            wait_for_work();
        } else if (++rounds_since_look_ >= kRoundsPerLook || now_ - looked_ >= kTimePerLook) {
            look_at_descriptors();
        }
    }
}

void Loop::look_at_descriptors() {
    rounds_since_look_ = 0;
    looked_ = now_;
    parts_.poller.wait(Duration{0});
}

void Loop::wait_for_work() {
    const Instant deadline = parts_.card.next_deadline();
    if (deadline <= now_) {
        look_at_descriptors();
        return;
    }
    ++counters_.spins;
    if (wait_awake(deadline)) {
        ++counters_.spin_hits;
        // A card that always finds work while awake must hear its descriptors too.
        if (now_ - looked_ >= kTimePerLook) look_at_descriptors();
        return;
    }
    parts_.captures.flush();
    sleep(deadline);
}

// True when a doorbell rang or the deadline has come.
bool Loop::wait_awake(Instant deadline) {
    const bool deadline_is_near = deadline - now_ < kTooNearToSleep;
    const std::size_t looks = std::max<std::size_t>(
        budget_.looks() / (1 + parts_.card.context_count() / kContextsPerLook), kLooksPerYield);
    for (std::size_t look = 1; look <= looks || deadline_is_near; ++look) {
        if (parts_.card.doorbell_pending()) {
            budget_.note_hit();
            return true;
        }
        if (look % kLooksPerYield != 0) {
            relax();
            continue;
        }
        ::sched_yield();
        const Instant now = monotonic_now();
        if (now >= deadline) return true;
        if (poll_interfaces(now)) return true;
    }
    return false;
}

// Interfaces ring no doorbell: while frames come, they are looked for as well.
bool Loop::poll_interfaces(Instant now) {
    bool any = false;
    if (parts_.network != nullptr && parts_.network->is_busy(now)) any |= parts_.network->poll();
    if (parts_.uplinks != nullptr && parts_.uplinks->is_busy(now)) any |= parts_.uplinks->poll();
    return any;
}

void Loop::sleep(Instant deadline) {
    // Publish first, then look once more: a client either sees the flag and rings, or its doorbell
    // is seen here.
    parts_.page.sleeping.store(1, std::memory_order_seq_cst);
    if (!parts_.card.doorbell_pending()) {
        ++counters_.sleeps;
        bell_rang_ = false;
        const Instant before = monotonic_now();
        const Duration timeout =
            deadline.is_never() ? Duration{-1} : std::max(deadline - before, Duration{0});
        const int events = parts_.poller.wait(timeout);
        if (bell_rang_) ++counters_.bell_wakeups;
        if (events == 0) ++counters_.timer_wakeups;
        if (bell_rang_ || events == 0) {
            budget_.note_sleep(monotonic_now() - before);
        } else {
            budget_.note_message();
        }
    }
    parts_.page.sleeping.store(0, std::memory_order_seq_cst);
    rounds_since_look_ = 0;
    looked_ = monotonic_now();
}

}  // namespace rdmalab::card::host
