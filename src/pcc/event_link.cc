#include "pcc/event_link.h"

#include <algorithm>
#include <new>

namespace rdmalab::pcc {
namespace {

constexpr std::uint64_t kPageSize = 4096;

constexpr std::uint64_t round_to_page(std::uint64_t length) {
    return (length + kPageSize - 1) / kPageSize * kPageSize;
}
constexpr std::uint64_t kAlgorithmOffset = round_to_page(sizeof(PccPage));
constexpr std::uint64_t kRingOffset = kAlgorithmOffset + round_to_page(sizeof(AlgorithmPage));
constexpr std::uint64_t kRingStride = round_to_page(sizeof(WorkerRings));

}  // namespace

std::uint64_t shared_size(std::uint32_t workers) { return kRingOffset + workers * kRingStride; }

WorkerRings& rings_of(std::byte* base, std::uint32_t worker) {
    return *reinterpret_cast<WorkerRings*>(base + kRingOffset + worker * kRingStride);
}

AlgorithmPage& algorithm_page_of(std::byte* base) {
    return *reinterpret_cast<AlgorithmPage*>(base + kAlgorithmOffset);
}

void format_shared(std::byte* base, std::uint32_t workers) {
    auto& page = *new (base) PccPage{};
    page.version = kAbiVersion;
    page.workers = workers;
    page.algorithm_offset = kAlgorithmOffset;
    page.ring_offset = kRingOffset;
    page.ring_stride = kRingStride;
}

EventLink::EventLink(std::byte* base, std::uint32_t workers)
    : page_(reinterpret_cast<PccPage*>(base)), workers_(workers) {
    for (std::uint32_t i = 0; i < workers; ++i) {
        Worker& worker = workers_[i];
        worker.rings = &rings_of(base, i);
        // What a process did while it was Standby is not the card's concern.
        worker.produced = worker.seen_consumer =
            worker.rings->event_consumer.load(std::memory_order_acquire);
        worker.rings->event_producer.store(worker.produced, std::memory_order_release);
        worker.consumed = worker.rings->answer_producer.load(std::memory_order_acquire);
        worker.rings->answer_consumer.store(worker.consumed, std::memory_order_release);
    }
}

bool EventLink::push(const Event& event) {
    Worker& worker = workers_[event.flow % workers_.size()];
    WorkerRings& rings = *worker.rings;
    const std::uint32_t consumer = rings.event_consumer.load(std::memory_order_acquire);
    if (waiting(worker, consumer) >= kEventRingCapacity) {
        if (waiting(worker, consumer) > kEventRingCapacity) is_broken_ = true;
        return false;
    }
    rings.events[worker.produced & (kEventRingCapacity - 1)] = event;
    ++worker.produced;
    rings.event_producer.store(worker.produced, std::memory_order_release);
    if (!worker.is_dirty) {
        worker.is_dirty = is_dirty_ = true;
        worker.dirty_from = worker.produced - 1;
    }
    return true;
}

bool EventLink::has_answer() const {
    return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) {
        return worker.rings->answer_producer.load(std::memory_order_acquire) != worker.consumed;
    });
}

bool EventLink::pop(Answer& answer) {
    for (std::size_t i = 0; i < workers_.size(); ++i) {
        Worker& worker = workers_[turn_];
        const std::uint32_t producer =
            worker.rings->answer_producer.load(std::memory_order_acquire);
        if (producer - worker.consumed > kAnswerRingCapacity) {
            is_broken_ = true;
            return false;
        }
        if (producer != worker.consumed) {
            answer = worker.rings->answers[worker.consumed & (kAnswerRingCapacity - 1)];
            ++worker.consumed;
            ++answers_taken_;
            worker.rings->answer_consumer.store(worker.consumed, std::memory_order_release);
            return true;
        }
        turn_ = static_cast<std::uint32_t>((turn_ + 1) % workers_.size());
    }
    return false;
}

void EventLink::publish(Instant now, const std::function<void(std::atomic<std::uint32_t>&)>& wake) {
    if (!is_dirty_) return;
    // Either the worker sees the events before it sleeps, or its flag is seen here.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    is_dirty_ = false;
    for (Worker& worker : workers_) {
        if (!worker.is_dirty) continue;
        if (worker.rings->sleeping.load(std::memory_order_relaxed) == 0) {
            worker.is_dirty = false;
            worker.dirty_since = Instant::never();
            continue;
        }
        if (worker.dirty_since.is_never()) worker.dirty_since = now;
        if (worker.produced - worker.dirty_from < kWakeEvents &&
            now < worker.dirty_since + kWakeDelay) {
            is_dirty_ = true;
            continue;
        }
        wake(worker.rings->event_producer);
        worker.is_dirty = false;
        worker.dirty_since = Instant::never();
    }
}

Duration EventLink::stuck_for(Instant now) {
    Duration longest{};
    for (Worker& worker : workers_) {
        const std::uint32_t consumer = worker.rings->event_consumer.load(std::memory_order_acquire);
        const bool is_waiting = consumer != worker.produced;
        if (!is_waiting || !worker.was_waiting || consumer != worker.seen_consumer) {
            worker.seen_consumer = consumer;
            worker.seen_since = now;
        }
        worker.was_waiting = is_waiting;
        longest = std::max(longest, now - worker.seen_since);
    }
    return longest;
}

Instant EventLink::next_deadline() const {
    Instant deadline = Instant::never();
    if (!is_dirty_) return deadline;
    for (const Worker& worker : workers_) {
        if (worker.is_dirty && !worker.dirty_since.is_never())
            deadline = std::min(deadline, worker.dirty_since + kWakeDelay);
    }
    return deadline;
}

}  // namespace rdmalab::pcc
