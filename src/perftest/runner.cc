#include "perftest/runner.h"

#include <fmt/format.h>
#include <sched.h>
#include <time.h>

#include <algorithm>

#include "perftest/channel.h"
#include "perftest/failure.h"

namespace rdmalab::perftest {

namespace {

constexpr int kEmptyTurnsPerLook = 32;  // at the clock and the board
// What a responder waits for messages that were sent but have not come (UC and UD may lose them).
constexpr std::int64_t kQuietNs = 200'000'000;

std::int64_t nanoseconds_of(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

void sleep_until(std::int64_t ns) {
    constexpr std::int64_t kSpinNs = 100'000;  // a sleeper wakes late by some of this
    std::int64_t wake = ns - kSpinNs;
    timespec time{.tv_sec = wake / 1'000'000'000, .tv_nsec = wake % 1'000'000'000};
    if (wake > monotonic_ns()) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);
    while (monotonic_ns() < ns) {
    }
}

}  // namespace

Runner::Runner(Endpoint& endpoint, Roles roles, BoardHead& head, BoardLine& line)
    : endpoint_(endpoint), plan_(endpoint.plan()), roles_(roles), head_(head), line_(line) {
    if (roles.requests) requester_.emplace(endpoint);
    if (roles.responds && plan_.sends_receives()) responder_.emplace(endpoint);
}

void Runner::prime() {
    if (responder_) responder_->prime();
}

void Runner::run(std::int64_t start_ns) {
    sleep_until(start_ns);
    result_.start_ns = wall_ns();
    line_.phase = Phase::kWarmup;
    if (plan_.metric == Metric::kLatency) {
        run_latency(start_ns);
    } else {
        run_bandwidth(start_ns);
    }
    line_.phase = Phase::kEnded;
}

// ------------------------------------------------------------------------------------------------
// bandwidth

int Runner::turn() {
    int found = requester_->poll();
    if (responder_) found += responder_->poll();
    if (found > 0) {
        line_.iterations.store(requester_->completed(), std::memory_order_relaxed);
    }
    return found;
}

// Keeps traffic going; the time at which it was found to be over.
std::int64_t Runner::run_until(std::int64_t deadline_ns) {
    for (int empty = 0;;) {
        if (turn() == 0 && ++empty < kEmptyTurnsPerLook) continue;
        empty = 0;
        std::int64_t now = monotonic_ns();
        if (now >= deadline_ns || is_interrupted()) return now;
    }
}

// Until every queue pair has completed so many iterations more, or Ctrl-C.
void Runner::run_more(std::uint64_t iterations) {
    std::uint64_t wanted = requester_->completed() + iterations * plan_.qps;
    requester_->allow_more(iterations);
    while (requester_->completed() < wanted) {
        turn();
        if (is_interrupted()) return drain();
    }
}

void Runner::drain() {
    requester_->hold();
    while (!requester_->is_drained()) turn();
}

void Runner::open_window(std::int64_t now_ns) {
    line_.phase.store(Phase::kMeasuring, std::memory_order_relaxed);
    window_start_ns_ = now_ns;
    at_window_start_ = requester_->completed_per_qp();
}

void Runner::close_window(std::int64_t now_ns) {
    line_.phase.store(Phase::kMargin, std::memory_order_relaxed);
    result_.window_ns = now_ns - window_start_ns_;
    result_.iterations_per_qp = requester_->completed_per_qp();
    for (std::size_t i = 0; i < at_window_start_.size(); ++i) {
        result_.iterations_per_qp[i] -= at_window_start_[i];
    }
    result_.interrupted = is_interrupted() && !plan_.infinite;
}

void Runner::run_bandwidth(std::int64_t start_ns) {
    warm_up(start_ns);
    if (plan_.iterations > 0) {
        measure_count();
    } else {
        measure_time();
    }
    run_margin();
    drain();
}

void Runner::warm_up(std::int64_t start_ns) {
    if (plan_.warmup_iterations > 0) {
        run_more(plan_.warmup_iterations);
    } else if (plan_.warmup_s > 0) {
        requester_->allow_all();
        run_until(start_ns + nanoseconds_of(plan_.warmup_s));
    }
}

void Runner::measure_time() {
    std::int64_t now = monotonic_ns();
    open_window(now);
    requester_->allow_all();
    std::int64_t end = plan_.infinite ? INT64_MAX : now + nanoseconds_of(plan_.duration_s);
    close_window(run_until(end));
}

// A counted window begins and ends with empty queues: exactly so many are posted and completed.
void Runner::measure_count() {
    drain();
    open_window(monotonic_ns());
    run_more(plan_.iterations);
    close_window(monotonic_ns());
}

void Runner::run_margin() {
    if (plan_.end_margin_s <= 0 || is_interrupted()) return;
    requester_->allow_all();
    run_until(monotonic_ns() + nanoseconds_of(plan_.end_margin_s));
}

// ------------------------------------------------------------------------------------------------
// both

void Runner::respond() {
    if (plan_.is_ping_pong()) return answer();
    std::int64_t quiet_since = 0;
    for (int empty = 0;;) {
        int found = responder_ ? responder_->poll() : 0;
        if (found > 0) {
            quiet_since = 0;
            empty = 0;
            line_.iterations.store(responder_->received(), std::memory_order_relaxed);
            continue;
        }
        if (!responder_) {
            timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
            nanosleep(&pause, nullptr);
        } else if (++empty < kEmptyTurnsPerLook) {
            continue;
        }
        empty = 0;
        if (!is_stopped()) continue;
        std::uint64_t expected = line_.expected.load(std::memory_order_acquire);
        std::int64_t now = monotonic_ns();
        if (quiet_since == 0) quiet_since = now;
        bool complete = !responder_ || responder_->received() >= expected;
        if (complete || now - quiet_since > kQuietNs) return;
    }
}

ProcessResult Runner::result() const {
    ProcessResult out = result_;
    if (requester_) out.posted = requester_->posted();
    if (responder_) {
        out.received = responder_->received();
        out.invalid = responder_->invalid();
    }
    out.numa_node = endpoint_.numa_node();
    return out;
}

}  // namespace rdmalab::perftest
