// The latency half of the runner: one message in flight. A ping-pong is timed on the side that
// begins, from just before the post to the moment the answer is seen. The arrival of a plain write
// is seen in memory (its last byte changes), that of other verbs by a receive completion. Reads,
// atomics, mixes and one_way are timed to their own completion.
#include <sched.h>

#include "perftest/channel.h"
#include "perftest/runner.h"

namespace rdmalab::perftest {

namespace {

// Looks at memory between two looks at everything else. The processor is then offered to others:
// where there are fewer cores than pollers, whoever is to bring the answer waits for it.
constexpr int kLooksPerYield = 256;
constexpr int kEmptyPollsPerLook = 64;
// An answer that takes longer was lost (UC and UD do not retransmit).
constexpr std::int64_t kLostNs = 500'000'000;

std::int64_t nanoseconds_of(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

}  // namespace

// True when waiting is over without an arrival.
bool Runner::gives_up(bool answers, std::int64_t since_ns) {
    requester_->poll();  // a broken queue pair throws here
    if (answers) return is_stopped();
    return plan_.transport != Transport::kRc && monotonic_ns() - since_ns > kLostNs;
}

bool Runner::wait_for_message(bool answers) {
    std::int64_t since = 0;
    for (int empty = 1;; ++empty) {
        if (responder_->poll() > 0) return true;
        if (empty % kEmptyPollsPerLook != 0) continue;
        if (since == 0) since = monotonic_ns();
        if (gives_up(answers, since)) return false;
    }
}

std::uint8_t Runner::watched_byte() const {
    std::byte* last = endpoint_.target(0).host(0, 0) + plan_.operations.front().size - 1;
    return __atomic_load_n(reinterpret_cast<std::uint8_t*>(last), __ATOMIC_ACQUIRE);
}

void Runner::set_byte(std::uint8_t value) {
    std::byte* last = endpoint_.local(0).host(0, 0) + plan_.operations.front().size - 1;
    *last = std::byte{value};
}

bool Runner::wait_for_byte(bool answers) {
    std::int64_t since = 0;
    for (;;) {
        for (int i = 0; i < kLooksPerYield; ++i) {
            std::uint8_t value = watched_byte();
            if (value == last_byte_) continue;
            last_byte_ = value;
            return true;
        }
        sched_yield();
        if (since == 0) since = monotonic_ns();
        if (gives_up(answers, since)) return false;
    }
}

void Runner::wait_for_completion() {
    while (requester_->poll() == 0) {
    }
}

// One message; false when it was lost.
bool Runner::sample() {
    bool memory = watches_memory();
    if (!plan_.is_ping_pong()) {
        std::int64_t before = monotonic_ns();
        requester_->allow_more(1);
        wait_for_completion();
        sample_end_ns_ = monotonic_ns();
        sample_ns_ = sample_end_ns_ - before;
        return true;
    }
    if (memory) set_byte(++sent_byte_);
    std::int64_t before = monotonic_ns();
    requester_->post_one();
    bool arrived = memory ? wait_for_byte(false) : wait_for_message(false);
    sample_end_ns_ = monotonic_ns();
    sample_ns_ = sample_end_ns_ - before;
    return arrived;
}

void Runner::run_latency(std::int64_t start_ns) {
    std::int64_t warm = start_ns + nanoseconds_of(plan_.warmup_s);
    sample_end_ns_ = start_ns;
    while (sample_end_ns_ < warm && !is_interrupted()) sample();
    line_.phase.store(Phase::kMeasuring, std::memory_order_relaxed);
    std::int64_t begin = monotonic_ns();
    bool counted = plan_.iterations > 0;
    std::int64_t end =
        counted || plan_.infinite ? INT64_MAX : begin + nanoseconds_of(plan_.duration_s);
    sample_end_ns_ = begin;
    while (sample_end_ns_ < end && !is_interrupted()) {
        if (counted && result_.latency.count() + result_.lost >= plan_.iterations) break;
        if (sample()) {
            result_.latency.record(sample_ns_);
        } else {
            ++result_.lost;
        }
        line_.iterations.store(result_.latency.count(), std::memory_order_relaxed);
    }
    result_.window_ns = sample_end_ns_ - begin;
    result_.iterations_per_qp = {result_.latency.count()};
    result_.interrupted = is_interrupted() && !plan_.infinite;
}

void Runner::answer() {
    for (;;) {
        bool arrived = watches_memory() ? wait_for_byte(true) : wait_for_message(true);
        if (!arrived) return;
        if (watches_memory()) set_byte(last_byte_);
        requester_->post_one();
    }
}

}  // namespace rdmalab::perftest
