// Runs one process's part of a plan: from the common start to the end of the last margin. The
// window is cut where the clock is read, and what is counted is counted there, so that iterations
// divided by the window are the rate, exactly.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "perftest/board.h"
#include "perftest/endpoint.h"
#include "perftest/metrics.h"
#include "perftest/requester.h"
#include "perftest/responder.h"

namespace rdmalab::perftest {

class Runner {
public:
    Runner(Endpoint& endpoint, Roles roles, BoardHead& head, BoardLine& line);

    // Before the peer may send.
    void prime();
    // The part of the side that begins: the client, or both when bidirectional.
    void run(std::int64_t start_ns);
    // Answers and receives until the board says that nothing more will come.
    void respond();

    // Counters of both roles; the caller adds who it is.
    ProcessResult result() const;

private:
    // Bandwidth.
    void run_bandwidth(std::int64_t start_ns);
    void warm_up(std::int64_t start_ns);
    void measure_time();
    void measure_count();
    void run_margin();
    void drain();
    int turn();
    std::int64_t run_until(std::int64_t deadline_ns);
    void run_more(std::uint64_t iterations);
    void open_window(std::int64_t now_ns);
    void close_window(std::int64_t now_ns);
    bool is_interrupted() const { return head_.interrupted.load(std::memory_order_relaxed) != 0; }
    bool is_stopped() const { return head_.stopped.load(std::memory_order_relaxed) != 0; }

    // Latency (latency.cc).
    void run_latency(std::int64_t start_ns);
    bool sample();
    void wait_for_completion();
    bool wait_for_message(bool answers);
    bool wait_for_byte(bool answers);
    bool gives_up(bool answers, std::int64_t since_ns);
    void answer();
    bool watches_memory() const { return plan_.operations.front().verb == Verb::kWrite; }
    void set_byte(std::uint8_t value);
    std::uint8_t watched_byte() const;

    Endpoint& endpoint_;
    const Plan& plan_;
    Roles roles_;
    BoardHead& head_;
    BoardLine& line_;
    std::optional<Requester> requester_;
    std::optional<Responder> responder_;
    ProcessResult result_;
    std::int64_t window_start_ns_ = 0;
    std::vector<std::uint64_t> at_window_start_;
    std::uint8_t last_byte_ = 0;  // that was seen in the watched buffer
    std::uint8_t sent_byte_ = 0;
    std::int64_t sample_ns_ = 0, sample_end_ns_ = 0;
};

}  // namespace rdmalab::perftest
