#include "verbs/srq.h"

#include <errno.h>

#include <new>

#include "verbs/objects.h"

namespace rdmalab::verbs {

namespace {

int bind(Srq& srq, const abi::CreateSrqReply& reply) {
    Context& context = context_of(srq.context);
    RecvQueue& queue = srq.queue;
    queue.capacity = reply.capacity;
    queue.stride = reply.stride;
    queue.sge_max = reply.sge_max;
    if (int status = srq.memory.map(context.memory_fd, reply.region, queue.bytes())) return status;
    queue.bind(srq.memory.base(), context.attributes.small_payload_max);
    srq.free_entries = new (std::nothrow) std::uint32_t[queue.capacity];
    if (srq.free_entries == nullptr) return ENOMEM;
    srq.free_count = queue.capacity;
    // Taken from the end: entry 0 first.
    for (std::uint32_t i = 0; i < queue.capacity; ++i) {
        srq.free_entries[i] = queue.capacity - 1 - i;
    }
    std::lock_guard guard(context.objects_mutex);
    return context.srqs.insert(srq.handle, &srq) ? 0 : ENOMEM;
}

int create_on_card(Srq& srq, const SrqRequest& r, const ibv_srq_attr& attributes) {
    Context& context = context_of(srq.context);
    abi::CreateSrqRequest request{.pd = srq.pd->handle,
                                  .wr_max = attributes.max_wr,
                                  .sge_max = attributes.max_sge,
                                  .limit = attributes.srq_limit,
                                  .xrcd = r.xrcd != nullptr ? r.xrcd->handle : abi::kNoXrcd,
                                  .cq = r.cq != nullptr ? r.cq->handle : 0};
    abi::CreateSrqReply reply{};
    if (int status = context.connection.call(abi::Op::kCreateSrq, request, reply)) return status;
    srq.handle = reply.srq;
    srq.generation = reply.generation;
    int status = bind(srq, reply);
    if (status != 0) context.connection.call(abi::Op::kDestroySrq, abi::HandleRequest{reply.srq});
    return status;
}

void wait_for_acknowledgements(Srq& srq) {
    pthread_mutex_lock(&srq.mutex);
    while (srq.events_completed != srq.events_delivered) {
        pthread_cond_wait(&srq.cond, &srq.mutex);
    }
    pthread_mutex_unlock(&srq.mutex);
}

}  // namespace

ibv_srq* create_srq(const SrqRequest& request, ibv_srq_attr& attributes) {
    const abi::OpenContextReply& limits = context_of(request.pd).attributes;
    if (attributes.max_wr == 0 || attributes.max_wr > limits.srq_wr_max ||
        attributes.max_sge > limits.sge_max || attributes.srq_limit > attributes.max_wr) {
        return fail(EINVAL);
    }
    auto* srq = new (std::nothrow) Srq();
    if (srq == nullptr) return fail(ENOMEM);
    srq->context = request.pd->context;
    srq->srq_context = request.context;
    srq->pd = request.pd;
    srq->is_xrc = request.xrcd != nullptr;
    pthread_mutex_init(&srq->mutex, nullptr);
    pthread_cond_init(&srq->cond, nullptr);
    if (int status = create_on_card(*srq, request, attributes)) {
        delete srq;
        return fail(status);
    }
    attributes.max_wr = srq->queue.capacity;
    attributes.max_sge = srq->queue.sge_max;
    return srq;
}

}  // namespace rdmalab::verbs

using namespace rdmalab;
using namespace rdmalab::verbs;

extern "C" ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
    return create_srq({.pd = pd, .context = init->srq_context}, init->attr);
}

extern "C" int ibv_modify_srq(ibv_srq* public_srq, ibv_srq_attr* attributes, int mask) {
    Srq& srq = srq_of(public_srq);
    // The size is fixed: IBV_DEVICE_SRQ_RESIZE is not claimed.
    if (mask & ~IBV_SRQ_LIMIT) return (mask & IBV_SRQ_MAX_WR) ? EOPNOTSUPP : EINVAL;
    if (!(mask & IBV_SRQ_LIMIT)) return 0;
    if (attributes->srq_limit > srq.queue.capacity) return EINVAL;
    return context_of(srq.context)
        .connection.call(abi::Op::kModifySrq,
                         abi::ModifySrqRequest{.srq = srq.handle, .limit = attributes->srq_limit});
}

extern "C" int ibv_query_srq(ibv_srq* public_srq, ibv_srq_attr* attributes) {
    Srq& srq = srq_of(public_srq);
    abi::QuerySrqReply reply{};
    int status = context_of(srq.context)
                     .connection.call(abi::Op::kQuerySrq, abi::HandleRequest{srq.handle}, reply);
    if (status != 0) return status;
    attributes->max_wr = srq.queue.capacity;
    attributes->max_sge = srq.queue.sge_max;
    attributes->srq_limit = reply.limit;
    return 0;
}

extern "C" int ibv_destroy_srq(ibv_srq* public_srq) {
    Srq& srq = srq_of(public_srq);
    Context& context = context_of(srq.context);
    int status = context.connection.call(abi::Op::kDestroySrq, abi::HandleRequest{srq.handle});
    if (destroy_status(context, status) != 0) return status;
    {
        std::lock_guard guard(context.objects_mutex);
        context.srqs.erase(srq.handle, &srq);
    }
    if (!context.is_abandoned) wait_for_acknowledgements(srq);
    pthread_cond_destroy(&srq.cond);
    pthread_mutex_destroy(&srq.mutex);
    delete &srq;
    return 0;
}
