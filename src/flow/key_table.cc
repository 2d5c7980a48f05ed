#include "flow/key_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace rdmalab::flow {

void KeyTable::store_key(std::span<const std::uint64_t> key, std::uint32_t slot) {
    assert(key.size() == words_);
    const std::size_t end = (slot + std::size_t{1}) * words_;
    if (keys_.size() < end) keys_.resize(std::max(end, 2 * keys_.size()));
    std::copy(key.begin(), key.end(), keys_.begin() + static_cast<std::ptrdiff_t>(end - words_));
}

void KeyTable::put(std::uint32_t slot) {
    const std::uint64_t hash = hash_words(key_of(slot).data(), words_);
    std::size_t at = hash & mask_;
    while (cells_[at].slot != kNone) at = (at + 1) & mask_;
    cells_[at] = {key_of(slot).front(), slot};
}

void KeyTable::grow() {
    const std::vector<Cell> old = std::exchange(cells_, std::vector<Cell>(2 * cells_.size()));
    mask_ = cells_.size() - 1;
    for (const Cell& cell : old) {
        if (cell.slot != kNone) put(cell.slot);
    }
}

void KeyTable::insert(std::span<const std::uint64_t> key, std::uint32_t slot) {
    if (words_ == 0) {
        only_ = slot;
        return;
    }
    if (2 * (size_ + 1) > cells_.size()) grow();
    store_key(key, slot);
    put(slot);
    ++size_;
}

std::size_t KeyTable::cell_of(std::uint32_t slot) const {
    std::size_t at = hash_words(key_of(slot).data(), words_) & mask_;
    while (cells_[at].slot != slot) {
        assert(cells_[at].slot != kNone);
        at = (at + 1) & mask_;
    }
    return at;
}

void KeyTable::replace(std::uint32_t old_slot, std::uint32_t new_slot) {
    if (words_ == 0) {
        only_ = new_slot;
        return;
    }
    const std::size_t cell = cell_of(old_slot);
    const std::vector<std::uint64_t> key(key_of(old_slot).begin(), key_of(old_slot).end());
    store_key(key, new_slot);
    cells_[cell].slot = new_slot;
}

// Closes the gap: what a probe would no longer reach moves back (Knuth vol. 3, 6.4, algorithm R).
void KeyTable::erase(std::uint32_t slot) {
    if (words_ == 0) {
        only_ = kNone;
        return;
    }
    std::size_t gap = cell_of(slot);
    cells_[gap] = {};
    for (std::size_t at = (gap + 1) & mask_; cells_[at].slot != kNone; at = (at + 1) & mask_) {
        const std::uint64_t hash = hash_words(key_of(cells_[at].slot).data(), words_);
        const std::size_t home = hash & mask_;
        if (((at - home) & mask_) < ((at - gap) & mask_)) continue;
        cells_[gap] = std::exchange(cells_[at], {});
        gap = at;
    }
    --size_;
}

}  // namespace rdmalab::flow
