// The doorbells of a context: a three-level bitmap that clients set and the card clears
// (ring_abi.h).
#pragma once

#include <bit>

#include "card/ring_abi.h"

namespace rdmalab::card {

inline bool any_doorbell(const abi::DoorbellArea& area) {
    return area.top.load(std::memory_order_seq_cst) != 0;
}

// Calls `ring(slot)` for every slot that was rung. One load when nothing was.
template <class Ring>
bool drain_doorbells(abi::DoorbellArea& area, Ring&& ring) {
    if (area.top.load(std::memory_order_relaxed) == 0) return false;
    std::uint64_t top = area.top.exchange(0, std::memory_order_seq_cst);
    for (; top != 0; top &= top - 1) {
        const unsigned i = static_cast<unsigned>(std::countr_zero(top));
        std::uint64_t mid = area.mid[i].exchange(0, std::memory_order_seq_cst);
        for (; mid != 0; mid &= mid - 1) {
            const unsigned j = i * 64 + static_cast<unsigned>(std::countr_zero(mid));
            std::uint64_t leaf = area.leaf[j].exchange(0, std::memory_order_seq_cst);
            for (; leaf != 0; leaf &= leaf - 1) {
                ring(j * 64 + static_cast<unsigned>(std::countr_zero(leaf)));
            }
        }
    }
    return true;
}

}  // namespace rdmalab::card
