#include "perftest/cluster/traffic.h"

#include <fmt/format.h>

#include "perftest/channel.h"
#include "perftest/failure.h"

namespace rdmalab::perftest {

namespace {

// A peer that has died shows itself by the retries of its queue pair; this is for those without.
constexpr std::int64_t kDrainNs = 15'000'000'000;

std::int64_t nanoseconds_of(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

}  // namespace

StreamTraffic::StreamTraffic(Endpoint& endpoint, Roles roles)
    : endpoint_(endpoint), plan_(endpoint.plan()) {
    if (roles.requests) requester_.emplace(endpoint);
    if (roles.responds && plan_.sends_receives()) responder_.emplace(endpoint);
}

void StreamTraffic::prime() {
    if (responder_) responder_->prime();
}

bool StreamTraffic::is_busy() const {
    return responder_.has_value() || (state_ != State::kIdle && !is_done());
}

void StreamTraffic::begin(std::int64_t start_ns) {
    start_ns_ = start_ns;
    if (!requester_) return;
    state_ = State::kWarmup;
    if (plan_.warmup_iterations > 0) {
        wanted_ = requester_->completed() + plan_.warmup_iterations * plan_.qps;
        requester_->allow_more(plan_.warmup_iterations);
        return;
    }
    state_end_ns_ = start_ns + nanoseconds_of(plan_.warmup_s);
    if (plan_.warmup_s > 0) requester_->allow_all();
}

// The clock is read before the completions of this turn are polled, so what is counted at `now_ns`
// is what was polled before it.
bool StreamTraffic::turn(std::int64_t now_ns) {
    bool moved = requester_ && step(now_ns);
    int found = requester_ && state_ != State::kIdle ? requester_->poll() : 0;
    if (responder_) found += responder_->poll();
    return moved || found > 0;
}

bool StreamTraffic::step(std::int64_t now_ns) {
    State before = state_;
    bool counted_warmup = plan_.warmup_iterations > 0;
    switch (state_) {
        case State::kIdle:
        case State::kEnded:
            return false;
        case State::kWarmup:
            if (interrupted_) {
                was_interrupted_ = true;
                drain(now_ns);
            } else if (counted_warmup ? requester_->completed() >= wanted_
                                      : now_ns >= state_end_ns_) {
                start_window(now_ns);
            }
            break;
        case State::kSettling:
            if (requester_->is_drained()) {
                open_window(monotonic_ns());
                wanted_ = requester_->completed() + plan_.iterations * plan_.qps;
                requester_->allow_more(plan_.iterations);
            }
            break;
        case State::kMeasuring: {
            bool over =
                plan_.iterations > 0 ? requester_->completed() >= wanted_ : now_ns >= state_end_ns_;
            if (over || interrupted_) close_window(now_ns);
            break;
        }
        case State::kMargin:
            if (now_ns >= state_end_ns_ || interrupted_) drain(now_ns);
            break;
        case State::kDraining:
            if (requester_->is_drained()) {
                state_ = State::kEnded;
            } else if (now_ns >= state_end_ns_) {
                throw Failure(
                    fmt::format("{} of {} work requests had no completion {} s after the "
                                "end of the test",
                                requester_->posted() - requester_->completed(),
                                requester_->posted(), kDrainNs / 1'000'000'000));
            }
            break;
    }
    return state_ != before;
}

// A counted window begins and ends with empty queues: exactly so many are posted and completed.
void StreamTraffic::start_window(std::int64_t now_ns) {
    if (plan_.iterations > 0) {
        requester_->hold();
        state_ = State::kSettling;
        return;
    }
    open_window(now_ns);
    // By the common clock, so that all windows of a test end together.
    state_end_ns_ = start_ns_ + nanoseconds_of(plan_.warmup_s + plan_.duration_s);
    if (plan_.warmup_iterations > 0) state_end_ns_ = now_ns + nanoseconds_of(plan_.duration_s);
    requester_->allow_all();
}

void StreamTraffic::open_window(std::int64_t now_ns) {
    state_ = State::kMeasuring;
    window_start_ns_ = now_ns;
    at_window_start_ = requester_->completed_per_qp();
}

void StreamTraffic::close_window(std::int64_t now_ns) {
    window_end_ns_ = now_ns;
    in_window_ = requester_->completed_per_qp();
    for (std::size_t i = 0; i < in_window_.size(); ++i) in_window_[i] -= at_window_start_[i];
    was_interrupted_ = interrupted_;
    if (plan_.end_margin_s <= 0 || interrupted_) return drain(now_ns);
    state_ = State::kMargin;
    state_end_ns_ = now_ns + nanoseconds_of(plan_.end_margin_s);
    requester_->allow_all();
}

void StreamTraffic::drain(std::int64_t now_ns) {
    requester_->hold();
    state_ = State::kDraining;
    state_end_ns_ = now_ns + kDrainNs;
}

ProcessResult StreamTraffic::result(std::int64_t now_ns) const {
    ProcessResult out;
    out.is_requester = requester_.has_value();
    out.interrupted = was_interrupted_;
    if (requester_) {
        out.posted = requester_->posted();
        bool broken = window_start_ns_ > 0 && window_end_ns_ == 0;
        out.iterations_per_qp = broken ? requester_->completed_per_qp() : in_window_;
        for (std::size_t i = 0; broken && i < out.iterations_per_qp.size(); ++i) {
            out.iterations_per_qp[i] -= at_window_start_[i];
        }
        if (window_start_ns_ > 0) {
            out.window_ns = (broken ? now_ns : window_end_ns_) - window_start_ns_;
        }
    }
    if (responder_) {
        out.received = responder_->received();
        out.invalid = responder_->invalid();
    }
    out.numa_node = endpoint_.numa_node();
    return out;
}

std::unique_ptr<Traffic> make_traffic(Endpoint& endpoint, Roles roles, bool is_source) {
    const Plan& plan = endpoint.plan();
    if (plan.metric == Metric::kBandwidth) return std::make_unique<StreamTraffic>(endpoint, roles);
    if (is_source) return std::make_unique<PingTraffic>(endpoint, roles);
    if (plan.is_ping_pong()) return std::make_unique<EchoTraffic>(endpoint, roles);
    // Timed on the other side only: receives and nothing else.
    return std::make_unique<StreamTraffic>(endpoint, roles);
}

}  // namespace rdmalab::perftest
