// All-to-all in lock-step, as collective operations move data: nobody begins an iteration before
// everybody has ended the one before. One process's part, over all its connections; a machine that
// never waits, like Traffic.
//
// An iteration:
//   data     all senders write; a message is split over the queue pairs, each at an offset of its
//   own sync     when all of it is complete, a write of nothing with immediate data to every peer
//   barrier  until the own syncs are complete and those of all peers have come
//   manage   untimed: what has come is checked, what goes next is written
//
// A peer that has passed the barrier may already write the next iteration's data while this process
// still checks: buffers have two halves that alternate. It cannot be two iterations ahead, because
// the barrier in between waits for this process.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "perftest/cluster/traffic.h"

namespace rdmalab::perftest {

class Lockstep {
public:
    // `number` makes the content of this connection's messages unlike those of others.
    void add(Endpoint& endpoint, bool sends, bool receives, std::uint32_t number, bool is_source);

    // Before the peer of that link may send.
    void prime(std::size_t link);
    void begin(std::int64_t start_ns);
    // Throws Failure when any connection breaks: nobody can go on then.
    bool turn(std::int64_t now_ns);
    void interrupt();
    bool is_begun() const { return state_ != State::kIdle; }
    bool is_done() const { return state_ == State::kEnded; }
    std::uint64_t completed() const { return iteration_; }
    ProcessResult result(std::size_t link) const;

private:
    enum class State { kIdle, kData, kSync, kEnded };
    struct Link {
        Endpoint* endpoint = nullptr;
        bool sends = false, receives = false;
        std::uint32_t sent_number = 0, received_number = 0;  // of the content, by direction
        std::uint32_t in_flight = 0;                         // work requests without completion
        std::uint64_t syncs = 0, invalid = 0, posted = 0;
    };

    const Plan& plan() const { return links_.front().endpoint->plan(); }
    bool poll(Link& link);
    void post_data(Link& link);
    void post_sync(Link& link);
    void post_receive(Link& link);
    void begin_iteration();
    void finish_iteration(std::int64_t now_ns);
    void fill(Link& link, std::uint64_t iteration);
    void check(Link& link);
    bool all_complete() const;
    bool all_synced() const;

    std::vector<Link> links_;
    State state_ = State::kIdle;
    bool interrupted_ = false;
    std::uint64_t iteration_ = 0, wanted_ = 0, counted_ = 0, corrupt_every_ = 0;
    std::int64_t begun_ns_ = 0, timed_ns_ = 0;
};

// One connection of a group, for those who know connections only.
class LockstepEnd final : public Traffic {
public:
    LockstepEnd(Lockstep& group, std::size_t link) : group_(group), link_(link) {}
    void prime() override { group_.prime(link_); }
    void begin(std::int64_t start_ns) override {
        if (!group_.is_begun()) group_.begin(start_ns);
    }
    bool turn(std::int64_t now_ns) override { return link_ == 0 && group_.turn(now_ns); }
    void interrupt() override { group_.interrupt(); }
    bool is_done() const override { return group_.is_done(); }
    bool is_busy() const override { return group_.is_begun() && !group_.is_done(); }
    std::uint64_t completed() const override { return group_.completed(); }
    ProcessResult result(std::int64_t) const override { return group_.result(link_); }

private:
    Lockstep& group_;
    std::size_t link_;
};

}  // namespace rdmalab::perftest
