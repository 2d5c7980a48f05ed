// Tells the card that a queue has work: see "Doorbell" in card/ring_abi.h.
#pragma once

#include <unistd.h>

#include "card/ring_abi.h"

namespace rdmalab::verbs {

class Doorbell {
public:
    Doorbell() = default;
    Doorbell(abi::DoorbellArea* area, const abi::CardPage* page, int bell_fd)
        : area_(area), page_(page), bell_fd_(bell_fd) {}

    void ring(std::uint32_t slot) const {
        std::uint32_t leaf = slot / 64;
        std::uint32_t mid = leaf / 64;
        // A bit that is still set belongs to somebody who rings for us too: the card clears it
        // before it reads the producer index that we have stored.
        if (was_set(area_->leaf[leaf], slot % 64)) return;
        if (!was_set(area_->mid[mid], leaf % 64)) was_set(area_->top, mid);
        if (page_->sleeping.load(std::memory_order_seq_cst) != 0) wake_card();
    }

private:
    static bool was_set(std::atomic<std::uint64_t>& word, std::uint32_t bit) {
        std::uint64_t mask = 1ull << bit;
        return (word.fetch_or(mask, std::memory_order_seq_cst) & mask) != 0;
    }
    void wake_card() const {
        std::uint64_t one = 1;
        // An eventfd at its limit is readable, so the card wakes even when this write fails.
        [[maybe_unused]] ssize_t ignored = write(bell_fd_, &one, sizeof one);
    }

    abi::DoorbellArea* area_ = nullptr;
    const abi::CardPage* page_ = nullptr;
    int bell_fd_ = -1;
};

}  // namespace rdmalab::verbs
