// The card's side of the rings to a congestion control process (pcc_abi.h). Trusts nothing that the
// process writes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/units.h"
#include "pcc/pcc_abi.h"

namespace rdmalab::pcc {

// Bytes of shared memory that a process with so many workers needs.
std::uint64_t shared_size(std::uint32_t workers);
// Writes the page of a fresh, zeroed memory.
void format_shared(std::byte* base, std::uint32_t workers);
AlgorithmPage& algorithm_page_of(std::byte* base);
WorkerRings& rings_of(std::byte* base, std::uint32_t worker);

class EventLink {
public:
    // A sleeping worker is woken when so many events wait for it, or the oldest for so long.
    static constexpr std::uint32_t kWakeEvents = 64;
    static constexpr Duration kWakeDelay = microseconds(20);

    EventLink(std::byte* base, std::uint32_t workers);

    // False: the ring of the flow's worker is full.
    bool push(const Event& event);
    // False: there is no answer, or the ring is broken.
    bool pop(Answer& answer);
    bool has_answer() const;
    bool is_broken() const { return is_broken_; }

    // Ends a round: `wake` is called for the futex words of workers that sleep on events.
    void publish(Instant now, const std::function<void(std::atomic<std::uint32_t>&)>& wake);
    // How long the oldest event of any worker has been waiting, as far as calls of this tell.
    Duration stuck_for(Instant now);
    // When publish has something to do.
    Instant next_deadline() const;

    PccPage& page() { return *page_; }
    std::uint32_t workers() const { return static_cast<std::uint32_t>(workers_.size()); }
    std::uint64_t answers_taken() const { return answers_taken_; }

private:
    struct Worker {
        WorkerRings* rings = nullptr;
        std::uint32_t produced = 0;  // events
        std::uint32_t consumed = 0;  // answers
        bool is_dirty = false;       // events since the worker was last seen awake or woken
        Instant dirty_since = Instant::never();
        std::uint32_t dirty_from = 0;
        bool was_waiting = false;  // ... for the process when stuck_for looked last
        std::uint32_t seen_consumer = 0;
        Instant seen_since;
    };
    std::uint32_t waiting(const Worker& worker, std::uint32_t consumer) const {
        return worker.produced - consumer;
    }

    PccPage* page_;
    std::vector<Worker> workers_;
    std::uint32_t turn_ = 0;
    bool is_broken_ = false;
    bool is_dirty_ = false;
    std::uint64_t answers_taken_ = 0;
};

}  // namespace rdmalab::pcc
