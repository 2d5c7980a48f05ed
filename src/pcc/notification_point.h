// The notification point: how often a QP may complain about marks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"

namespace rdmalab::pcc {

class NotificationPoint {
public:
    // A marked packet came for the QP in `slot`. True: a CNP is due.
    bool handle_mark(std::uint32_t slot, Duration interval, Instant now) {
        if (slot >= next_.size()) next_.resize(slot + 1);
        if (now < next_[slot]) return false;
        next_[slot] = now + interval;
        return true;
    }
    // Another QP may have the slot from now on.
    void forget(std::uint32_t slot) {
        if (slot < next_.size()) next_[slot] = {};
    }

private:
    std::vector<Instant> next_;  // by slot: not before
};

}  // namespace rdmalab::pcc
