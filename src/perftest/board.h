// Memory that a main process shares with its workers: what they have done so far (for live reports
// and progress), when to begin and when to end. Made before the fork.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

namespace rdmalab::perftest {

enum class Phase : std::uint32_t { kPreparing, kWarmup, kMeasuring, kMargin, kEnded };

// One worker's line. Only the worker writes `iterations` and `phase`, only main the rest.
struct alignas(64) BoardLine {
    std::atomic<std::uint64_t> iterations{0};  // completed, of the whole run
    std::atomic<Phase> phase{Phase::kPreparing};
    std::atomic<std::uint64_t> expected{0};  // messages that the peer has sent to this worker
};

struct alignas(64) BoardHead {
    std::atomic<std::uint32_t> interrupted{0};  // end the measured window now
    std::atomic<std::uint32_t> stopped{0};      // responders: nothing more will come
    // The gate of tests over many hosts: `start_ns` and `phase` are written, then `round` is
    // raised. Workers sleep on `round`, so that nobody polls while others begin.
    std::atomic<std::uint32_t> round{0};
    std::atomic<std::uint32_t> phase{0};
    std::atomic<std::int64_t> start_ns{0};
};

class Board {
public:
    explicit Board(std::uint32_t workers);
    ~Board();
    Board(const Board&) = delete;
    Board& operator=(const Board&) = delete;

    BoardHead& head() { return *head_; }
    BoardLine& line(std::uint32_t worker) { return lines_[worker]; }

    // Lets all workers begin `phase` at that time of the monotonic clock.
    void open_gate(std::uint32_t phase, std::int64_t start_ns);
    // Ends the responders, and whoever still sleeps.
    void stop();

private:
    void* memory_;
    std::size_t length_;
    BoardHead* head_;
    BoardLine* lines_;
};

// Sleeps until the gate has been opened more often than `seen`, all has stopped, or some time has
// passed.
void wait_at_gate(BoardHead& head, std::uint32_t seen);

}  // namespace rdmalab::perftest
