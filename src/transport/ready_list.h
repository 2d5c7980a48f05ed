// The QPs that may have a frame to send, in the order in which they take turns. Each QP stands in
// it at most once, so the ring never holds more than there are QPs.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/qp.h"

namespace rdmalab::transport {

class ReadyList {
public:
    bool empty() const { return size_ == 0; }
    Qpn front() const { return ring_[head_ & (ring_.size() - 1)]; }
    void push_back(Qp& qp) {
        if (qp.is_ready) return;
        qp.is_ready = true;
        append(qp.qpn);
    }
    void pop_front() {
        ++head_;
        --size_;
    }
    // The front QP has had its turn and goes behind the others.
    void rotate() {
        const Qpn qpn = front();
        pop_front();
        append(qpn);
    }

private:
    void append(Qpn qpn) {
        if (size_ == ring_.size()) grow();
        ring_[(head_ + size_) & (ring_.size() - 1)] = qpn;
        ++size_;
    }
    void grow() {
        std::vector<Qpn> larger(ring_.empty() ? 16 : 2 * ring_.size());
        for (std::size_t i = 0; i < size_; ++i) larger[i] = ring_[(head_ + i) & (ring_.size() - 1)];
        ring_ = std::move(larger);
        head_ = 0;
    }
    std::vector<Qpn> ring_;  // a power of two; may name QPs that are gone
    std::size_t head_ = 0;
    std::size_t size_ = 0;
};

}  // namespace rdmalab::transport
