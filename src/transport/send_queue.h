// The send WQEs of a QP that were fetched and are not yet completed: a ring that grows on demand.
// It stays small because WQEs are fetched only when they can be emitted, within the window of
// unacknowledged packets.
#pragma once

#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "transport/types.h"

namespace rdmalab::transport {

struct SendWork {
    SendWqe wqe;
    Psn first_psn;
    // PSNs that the request takes up: its packets, or for a read those of its response. 0: local
    // work that makes no packet.
    std::uint32_t psn_count = 0;
    WcStatus status = WcStatus::kSuccess;  // an error found here, reported when its turn comes
    bool is_done = false;                  // local work that was carried out
    bool is_counted = false;               // in RequesterState::reads_in_flight

    // Ready to be filled in again, but for the SGEs: they are many, and the count says which are
    // used.
    void clear() {
        wqe.malformed = wqe.is_inline = wqe.solicited = wqe.fence = false;
        wqe.sge_count = 0;
        wqe.inline_data = {};
        wqe.head = {};
        wqe.fills_checksums = false;
        psn_count = 0;
        status = WcStatus::kSuccess;
        is_done = is_counted = false;
    }
    bool is_read() const { return wqe.opcode == WrOpcode::kRead; }
    bool is_atomic() const {
        return wqe.opcode == WrOpcode::kCompareSwap || wqe.opcode == WrOpcode::kFetchAdd;
    }
    bool is_local() const {
        return wqe.opcode == WrOpcode::kLocalInvalidate || wqe.opcode == WrOpcode::kBindMw;
    }
    bool is_atomic_write() const { return wqe.opcode == WrOpcode::kAtomicWrite; }
    bool expects_response() const { return is_read() || is_atomic() || is_atomic_write(); }
};

class SendQueue {
public:
    bool empty() const { return size_ == 0; }
    std::uint32_t size() const { return size_; }
    SendWork& front() { return at(0); }
    SendWork& at(std::uint32_t position) {
        assert(position < slots_.size());
        return slots_[(head_ + position) & (slots_.size() - 1)];
    }
    // The slot behind the last one; it becomes part of the queue by `push`.
    SendWork& spare() {
        if (size_ == slots_.size()) grow();
        return at(size_);
    }
    void push() { ++size_; }
    void pop() {
        ++head_;
        --size_;
    }
    void clear() {
        size_ = 0;
        head_ = 0;
    }

private:
    void grow() {
        std::vector<SendWork> larger(slots_.empty() ? 4 : 2 * slots_.size());
        for (std::uint32_t i = 0; i < size_; ++i) larger[i] = at(i);
        slots_ = std::move(larger);
        head_ = 0;
    }
    std::vector<SendWork> slots_;  // a power of two
    std::uint32_t head_ = 0;
    std::uint32_t size_ = 0;
};

}  // namespace rdmalab::transport
