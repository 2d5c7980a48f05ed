// Latency among many connections: one message in flight on each. It is timed as between two hosts
// (latency.cc), but the arrival is looked for in turns, so a worker with one connection measures
// the network and a worker with many measures itself, too.
#include "perftest/channel.h"
#include "perftest/cluster/traffic.h"

namespace rdmalab::perftest {

namespace {

// Looks at memory in one turn, before anything else is looked at.
constexpr int kLooksPerTurn = 64;
// An answer that takes longer was lost (UC and UD do not retransmit).
constexpr std::int64_t kLostNs = 500'000'000;

std::int64_t nanoseconds_of(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

bool watches_memory(const Plan& plan) {
    return plan.is_ping_pong() && plan.operations.front().verb == Verb::kWrite;
}

std::uint8_t watched_byte(const Endpoint& endpoint) {
    std::uint64_t size = endpoint.plan().operations.front().size;
    std::byte* last = endpoint.target(0).host(0, 0) + size - 1;
    return __atomic_load_n(reinterpret_cast<std::uint8_t*>(last), __ATOMIC_ACQUIRE);
}

void set_byte(const Endpoint& endpoint, std::uint8_t value) {
    std::uint64_t size = endpoint.plan().operations.front().size;
    *(endpoint.local(0).host(0, 0) + size - 1) = std::byte{value};
}

// A change of the watched byte.
bool sees_change(const Endpoint& endpoint, std::uint8_t& seen) {
    for (int i = 0; i < kLooksPerTurn; ++i) {
        std::uint8_t value = watched_byte(endpoint);
        if (value == seen) continue;
        seen = value;
        return true;
    }
    return false;
}

}  // namespace

PingTraffic::PingTraffic(Endpoint& endpoint, Roles roles)
    : endpoint_(endpoint),
      plan_(endpoint.plan()),
      requester_(endpoint),
      watches_memory_(watches_memory(plan_)) {
    if (roles.responds && plan_.sends_receives()) responder_.emplace(endpoint);
}

void PingTraffic::prime() {
    if (responder_) responder_->prime();
}

void PingTraffic::begin(std::int64_t start_ns) {
    start_ns_ = start_ns;
    state_ = State::kWarmup;
    state_end_ns_ = start_ns + nanoseconds_of(plan_.warmup_s);
}

void PingTraffic::ping() {
    in_flight_ = true;
    if (!plan_.is_ping_pong()) {
        sent_ns_ = monotonic_ns();
        requester_.allow_more(1);
        return;
    }
    if (watches_memory_) set_byte(endpoint_, ++sent_byte_);
    sent_ns_ = monotonic_ns();
    requester_.post_one();
}

bool PingTraffic::has_arrived() {
    if (!plan_.is_ping_pong()) return requester_.poll() > 0;
    bool arrived = watches_memory_ ? sees_change(endpoint_, seen_byte_) : responder_->poll() > 0;
    // Its own completions show a broken queue pair.
    if (!arrived) requester_.poll();
    return arrived;
}

void PingTraffic::handle_sample(std::int64_t now_ns, bool lost) {
    in_flight_ = false;
    if (state_ == State::kWarmup) return;
    if (lost) {
        ++lost_;
    } else {
        latency_.record(now_ns - sent_ns_);
        counted_ = latency_.count();
    }
    window_end_ns_ = now_ns;
}

bool PingTraffic::turn(std::int64_t now_ns) {
    if (!is_busy()) return false;
    bool moved = false;
    if (in_flight_) {
        if (has_arrived()) {
            handle_sample(monotonic_ns(), false);
            now_ns = monotonic_ns();
            moved = true;
        } else if (plan_.transport != Transport::kRc && now_ns - sent_ns_ > kLostNs) {
            handle_sample(now_ns, true);
        } else {
            return false;
        }
    }
    if (state_ == State::kWarmup && now_ns >= state_end_ns_) {
        state_ = State::kMeasuring;
        window_start_ns_ = window_end_ns_ = now_ns;
        bool counted = plan_.iterations > 0;
        state_end_ns_ =
            counted ? INT64_MAX : start_ns_ + nanoseconds_of(plan_.warmup_s + plan_.duration_s);
    }
    bool counted_out = plan_.iterations > 0 && latency_.count() + lost_ >= plan_.iterations;
    if (state_ == State::kMeasuring && (now_ns >= state_end_ns_ || counted_out)) {
        state_ = State::kEnded;
    } else if (interrupted_) {
        was_interrupted_ = true;
        state_ = State::kEnded;
    } else {
        ping();
    }
    return moved;
}

ProcessResult PingTraffic::result(std::int64_t) const {
    ProcessResult out;
    out.window_ns = window_end_ns_ - window_start_ns_;
    out.iterations_per_qp = {latency_.count()};
    out.posted = requester_.posted();
    out.lost = lost_;
    out.latency = latency_;
    out.interrupted = was_interrupted_;
    out.numa_node = endpoint_.numa_node();
    if (responder_) out.received = responder_->received();
    return out;
}

EchoTraffic::EchoTraffic(Endpoint& endpoint, Roles roles)
    : endpoint_(endpoint), requester_(endpoint), watches_memory_(watches_memory(endpoint.plan())) {
    if (roles.responds && endpoint.plan().sends_receives()) responder_.emplace(endpoint);
}

void EchoTraffic::prime() {
    if (responder_) responder_->prime();
}

bool EchoTraffic::turn(std::int64_t) {
    bool arrived = watches_memory_ ? sees_change(endpoint_, seen_byte_) : responder_->poll() > 0;
    if (!arrived) {
        requester_.poll();
        return false;
    }
    if (watches_memory_) set_byte(endpoint_, seen_byte_);
    requester_.post_one();
    return true;
}

ProcessResult EchoTraffic::result(std::int64_t) const {
    ProcessResult out;
    out.is_requester = false;
    out.posted = requester_.posted();
    if (responder_) out.received = responder_->received();
    out.numa_node = endpoint_.numa_node();
    return out;
}

}  // namespace rdmalab::perftest
