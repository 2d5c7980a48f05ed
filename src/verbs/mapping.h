// A shared mapping of one region of the context's memory; unmapped with its owner.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "card/ring_abi.h"

namespace rdmalab::verbs {

class Mapping {
public:
    Mapping() = default;
    Mapping(Mapping&& other) noexcept
        : base_(std::exchange(other.base_, nullptr)), length_(std::exchange(other.length_, 0)) {}
    Mapping& operator=(Mapping&& other) noexcept {
        std::swap(base_, other.base_);
        std::swap(length_, other.length_);
        return *this;
    }
    ~Mapping() {
        if (base_ != nullptr) munmap(base_, length_);
    }

    // 0 or an errno value. `needed` bytes must be there, or the region is not what it claims to be.
    int map(int fd, const abi::Region& region, std::size_t needed,
            int protection = PROT_READ | PROT_WRITE) {
        if (region.length < needed) return EPROTO;
        void* base = mmap(nullptr, region.length, protection, MAP_SHARED, fd,
                          static_cast<off_t>(region.offset));
        if (base == MAP_FAILED) return errno;
        *this = Mapping(static_cast<std::byte*>(base), region.length);
        return 0;
    }
    std::byte* base() const { return base_; }

private:
    Mapping(std::byte* base, std::size_t length) : base_(base), length_(length) {}
    std::byte* base_ = nullptr;
    std::size_t length_ = 0;
};

}  // namespace rdmalab::verbs
