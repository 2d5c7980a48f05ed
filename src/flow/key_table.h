// Keys of a pipe's entries -> the entry's slot. Open addressing with linear probing; at most half
// of the cells are in use. Grows with its entries, never while packets are looked up.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flow/word_plan.h"

namespace rdmalab::flow {

class KeyTable {
public:
    static constexpr std::uint32_t kNone = 0xffff'ffff;

    explicit KeyTable(std::size_t words = 0) : words_(words), cells_(4) {}

    std::uint32_t find(const std::uint64_t* key) const {
        const std::uint64_t hash = hash_words(key, words_);
        const auto tag = static_cast<std::uint32_t>(hash >> 32);
        for (std::size_t at = hash & (cells_.size() - 1); cells_[at].slot != kNone;
             at = (at + 1) & (cells_.size() - 1)) {
            if (cells_[at].tag == tag && equals(cells_[at].slot, key)) return cells_[at].slot;
        }
        return kNone;
    }
    // The key is not in the table, the slot not in use.
    void insert(std::span<const std::uint64_t> key, std::uint32_t slot);
    // The key of `old_slot` leads to `new_slot` from now on, in one step.
    void replace(std::uint32_t old_slot, std::uint32_t new_slot);
    void erase(std::uint32_t slot);
    std::span<const std::uint64_t> key_of(std::uint32_t slot) const {
        return {keys_.data() + slot * words_, words_};
    }

private:
    struct Cell {
        std::uint32_t tag = 0;
        std::uint32_t slot = kNone;
    };

    bool equals(std::uint32_t slot, const std::uint64_t* key) const {
        const std::uint64_t* const own = keys_.data() + slot * words_;
        for (std::size_t i = 0; i < words_; ++i) {
            if (own[i] != key[i]) return false;
        }
        return true;
    }
    std::size_t cell_of(std::uint32_t slot) const;
    void store_key(std::span<const std::uint64_t> key, std::uint32_t slot);
    void put(std::uint32_t slot);
    void grow();

    std::size_t words_;
    std::size_t size_ = 0;
    std::vector<Cell> cells_;
    std::vector<std::uint64_t> keys_;  // words_ for each slot
};

}  // namespace rdmalab::flow
