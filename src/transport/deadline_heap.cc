#include "transport/deadline_heap.h"

namespace rdmalab::transport {

void DeadlineHeap::schedule(std::uint32_t slot, Instant time) {
    if (slot >= position_.size()) position_.resize(slot + 1, kAbsent);
    const std::uint32_t index = position_[slot];
    if (index == kAbsent) {
        heap_.push_back({});
        sift_up(static_cast<std::uint32_t>(heap_.size() - 1), {time, slot});
    } else if (time < heap_[index].time) {
        sift_up(index, {time, slot});
    }
}

void DeadlineHeap::remove(std::uint32_t slot) {
    if (slot >= position_.size() || position_[slot] == kAbsent) return;
    const std::uint32_t index = position_[slot];
    position_[slot] = kAbsent;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (last.slot == slot) return;
    if (index > 0 && last.time < heap_[(index - 1) / 2].time)
        sift_up(index, last);
    else
        sift_down(index, last);
}

std::uint32_t DeadlineHeap::pop() {
    const std::uint32_t slot = heap_.front().slot;
    remove(slot);
    return slot;
}

void DeadlineHeap::place(std::uint32_t index, Entry entry) {
    heap_[index] = entry;
    position_[entry.slot] = index;
}

void DeadlineHeap::sift_up(std::uint32_t index, Entry entry) {
    while (index > 0) {
        const std::uint32_t parent = (index - 1) / 2;
        if (heap_[parent].time <= entry.time) break;
        place(index, heap_[parent]);
        index = parent;
    }
    place(index, entry);
}

void DeadlineHeap::sift_down(std::uint32_t index, Entry entry) {
    const auto size = static_cast<std::uint32_t>(heap_.size());
    for (;;) {
        std::uint32_t child = 2 * index + 1;
        if (child >= size) break;
        if (child + 1 < size && heap_[child + 1].time < heap_[child].time) ++child;
        if (heap_[child].time >= entry.time) break;
        place(index, heap_[child]);
        index = child;
    }
    place(index, entry);
}

}  // namespace rdmalab::transport
