// Memory that work requests name: allocated as the memory type says, registered, and laid out so
// that each queue pair has a region of its own, with slots for messages that are in flight at once.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "perftest/plan.h"

namespace rdmalab::perftest {

// Throws Failure when a part that the memory type needs is absent here.
void require_memory(const Side& side);

// A layout of slots: the same on both sides, because both compute it from the plan.
struct Layout {
    std::uint64_t slot_bytes = 0;  // multiple of a cache line
    std::uint32_t slots = 1;       // per queue pair
    std::uint32_t qps = 1;

    // Small messages walk through a page, in up to `slots_max` slots; larger ones have one.
    static Layout of(std::uint64_t message_bytes, std::uint32_t qps, std::uint32_t slots_max);
    static Layout with_slots(std::uint64_t message_bytes, std::uint32_t qps, std::uint32_t slots);
    std::uint64_t total() const { return slot_bytes * slots * qps; }
    std::uint64_t offset(std::uint32_t qp, std::uint64_t slot) const {
        return (static_cast<std::uint64_t>(qp) * slots + slot % slots) * slot_bytes;
    }
};

class Buffer {
public:
    // Throws Failure with the cause. `purpose` is for its text.
    Buffer(ibv_pd* pd, Memory memory, const Layout& layout, int access, const std::string& purpose,
           std::optional<int> numa_node);
    ~Buffer();
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&&) = delete;

    std::uint64_t address(std::uint32_t qp, std::uint64_t slot) const {
        return base_ + layout_.offset(qp, slot);
    }
    std::uint32_t lkey() const { return mr_->lkey; }
    std::uint32_t rkey() const { return mr_->rkey; }
    const Layout& layout() const { return layout_; }
    // The same place for the processor; only host memory has one.
    std::byte* host(std::uint32_t qp, std::uint64_t slot) const {
        return host_ + layout_.offset(qp, slot);
    }
    bool is_huge() const { return huge_; }

private:
    void allocate_host(const std::string& purpose, std::optional<int> numa_node);
    void register_device(ibv_pd* pd, const std::string& purpose, int access);

    Layout layout_;
    std::byte* host_ = nullptr;
    std::size_t mapped_ = 0;
    bool huge_ = false;
    std::uint64_t base_ = 0;
    ibv_dm* dm_ = nullptr;
    ibv_mr* mr_ = nullptr;
};

}  // namespace rdmalab::perftest
