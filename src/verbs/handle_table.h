// From a handle of the card (CQ, SRQ, doorbell slot) to the object of the program. Readers are
// pollers: they take no lock and may run while another thread inserts, so leaves appear atomically
// and stay until the context is closed.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

namespace rdmalab::verbs {

template <class T>
class HandleTable {
public:
    HandleTable() = default;
    HandleTable(const HandleTable&) = delete;
    HandleTable& operator=(const HandleTable&) = delete;
    ~HandleTable() {
        for (auto& leaf : leaves_) delete leaf.load(std::memory_order_relaxed);
    }

    T* find(std::uint32_t handle) const {
        if (handle >= kHandleMax) return nullptr;
        const Leaf* leaf = leaves_[handle >> kLeafBits].load(std::memory_order_acquire);
        if (leaf == nullptr) return nullptr;
        return leaf->slots[handle & kLeafMask].load(std::memory_order_acquire);
    }
    // False: out of memory, or the card gave a handle outside of what the ABI allows. Writers are
    // serialised by the caller.
    bool insert(std::uint32_t handle, T* object) {
        if (handle >= kHandleMax) return false;
        std::atomic<Leaf*>& leaf = leaves_[handle >> kLeafBits];
        if (leaf.load(std::memory_order_relaxed) == nullptr) {
            Leaf* fresh = new (std::nothrow) Leaf();
            if (fresh == nullptr) return false;
            leaf.store(fresh, std::memory_order_release);
        }
        leaf.load(std::memory_order_relaxed)
            ->slots[handle & kLeafMask]
            .store(object, std::memory_order_release);
        return true;
    }
    // The card may have given the handle to a new object already; that one stays.
    void erase(std::uint32_t handle, const T* object) {
        if (find(handle) == object) insert(handle, nullptr);
    }

    static constexpr std::uint32_t kHandleMax = 1u << 24;

private:
    static constexpr std::uint32_t kLeafBits = 12;
    static constexpr std::uint32_t kLeafMask = (1u << kLeafBits) - 1;
    struct Leaf {
        std::atomic<T*> slots[1u << kLeafBits] = {};
    };
    std::atomic<Leaf*> leaves_[kHandleMax >> kLeafBits] = {};
};

}  // namespace rdmalab::verbs
