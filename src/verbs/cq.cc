#include "verbs/cq.h"

#include <errno.h>
#include <sched.h>

#include <new>

#include "verbs/operations.h"

namespace rdmalab::verbs {

namespace {

std::size_t ring_bytes(std::uint32_t capacity) {
    return sizeof(abi::CqHeader) + static_cast<std::size_t>(capacity) * sizeof(abi::Cqe);
}

bool is_power_of_two(std::uint32_t n) { return n != 0 && (n & (n - 1)) == 0; }

int bind_ring(Cq& cq, const Context& context, const abi::CreateCqReply& reply) {
    if (!is_power_of_two(reply.capacity)) return EPROTO;
    Mapping memory;
    if (int status = memory.map(context.memory_fd, reply.region, ring_bytes(reply.capacity))) {
        return status;
    }
    cq.memory = std::move(memory);
    cq.header = reinterpret_cast<abi::CqHeader*>(cq.memory.base());
    cq.ring = reinterpret_cast<abi::Cqe*>(cq.memory.base() + sizeof(abi::CqHeader));
    cq.mask = reply.capacity - 1;
    cq.cqe = static_cast<int>(reply.capacity);
    return 0;
}

int create_on_card(Cq& cq, Context& context, const CqRequest& request) {
    abi::CreateCqRequest body{
        .entries = request.entries,
        .channel = request.channel ? channel_of(request.channel).handle : abi::kNoChannel};
    abi::CreateCqReply reply{};
    if (int status = context.connection.call(abi::Op::kCreateCq, body, reply)) return status;
    cq.handle = reply.cq;
    cq.generation = reply.generation;
    int status = bind_ring(cq, context, reply);
    if (status == 0) {
        std::lock_guard guard(context.objects_mutex);
        if (!context.cqs.insert(reply.cq, &cq)) status = ENOMEM;
    }
    if (status != 0) context.connection.call(abi::Op::kDestroyCq, abi::HandleRequest{reply.cq});
    return status;
}

void wait_for_sleepers(const Cq& cq) {
    while (cq.sleepers.load(std::memory_order_acquire) != 0) sched_yield();
}

void wait_for_acknowledgements(Cq& cq) {
    pthread_mutex_lock(&cq.mutex);
    while (cq.comp_events_completed != cq.completion_events_delivered ||
           cq.async_events_completed != cq.async_events_delivered) {
        pthread_cond_wait(&cq.cond, &cq.mutex);
    }
    pthread_mutex_unlock(&cq.mutex);
}

}  // namespace

Cq* create_cq(Context& context, const CqRequest& request) {
    if (request.entries == 0 || request.entries > context.attributes.cqe_max ||
        request.vector >= static_cast<std::uint32_t>(context.context.num_comp_vectors)) {
        return fail(EINVAL);
    }
    auto* cq = new (std::nothrow) Cq();
    if (cq == nullptr) return fail(ENOMEM);
    cq->context = &context.context;
    cq->channel = request.channel;
    cq->cq_context = request.cq_context;
    cq->needs_lock = request.needs_lock;
    pthread_mutex_init(&cq->mutex, nullptr);
    pthread_cond_init(&cq->cond, nullptr);
    if (int status = create_on_card(*cq, context, request)) {
        delete cq;
        return fail(status);
    }
    if (request.channel != nullptr) {
        std::lock_guard guard(context.objects_mutex);
        ++request.channel->refcnt;
    }
    return cq;
}

void discard_completions(Cq& cq, const Qp& qp) {
    OptionalGuard guard(cq.lock, cq.needs_lock);
    for (std::uint32_t i = cq.consumer;; ++i) {
        abi::Cqe& cqe = cq.ring[i & cq.mask];
        if (i - cq.consumer > cq.mask || !is_valid(cqe, i)) return;
        if (cqe.qpn != qp.qp_base.qp_num) continue;
        if (cqe.flags & abi::kCqeSrq) {
            if (Srq* srq = context_of(cq.context).srqs.find(cqe.queue_slot)) {
                srq->release(cqe.ring_index);
            }
        }
        cqe.opcode = static_cast<std::uint8_t>(abi::CqeOpcode::kSkip);
    }
}

int request_notification(ibv_cq* public_cq, int solicited_only) {
    Cq& cq = cq_of(public_cq);
    if (context_of(cq.context).is_dead()) return EIO;
    if (!solicited_only) {
        cq.header->arm.store(abi::kArmAny, std::memory_order_seq_cst);
        return 0;
    }
    // A CQ that waits for any completion is not narrowed to solicited ones (IBTA vol. 1, 11.4.2.2).
    std::uint32_t expected = abi::kArmNone;
    cq.header->arm.compare_exchange_strong(expected, abi::kArmSolicited, std::memory_order_seq_cst);
    return 0;
}

int modify_cq(ibv_cq* public_cq, ibv_modify_cq_attr* attributes) {
    Cq& cq = cq_of(public_cq);
    if (attributes->attr_mask != IBV_CQ_ATTR_MODERATE) return EINVAL;
    abi::ModifyCqRequest request{.cq = cq.handle,
                                 .count = attributes->moderate.cq_count,
                                 .period_us = attributes->moderate.cq_period};
    return context_of(cq.context).connection.call(abi::Op::kModifyCq, request);
}

}  // namespace rdmalab::verbs

using namespace rdmalab;
using namespace rdmalab::verbs;

extern "C" ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* cq_context,
                                 ibv_comp_channel* channel, int vector) {
    if (entries < 0 || vector < 0) return fail(EINVAL);
    Cq* cq = create_cq(context_of(context), {.entries = static_cast<std::uint32_t>(entries),
                                             .cq_context = cq_context,
                                             .channel = channel,
                                             .vector = static_cast<std::uint32_t>(vector)});
    return cq == nullptr ? nullptr : public_cq(*cq);
}

extern "C" int ibv_resize_cq(ibv_cq* public_cq, int entries) {
    Cq& cq = cq_of(public_cq);
    Context& context = context_of(cq.context);
    if (entries <= 0 || static_cast<std::uint32_t>(entries) > context.attributes.cqe_max) {
        return EINVAL;
    }
    OptionalGuard guard(cq.lock, cq.needs_lock);
    wait_for_sleepers(cq);
    abi::ResizeCqRequest request{.cq = cq.handle, .entries = static_cast<std::uint32_t>(entries)};
    abi::CreateCqReply reply{};
    if (int status = context.connection.call(abi::Op::kResizeCq, request, reply)) return status;
    return bind_ring(cq, context, reply);
}

extern "C" int ibv_destroy_cq(ibv_cq* public_cq) {
    Cq& cq = cq_of(public_cq);
    Context& context = context_of(cq.context);
    if (!context.is_abandoned) wait_for_sleepers(cq);
    int status = context.connection.call(abi::Op::kDestroyCq, abi::HandleRequest{cq.handle});
    if (destroy_status(context, status) != 0) return status;
    {
        std::lock_guard guard(context.objects_mutex);
        context.cqs.erase(cq.handle, &cq);
        if (cq.channel != nullptr) --cq.channel->refcnt;
    }
    if (!context.is_abandoned) wait_for_acknowledgements(cq);
    pthread_cond_destroy(&cq.cond);
    pthread_mutex_destroy(&cq.mutex);
    delete &cq;
    return 0;
}
