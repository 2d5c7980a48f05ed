// The next deadline among 65,536 QPs: a binary heap of (time, slot) in which each slot stands at
// most once and knows its place.
//
// A QP moves its deadline later with every ACK, so moving later costs nothing: the heap keeps the
// early time, and the QP is asked again when it comes. The price is one idle wake-up per timeout
// period of a busy QP.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"

namespace rdmalab::transport {

class DeadlineHeap {
public:
    // Wakes `slot` at `time` or earlier.
    void schedule(std::uint32_t slot, Instant time);
    void remove(std::uint32_t slot);
    Instant next() const { return heap_.empty() ? Instant::never() : heap_.front().time; }
    // Takes out the slot of next(); the heap is not empty.
    std::uint32_t pop();

private:
    struct Entry {
        Instant time;
        std::uint32_t slot;
    };
    static constexpr std::uint32_t kAbsent = 0xffff'ffff;

    void place(std::uint32_t index, Entry entry);
    void sift_up(std::uint32_t index, Entry entry);
    void sift_down(std::uint32_t index, Entry entry);

    std::vector<Entry> heap_;
    std::vector<std::uint32_t> position_;  // by slot
};

}  // namespace rdmalab::transport
