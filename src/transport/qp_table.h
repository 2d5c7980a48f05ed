// QPs by number. A QPN is tag << 16 | slot: the slot is found by one array access, and the tag
// changes each time a slot is reused, so a packet for a QP that is gone does not reach its
// successor.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "transport/qp.h"

namespace rdmalab::transport {

class QpTable {
public:
    // Tags start at a place that the seed chooses: two cards should not agree on QPNs by accident.
    explicit QpTable(std::uint64_t seed)
        : first_tag_(1 + static_cast<std::uint32_t>(seed % kTags)) {}

    Qp* find(Qpn qpn) {
        Qp* const qp = at(qpn.value & 0xffff);
        return qp != nullptr && qp->qpn == qpn ? qp : nullptr;
    }
    const Qp* find(Qpn qpn) const { return const_cast<QpTable*>(this)->find(qpn); }
    Qp* at(std::uint32_t slot) { return slot < slots_.size() ? slots_[slot].qp.get() : nullptr; }
    const Qp* at(std::uint32_t slot) const { return const_cast<QpTable*>(this)->at(slot); }

    // nullptr when all slots are taken.
    Qp* create() {
        std::uint32_t slot;
        if (slots_.size() < limits::kQpMax && free_.size() < kReuseDelay) {
            slot = static_cast<std::uint32_t>(slots_.size());
            slots_.emplace_back().tag = first_tag_;
        } else if (!free_.empty()) {
            slot = free_.front();
            free_.pop_front();
            slots_[slot].tag = slots_[slot].tag % kTags + 1;
        } else {
            return nullptr;
        }
        slots_[slot].qp = std::make_unique<Qp>();
        slots_[slot].qp->slot = slot;
        slots_[slot].qp->qpn = Qpn{slots_[slot].tag << 16 | slot};
        return slots_[slot].qp.get();
    }
    void erase(std::uint32_t slot) {
        slots_[slot].qp.reset();
        free_.push_back(slot);
    }
    std::uint32_t slot_count() const { return static_cast<std::uint32_t>(slots_.size()); }
    std::uint32_t size() const { return static_cast<std::uint32_t>(slots_.size() - free_.size()); }

private:
    // Tags 1..254: QPNs 0, 1 (general services) and 0xffffff (multicast) are never given out.
    static constexpr std::uint32_t kTags = 254;
    // That many slots rest before the oldest is used again.
    static constexpr std::size_t kReuseDelay = 64;
    struct Slot {
        std::unique_ptr<Qp> qp;
        std::uint32_t tag = 0;
    };
    std::vector<Slot> slots_;
    std::deque<std::uint32_t> free_;
    std::uint32_t first_tag_;
};

}  // namespace rdmalab::transport
