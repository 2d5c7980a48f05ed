// One direction of a cable that does something to its frames: a link that wraps the link.
//
// A cable without impairments is no queue at all: the switchboard hands frames over by reference.
// An impaired one works on bytes, as a real cable does. At the entry a frame is written out whole,
// with its ICRC, the payload being read from where it lies; then it may be lost, damaged, doubled,
// marked or made late; at the exit it is parsed again, so every damage meets the same checks as on
// a real port.
//
// Time at the entry: a frame leaves the sender's buffer when the frames before it have left, at the
// rate of the cable. What waits there is bounded (kBacklogFramesMax, kBacklogBytesMax), what comes
// on top is dropped. Then it travels for `delay` plus a random part of `jitter`, but never
// overtakes the frame before. Reordering takes a frame out of that line until one to three others
// have passed, or kReorderHold is over.
//
// All chance comes from one generator per direction, seeded by card and cable: the same frames meet
// the same fate in every run.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "base/prng.h"
#include "card/card.h"
#include "card/config.h"
#include "transport/ports.h"
#include "wire/frame.h"

namespace rdmalab::card {

// The payload of a frame, from where it lies, into `out`. False: it is not there, which `faults`
// then blames on its emitter.
bool read_payload(const wire::Frame& frame, transport::MemoryPort& memory,
                  std::vector<std::byte>& out, std::vector<transport::CopyFault>& faults);

// Frames as bytes. A buffer that has been handed out as payload must keep its bytes until the
// copies that refer to it are done, so `retire` only puts it aside and `reclaim`, called after the
// memory flush, makes it free again.
class FrameBuffers {
public:
    using Buffer = std::unique_ptr<std::vector<std::byte>>;
    Buffer take();
    void release(Buffer buffer) { free_.push_back(std::move(buffer)); }
    void retire(Buffer buffer) { retired_.push_back(std::move(buffer)); }
    bool any_retired() const { return !retired_.empty(); }
    void reclaim();

private:
    std::vector<Buffer> free_, retired_;
};

class CableDirection {
public:
    static constexpr std::size_t kBacklogFramesMax = 1'024;
    static constexpr std::size_t kBacklogBytesMax = 4u << 20;
    // Frames under way are not in anybody's buffer on a real cable; here they need memory.
    static constexpr std::size_t kTravellingBytesMax = 256u << 20;
    static constexpr Duration kReorderHold = microseconds(100);

    CableDirection(std::uint64_t seed, bool as_bytes, FrameBuffers& buffers,
                   transport::MemoryPort& memory, std::vector<transport::CopyFault>& faults)
        : prng_(seed), as_bytes_(as_bytes), buffers_(buffers), memory_(memory), faults_(faults) {}

    const Impairments& impairments() const { return impairments_; }
    // Frames that are under way keep the time they were given.
    void set_impairments(const Impairments& impairments) { impairments_ = impairments; }

    // Nothing to do to frames, and none is under way that this one could overtake: the caller hands
    // the frame over itself (and calls count_direct).
    bool is_direct() const {
        return !as_bytes_ && travelling_.empty() && held_.empty() && !impairments_.any();
    }
    void count_direct(std::size_t bytes) {
        ++counters_.frames;
        counters_.bytes += bytes;
    }

    void handle_frame(const wire::Frame& frame, Instant now);
    // The next frame that has arrived by `now`; false when there is none. A frame that no longer
    // parses is passed over and counted in `unreadable`. The payload lies in a buffer that lives
    // until FrameBuffers::reclaim.
    bool poll_frame(Instant now, wire::Frame& out, std::uint64_t& unreadable);
    Instant next_deadline() const;

    const CableCounters& counters() const { return counters_; }

private:
    struct Travelling {
        Instant arrival;
        FrameBuffers::Buffer bytes;
    };
    struct Held {
        std::uint32_t passes_left;
        Instant deadline;
        FrameBuffers::Buffer bytes;
    };
    struct Departure {
        Instant time;
        std::size_t bytes;
    };

    bool enter_backlog(std::size_t bytes, Instant now, Instant& departure);
    FrameBuffers::Buffer materialise(const wire::Frame& frame, std::size_t length);
    void corrupt(std::vector<std::byte>& bytes);
    Instant arrival_after(Instant departure);
    void launch(FrameBuffers::Buffer bytes, Instant arrival);
    void let_pass(Instant arrival);
    void release_overdue(Instant now);

    Impairments impairments_;
    Prng prng_;
    bool as_bytes_;
    FrameBuffers& buffers_;
    transport::MemoryPort& memory_;
    std::vector<transport::CopyFault>& faults_;  // payload that could not be read
    CableCounters counters_;
    std::deque<Departure> backlog_;
    std::size_t backlog_bytes_ = 0, travelling_bytes_ = 0;
    std::deque<Travelling> travelling_;  // in the order of arrival
    std::vector<Held> held_;
    Instant sender_free_{0}, last_arrival_{0};
    std::vector<std::byte> payload_;  // scratch of materialise
};

}  // namespace rdmalab::card
