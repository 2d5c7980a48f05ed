// One end of one connection, as a machine that never waits: a worker has many of them and gives
// each a turn. (Between two hosts a process has one connection, and Runner may wait in it.)
//
// begin() says when its phase starts; from then on turn() moves it through warm-up, window, margin
// and draining, by the clock or by counts, until is_done(). Ends that only receive or answer are
// done from the beginning, and want turns until everybody has ended. turn() throws Failure when the
// connection breaks; what was counted until then stays.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "perftest/endpoint.h"
#include "perftest/metrics.h"
#include "perftest/requester.h"
#include "perftest/responder.h"

namespace rdmalab::perftest {

class Traffic {
public:
    virtual ~Traffic() = default;
    // Before the peer may send.
    virtual void prime() {}
    virtual void begin(std::int64_t start_ns) = 0;
    // True when something has happened: an arrival, a completion, a new state.
    virtual bool turn(std::int64_t now_ns) = 0;
    // End the window as soon as possible.
    virtual void interrupt() = 0;
    virtual bool is_done() const = 0;
    // Polling is of use: there may be arrivals, or it has begun and is not done.
    virtual bool is_busy() const = 0;
    virtual std::uint64_t completed() const = 0;
    virtual ProcessResult result(std::int64_t now_ns) const = 0;
};

// Bandwidth, in one or both directions.
class StreamTraffic final : public Traffic {
public:
    StreamTraffic(Endpoint& endpoint, Roles roles);
    void prime() override;
    void begin(std::int64_t start_ns) override;
    bool turn(std::int64_t now_ns) override;
    void interrupt() override { interrupted_ = true; }
    bool is_done() const override { return !requester_ || state_ == State::kEnded; }
    bool is_busy() const override;
    std::uint64_t completed() const override { return requester_ ? requester_->completed() : 0; }
    ProcessResult result(std::int64_t now_ns) const override;

private:
    enum class State { kIdle, kWarmup, kSettling, kMeasuring, kMargin, kDraining, kEnded };

    bool step(std::int64_t now_ns);
    void start_window(std::int64_t now_ns);
    void open_window(std::int64_t now_ns);
    void close_window(std::int64_t now_ns);
    void drain(std::int64_t now_ns);

    Endpoint& endpoint_;
    const Plan& plan_;
    std::optional<Requester> requester_;
    std::optional<Responder> responder_;
    State state_ = State::kIdle;
    bool interrupted_ = false, was_interrupted_ = false;
    std::int64_t start_ns_ = 0, state_end_ns_ = 0;
    std::int64_t window_start_ns_ = 0, window_end_ns_ = 0;
    std::uint64_t wanted_ = 0;  // completions that end the state, when it is counted
    std::vector<std::uint64_t> at_window_start_, in_window_;
};

// Latency on the side that begins.
class PingTraffic final : public Traffic {
public:
    PingTraffic(Endpoint& endpoint, Roles roles);
    void prime() override;
    void begin(std::int64_t start_ns) override;
    bool turn(std::int64_t now_ns) override;
    void interrupt() override { interrupted_ = true; }
    bool is_done() const override { return state_ == State::kEnded; }
    bool is_busy() const override { return state_ != State::kIdle && !is_done(); }
    std::uint64_t completed() const override { return counted_; }
    ProcessResult result(std::int64_t now_ns) const override;

private:
    enum class State { kIdle, kWarmup, kMeasuring, kEnded };

    void ping();
    bool has_arrived();
    void handle_sample(std::int64_t now_ns, bool lost);

    Endpoint& endpoint_;
    const Plan& plan_;
    Requester requester_;
    std::optional<Responder> responder_;
    State state_ = State::kIdle;
    bool interrupted_ = false, was_interrupted_ = false, in_flight_ = false;
    bool watches_memory_ = false;
    std::uint8_t sent_byte_ = 0, seen_byte_ = 0;
    std::int64_t start_ns_ = 0, state_end_ns_ = 0, sent_ns_ = 0;
    std::int64_t window_start_ns_ = 0, window_end_ns_ = 0;
    std::uint64_t lost_ = 0, counted_ = 0;
    Histogram latency_;
};

// Latency on the side that answers.
class EchoTraffic final : public Traffic {
public:
    EchoTraffic(Endpoint& endpoint, Roles roles);
    void prime() override;
    void begin(std::int64_t) override {}
    bool turn(std::int64_t now_ns) override;
    void interrupt() override {}
    bool is_done() const override { return true; }
    bool is_busy() const override { return true; }
    std::uint64_t completed() const override { return 0; }
    ProcessResult result(std::int64_t now_ns) const override;

private:
    Endpoint& endpoint_;
    Requester requester_;
    std::optional<Responder> responder_;
    bool watches_memory_ = false;
    std::uint8_t seen_byte_ = 0;
};

std::unique_ptr<Traffic> make_traffic(Endpoint& endpoint, Roles roles, bool is_source);

}  // namespace rdmalab::perftest
