// MAC -> vport. The MACs are configured, so nothing is learned and nothing ages. Open addressing
// with linear probing: at most half of the slots are in use, so a look-up touches one or two of
// them.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "base/address.h"
#include "base/bytes.h"
#include "base/ids.h"
#include "flow/output_list.h"

namespace rdmalab::flow {

class ForwardingTable {
public:
    // `mac` is not in the table; there is room for kPortMax of them.
    void add(const MacAddress& mac, VportId port);
    // nullptr: unknown.
    const VportId* find(const MacAddress& mac) const {
        const std::uint64_t key = key_of(mac);
        for (std::size_t slot = first_slot(key); slots_[slot].key != kEmpty;
             slot = (slot + 1) % kSlots)
            if (slots_[slot].key == key) return &slots_[slot].port;
        return nullptr;
    }

private:
    static constexpr std::size_t kSlots = 2 * kPortMax;
    static_assert(std::has_single_bit(kSlots));

    struct Slot {
        std::uint64_t key = kEmpty;
        VportId port;
    };
    // No MAC has this key: the upper 16 bits of a key are zero.
    static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

    static std::uint64_t key_of(const MacAddress& mac) {
        return std::uint64_t{load<std::uint16_t>(mac, 4)} << 32 | load<std::uint32_t>(mac, 0);
    }
    template <class T>
    static T load(const MacAddress& mac, std::size_t at) {
        return load_bytes<T>(std::as_bytes(std::span(mac.bytes)).data() + at);
    }
    // Fibonacci hashing: the MACs of a card differ in a few bits only.
    static std::size_t first_slot(std::uint64_t key) {
        constexpr int kShift = 64 - std::countr_zero(kSlots);
        return static_cast<std::size_t>(key * 0x9e37'79b9'7f4a'7c15 >> kShift);
    }

    std::array<Slot, kSlots> slots_;
    std::size_t size_ = 0;
};

}  // namespace rdmalab::flow
