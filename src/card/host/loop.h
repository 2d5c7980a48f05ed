// The card's single thread: rounds of the card core, and how it waits between them.
//
// While there is work, rounds follow each other and descriptors are looked at now and then. When a
// round finds nothing, the loop first waits awake: it looks for doorbells and yields the processor
// in between, since clients that poll need it to ring one. If nothing comes it publishes `sleeping`
// in the card page and sleeps in epoll until a bell, a message or the next deadline. An idle card
// makes no system call at all.
//
// How long it waits awake follows from the sleeps before: short ones say that staying awake would
// have paid, long ones that it would not. Nor would it have when a message ended the sleep: those
// are not seen while it waits awake, but kept waiting.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "card/card.h"
#include "card/host/attachments.h"
#include "card/host/capture.h"
#include "card/host/descriptor.h"
#include "card/host/loop_counters.h"
#include "card/host/network.h"
#include "card/host/poller.h"
#include "card/host/shared_memory.h"
#include "card/host/uplinks.h"

namespace rdmalab::card::host {

// The number of empty looks for doorbells before the loop goes to sleep.
class SpinBudget {
public:
    explicit SpinBudget(std::uint32_t looks_max) : looks_max_(looks_max), looks_(looks_max) {}
    std::uint32_t looks() const { return looks_; }
    void note_hit() { looks_ = looks_max_; }
    void note_sleep(Duration slept);
    void note_message();  // ended a sleep

private:
    std::uint32_t looks_max_, looks_;
};

class Loop {
public:
    struct Parts {
        Card& card;
        Attachments& attachments;
        Captures& captures;
        Poller& poller;
        abi::CardPage& page;
        int bell_fd;
        // Under SCHED_FIFO a spinning card would keep the clients off the processor.
        bool may_spin;
        Network* network = nullptr;  // null: none
        Uplinks* uplinks = nullptr;  // null: none
    };

    Loop(const Parts& parts, LoopCounters& counters);
    ~Loop();

    void run();  // until stop()
    void stop() { stopping_ = true; }

private:
    void look_at_descriptors();
    void wait_for_work();
    bool wait_awake(Instant deadline);
    bool poll_interfaces(Instant now);
    void sleep(Instant deadline);

    Parts parts_;
    LoopCounters& counters_;
    SpinBudget budget_;
    Instant now_, looked_;
    std::uint32_t rounds_since_look_ = 0;
    Poller::Token bell_watch_ = Poller::kNone;
    bool bell_rang_ = false, stopping_ = false;
};

}  // namespace rdmalab::card::host
