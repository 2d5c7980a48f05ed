// Where the memory behind an lkey lies in this process: the library copies small payloads itself
// (both ways) and must not touch an address that no live registration covers. The card checks keys
// and rights; this table only guards the copies.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace rdmalab::verbs {

class MrTable {
public:
    MrTable() = default;
    MrTable(const MrTable&) = delete;
    MrTable& operator=(const MrTable&) = delete;
    ~MrTable() {
        for (auto& leaf : leaves_) delete leaf.load(std::memory_order_relaxed);
    }

    // Writers are serialised by the caller. False: out of memory.
    bool insert(std::uint32_t lkey, std::byte* memory, std::uint64_t iova, std::uint64_t length) {
        std::atomic<Leaf*>& leaf = leaves_[leaf_index(lkey)];
        if (leaf.load(std::memory_order_relaxed) == nullptr) {
            Leaf* fresh = new (std::nothrow) Leaf();
            if (fresh == nullptr) return false;
            leaf.store(fresh, std::memory_order_release);
        }
        Range& range = leaf.load(std::memory_order_relaxed)->ranges[slot_index(lkey)];
        range.memory.store(memory, std::memory_order_relaxed);
        range.iova.store(iova, std::memory_order_relaxed);
        range.length.store(length, std::memory_order_relaxed);
        range.key.store(kLive | lkey, std::memory_order_release);
        return true;
    }
    void erase(std::uint32_t lkey) {
        Leaf* leaf = leaves_[leaf_index(lkey)].load(std::memory_order_relaxed);
        if (leaf != nullptr) leaf->ranges[slot_index(lkey)].key.store(0, std::memory_order_release);
    }

    // The memory of an SGE, or null when it is not inside one live registration.
    std::byte* find(std::uint32_t lkey, std::uint64_t address, std::uint64_t length) const {
        const Leaf* leaf = leaves_[leaf_index(lkey)].load(std::memory_order_acquire);
        if (leaf == nullptr) return nullptr;
        const Range& range = leaf->ranges[slot_index(lkey)];
        if (range.key.load(std::memory_order_acquire) != (kLive | lkey)) return nullptr;
        std::uint64_t offset = address - range.iova.load(std::memory_order_relaxed);
        std::uint64_t size = range.length.load(std::memory_order_relaxed);
        if (offset > size || length > size - offset) return nullptr;
        return range.memory.load(std::memory_order_relaxed) + offset;
    }

private:
    // An lkey is index << 8 | tag (base/ids.h).
    static constexpr std::uint32_t kTagBits = 8;
    static constexpr std::uint32_t kLeafBits = 10;
    static constexpr std::uint32_t kLeafCount = 1u << (32 - kTagBits - kLeafBits);
    static constexpr std::uint64_t kLive = 1ull << 32;
    static std::uint32_t leaf_index(std::uint32_t lkey) { return lkey >> (kTagBits + kLeafBits); }
    static std::uint32_t slot_index(std::uint32_t lkey) {
        return (lkey >> kTagBits) & ((1u << kLeafBits) - 1);
    }

    struct Range {
        std::atomic<std::uint64_t> key;
        std::atomic<std::byte*> memory;
        std::atomic<std::uint64_t> iova;
        std::atomic<std::uint64_t> length;
    };
    struct Leaf {
        Range ranges[1u << kLeafBits] = {};
    };
    std::atomic<Leaf*> leaves_[kLeafCount] = {};
};

}  // namespace rdmalab::verbs
