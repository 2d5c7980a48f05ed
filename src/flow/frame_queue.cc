#include "flow/frame_queue.h"

#include <utility>

namespace rdmalab::flow {

ByteSpan FrameQueue::push(std::uint16_t queue, PortId ingress, std::size_t length) {
    const std::size_t needed = sizeof(Head) + round_up(length, kAlign);
    const std::size_t at = tail_ % ring_.size();
    const std::size_t rest = ring_.size() - at;
    const std::size_t skipped = needed <= rest ? 0 : rest;
    if (ring_.size() - (tail_ - head_) < skipped + needed) {
        ++dropped_;
        return {};
    }
    if (skipped != 0) store_bytes(ring_.data() + at, Head{kSkip, 0, 0});
    tail_ += skipped;
    std::byte* const place = ring_.data() + tail_ % ring_.size();
    store_bytes(place, Head{static_cast<std::uint32_t>(length), queue, ingress.value});
    tail_ += needed;
    return {place + sizeof(Head), length};
}

bool FrameQueue::pop(std::vector<CapturedFrame>& out, std::size_t bytes_max) {
    if (empty()) return false;
    auto head = load_bytes<Head>(ring_.data() + head_ % ring_.size());
    if (head.length == kSkip) {
        head_ += ring_.size() - head_ % ring_.size();
        head = load_bytes<Head>(ring_.data() + head_ % ring_.size());
    }
    if (head.length > bytes_max) return false;
    const std::byte* const bytes = ring_.data() + head_ % ring_.size() + sizeof(Head);
    out.push_back({head.queue, PortId{head.port}, {bytes, bytes + head.length}});
    head_ += sizeof(Head) + round_up(head.length, kAlign);
    return true;
}

std::uint64_t FrameQueue::take_dropped() { return std::exchange(dropped_, 0); }

}  // namespace rdmalab::flow
