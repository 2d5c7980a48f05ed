// Registered memory of a socket.
#pragma once

#include <cstddef>
#include <cstdint>

#include "verbs/rdmacm/api.h"

namespace rdmalab::rdmacm {

class Buffer {
public:
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { reset(); }

    // 0 or an errno value. The memory is zero.
    int allocate(ibv_pd* pd, std::size_t length, int access);
    void reset();
    std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }
    std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(data_); }
    std::uint32_t lkey() const { return mr_ != nullptr ? mr_->lkey : 0; }
    std::uint32_t rkey() const { return mr_ != nullptr ? mr_->rkey : 0; }

private:
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    ibv_mr* mr_ = nullptr;
};

bool make_nonblocking(int fd);

}  // namespace rdmalab::rdmacm
