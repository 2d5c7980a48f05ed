// Objects by their 32-bit number: open addressing, linear probing. The datapath looks up a QP and a
// CQ for every message, and their numbers are neither dense nor bounded by a small range (a QPN
// carries a tag), so neither a vector nor std::unordered_map fits.
#pragma once

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace rdmalab::card {

template <class T>
class IdMap {
public:
    IdMap() : slots_(kSlotsMin) {}

    T* find(std::uint32_t key) const {
        for (std::size_t i = home(key);; i = next(i)) {
            const Slot& slot = slots_[i];
            if (slot.value == nullptr || slot.key == key) return slot.value;
        }
    }
    // `key` must not be in the map.
    void insert(std::uint32_t key, T* value) {
        if (2 * (size_ + 1) > slots_.size()) resize(slots_.size() * 2);
        place(key, value);
        ++size_;
    }
    void erase(std::uint32_t key) {
        std::size_t hole = home(key);
        while (slots_[hole].value != nullptr && slots_[hole].key != key) hole = next(hole);
        if (slots_[hole].value == nullptr) return;
        close_hole(hole);
        --size_;
        if (slots_.size() > kSlotsMin && 8 * size_ < slots_.size()) resize(slots_.size() / 2);
    }
    std::size_t size() const { return size_; }
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (const Slot& slot : slots_) {
            if (slot.value != nullptr) visit(*slot.value);
        }
    }

private:
    static constexpr std::size_t kSlotsMin = 16;
    struct Slot {
        std::uint32_t key = 0;
        T* value = nullptr;  // nullptr: free
    };

    std::size_t home(std::uint32_t key) const {
        return (key * 0x9e37'79b1u) >> (32 - std::bit_width(slots_.size() - 1));
    }
    std::size_t next(std::size_t i) const { return (i + 1) & (slots_.size() - 1); }
    void place(std::uint32_t key, T* value) {
        std::size_t i = home(key);
        while (slots_[i].value != nullptr) i = next(i);
        slots_[i] = {key, value};
    }
    // Moves later members of the probe run back, so that no search stops early at the hole.
    void close_hole(std::size_t hole) {
        for (std::size_t i = next(hole); slots_[i].value != nullptr; i = next(i)) {
            const std::size_t distance = (i - home(slots_[i].key)) & (slots_.size() - 1);
            if (distance < ((i - hole) & (slots_.size() - 1))) continue;
            slots_[hole] = slots_[i];
            hole = i;
        }
        slots_[hole] = {};
    }
    void resize(std::size_t count) {
        std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(count));
        for (const Slot& slot : old) {
            if (slot.value != nullptr) place(slot.key, slot.value);
        }
    }

    std::vector<Slot> slots_;
    std::size_t size_ = 0;
};

}  // namespace rdmalab::card
