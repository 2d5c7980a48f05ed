// Creation and upkeep of completion queues, shared by cq.cc, cq_ex.cc, qp.cc and poll.cc.
#pragma once

#include <cstdint>

#include "verbs/idle.h"
#include "verbs/objects.h"

namespace rdmalab::verbs {

struct CqRequest {
    std::uint32_t entries = 0;
    void* cq_context = nullptr;
    ibv_comp_channel* channel = nullptr;
    std::uint32_t vector = 0;
    bool needs_lock = true;
};
// Null and errno when it fails.
Cq* create_cq(Context& context, const CqRequest& request);

// Completions of the QP that nobody has polled yet must not be seen any more: its number may soon
// belong to another QP.
void discard_completions(Cq& cq, const Qp& qp);

// Gives back what the completed entry occupied (ring slots, receive entries) and brings a small
// payload to its SGEs. Returns the service level that the completion shows.
std::uint8_t retire(Cq& cq, const abi::Cqe& cqe);

inline bool is_valid(const abi::Cqe& cqe, std::uint32_t index) {
    return cqe.sequence.load(std::memory_order_acquire) == index + 1;
}

// The next completion that a program may see, or null; skips those of destroyed QPs.
inline abi::Cqe* next_completion(Cq& cq) {
    for (;;) {
        abi::Cqe& cqe = cq.ring[cq.consumer & cq.mask];
        if (!is_valid(cqe, cq.consumer)) return nullptr;
        ++cq.consumer;
        if (cqe.opcode != static_cast<std::uint8_t>(abi::CqeOpcode::kSkip)) return &cqe;
    }
}
inline void publish_consumer(Cq& cq) {
    cq.header->consumer.store(cq.consumer, std::memory_order_release);
}

inline int miss_status(const Cq& cq) { return context_of(cq.context).is_dead() ? -EIO : 0; }

ibv_wc_opcode wc_opcode(const abi::Cqe& cqe);
unsigned wc_flags(const abi::Cqe& cqe);

}  // namespace rdmalab::verbs
