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

    explicit KeyTable(std::size_t words = 0) : words_(words), cells_(kCellsFirst) {}

    std::uint32_t find(const std::uint64_t* key) const {
        if (words_ == 0) return only_;
        for (std::size_t at = hash_words(key, words_) & mask_;; at = (at + 1) & mask_) {
            const Cell& cell = cells_[at];
            if (cell.slot == kNone) return kNone;
            if (cell.word == key[0] && equals(cell.slot, key)) return cell.slot;
        }
    }
    // The same of a table whose keys are one word.
    std::uint32_t find_word(std::uint64_t word) const {
        for (std::size_t at = hash_words(&word, 1) & mask_;; at = (at + 1) & mask_) {
            const Cell& cell = cells_[at];
            if (cell.slot == kNone || cell.word == word) return cell.slot;
        }
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
    static constexpr std::size_t kCellsFirst = 4;
    struct Cell {
        std::uint64_t word = 0;  // the first one of the key
        std::uint32_t slot = kNone;
    };

    // But for the first word.
    bool equals(std::uint32_t slot, const std::uint64_t* key) const {
        const std::uint64_t* const own = keys_.data() + slot * words_;
        for (std::size_t i = 1; i < words_; ++i) {
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
    std::size_t mask_ = kCellsFirst - 1;
    std::vector<Cell> cells_;
    std::uint32_t only_ = kNone;       // of a table whose keys have no words
    std::vector<std::uint64_t> keys_;  // words_ for each slot
};

}  // namespace rdmalab::flow
