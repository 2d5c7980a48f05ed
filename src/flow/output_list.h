// Where a frame leaves the e-switch: a list of ports with fixed capacity, made on the stack for
// each frame. Its array is not initialised, so an empty list costs nothing.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>

#include "base/ids.h"
#include "base/limits.h"

namespace rdmalab::flow {

// Ports of one domain: every function of the card may be in it, each with an uplink of its own.
inline constexpr std::size_t kPortMax = 2 * limits::kFunctionMax;

class OutputList {
public:
    OutputList() {}  // NOLINT(modernize-use-equals-default): leaves ids_ uninitialised
    void clear() { size_ = 0; }
    void add(VportId port) {
        assert(size_ < kPortMax);
        ids_[size_++] = port.value;
    }
    bool empty() const { return size_ == 0; }
    std::size_t size() const { return size_; }
    VportId operator[](std::size_t index) const {
        assert(index < size_);
        return {ids_[index]};
    }
    VportId back() const { return (*this)[size_ - 1]; }

private:
    std::size_t size_ = 0;
    std::array<decltype(VportId::value), kPortMax> ids_;
};

}  // namespace rdmalab::flow
