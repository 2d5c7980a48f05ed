// Copies of frames that wait for the program that owns a domain: one ring of bytes for all of its
// queues, allocated once. When it is full, new frames are dropped and counted.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "flow/pipe_types.h"

namespace rdmalab::flow {

class FrameQueue {
public:
    // A program that looks every 10 ms loses nothing up to 100 MB/s.
    static constexpr std::size_t kBytesDefault = 1u << 20;

    explicit FrameQueue(std::size_t bytes = kBytesDefault) : ring_(round_up(bytes, kAlign)) {}

    // Room for a frame of `length` bytes, to be filled at once; empty: it is dropped.
    ByteSpan push(std::uint16_t queue, PortId ingress, std::size_t length);
    // The oldest frame is appended to `out`, unless it has more than `bytes_max` bytes.
    bool pop(std::vector<CapturedFrame>& out, std::size_t bytes_max);
    bool empty() const { return head_ == tail_; }
    // Frames that found no room since the last call.
    std::uint64_t take_dropped();

private:
    static constexpr std::size_t kAlign = 8;
    struct Head {
        std::uint32_t length;
        std::uint16_t queue;
        std::uint16_t port;
    };
    static_assert(sizeof(Head) == kAlign);
    static constexpr std::uint32_t kSkip = 0xffff'ffff;  // the rest of the ring is not used

    std::vector<std::byte> ring_;
    // Ever growing; the place is the rest by the size of the ring.
    std::uint64_t head_ = 0, tail_ = 0;
    std::uint64_t dropped_ = 0;
};

}  // namespace rdmalab::flow
