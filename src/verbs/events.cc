// Completion channels and asynchronous events: pipes that the card writes fixed-size records to.
// The program owns the reading ends (it may set O_NONBLOCK, poll them, pass them to epoll).
//
// A record names its object by handle and generation. When the object is gone the record is
// skipped. Every event handed out is counted on its object, and destroying the object waits until
// all of them are acknowledged, as ibv_get_cq_event(3) and ibv_get_async_event(3) say.
#include <errno.h>
#include <unistd.h>

#include <new>

#include "verbs/objects.h"
#include "verbs/wq.h"

namespace rdmalab::verbs {

namespace {

// 1: a record, 0: the card is dead, -1 and errno otherwise (EAGAIN, EINTR: for the program).
template <class Record>
int read_record(int fd, Record& out) {
    ssize_t n = read(fd, &out, sizeof out);
    if (n == static_cast<ssize_t>(sizeof out)) return 1;
    if (n == 0) return 0;
    if (n > 0) errno = EIO;
    return -1;
}

int dead_status(Context& context) {
    context.connection.mark_dead();
    errno = EIO;
    return -1;
}

bool deliver_completion_event(Context& context, const abi::CompletionEvent& record, ibv_cq** out,
                              void** cq_context) {
    std::lock_guard guard(context.objects_mutex);
    Cq* cq = context.cqs.find(record.cq);
    if (cq == nullptr || cq->generation != record.generation) return false;
    pthread_mutex_lock(&cq->mutex);
    ++cq->completion_events_delivered;
    pthread_mutex_unlock(&cq->mutex);
    *out = public_cq(*cq);
    *cq_context = cq->cq_context;
    return true;
}

Qp* find_qp(Context& context, const abi::AsyncEventRecord& record) {
    Qp* qp = context.first_qp;
    while (qp != nullptr &&
           (qp->qp_base.qp_num != record.object || qp->generation != record.generation)) {
        qp = qp->next_in_context;
    }
    return qp;
}

bool deliver_to_qp(Context& context, const abi::AsyncEventRecord& record, ibv_async_event& out) {
    Qp* qp = find_qp(context, record);
    if (qp == nullptr) return false;
    pthread_mutex_lock(&qp->qp_base.mutex);
    ++qp->events_delivered;
    pthread_mutex_unlock(&qp->qp_base.mutex);
    out.element.qp = &qp->base();
    bool is_error = record.type == IBV_EVENT_QP_FATAL || record.type == IBV_EVENT_QP_REQ_ERR ||
                    record.type == IBV_EVENT_QP_ACCESS_ERR;
    if (is_error) {
        qp->may_be_in_error.store(true);
        context.doorbell.ring(qp->slot);
    }
    // Events of a WQ are counted and acknowledged where those of its queue are.
    if (qp->wq != nullptr) {
        out.event_type = IBV_EVENT_WQ_FATAL;
        out.element.wq = qp->wq;
    }
    return true;
}

bool deliver_to_cq(Context& context, const abi::AsyncEventRecord& record, ibv_async_event& out) {
    Cq* cq = context.cqs.find(record.object);
    if (cq == nullptr || cq->generation != record.generation) return false;
    pthread_mutex_lock(&cq->mutex);
    ++cq->async_events_delivered;
    pthread_mutex_unlock(&cq->mutex);
    out.element.cq = public_cq(*cq);
    return true;
}

bool deliver_to_srq(Context& context, const abi::AsyncEventRecord& record, ibv_async_event& out) {
    Srq* srq = context.srqs.find(record.object);
    if (srq == nullptr || srq->generation != record.generation) return false;
    pthread_mutex_lock(&srq->mutex);
    ++srq->events_delivered;
    pthread_mutex_unlock(&srq->mutex);
    out.element.srq = srq;
    return true;
}

enum class EventTarget { kQp, kCq, kSrq, kWq, kPort };

EventTarget target_of(std::uint32_t type) {
    switch (type) {
        case IBV_EVENT_CQ_ERR:
            return EventTarget::kCq;
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            return EventTarget::kSrq;
        case IBV_EVENT_WQ_FATAL:
            return EventTarget::kWq;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_PATH_MIG:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            return EventTarget::kQp;
        default:
            return EventTarget::kPort;
    }
}

bool deliver(Context& context, const abi::AsyncEventRecord& record, ibv_async_event& out) {
    out = {};
    out.event_type = static_cast<ibv_event_type>(record.type);
    std::lock_guard guard(context.objects_mutex);
    switch (target_of(record.type)) {
        case EventTarget::kQp:
            return deliver_to_qp(context, record, out);
        case EventTarget::kCq:
            return deliver_to_cq(context, record, out);
        case EventTarget::kSrq:
            return deliver_to_srq(context, record, out);
        case EventTarget::kWq:  // the card knows the queue as a QP
            return false;
        case EventTarget::kPort:
            break;
    }
    out.element.port_num = static_cast<int>(record.object);
    return true;
}

void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& cond, std::uint32_t& completed,
                 std::uint32_t count) {
    pthread_mutex_lock(&mutex);
    completed += count;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mutex);
}

}  // namespace

}  // namespace rdmalab::verbs

using namespace rdmalab;
using namespace rdmalab::verbs;

extern "C" ibv_comp_channel* ibv_create_comp_channel(ibv_context* public_context) {
    Context& context = context_of(public_context);
    auto* channel = new (std::nothrow) Channel();
    if (channel == nullptr) return fail(ENOMEM);
    abi::HandleReply reply{};
    ReceivedFds fds;
    int status =
        context.connection.call(abi::Op::kCreateChannel, ByteView(),
                                std::as_writable_bytes(std::span(&reply, 1)), nullptr, &fds);
    if (status == 0 && fds.count != 1) status = EPROTO;
    if (status != 0) {
        delete channel;
        return fail(status);
    }
    channel->context = public_context;
    channel->fd = fds.take(0);
    channel->handle = reply.handle;
    std::lock_guard guard(context.objects_mutex);
    channel->next = context.first_channel;
    context.first_channel = channel;
    return channel;
}

extern "C" int ibv_destroy_comp_channel(ibv_comp_channel* public_channel) {
    Channel& channel = channel_of(public_channel);
    Context& context = context_of(channel.context);
    std::lock_guard guard(context.objects_mutex);
    if (channel.refcnt != 0) return EBUSY;
    int status =
        context.connection.call(abi::Op::kDestroyChannel, abi::HandleRequest{channel.handle});
    if (destroy_status(context, status) != 0) return status;
    Channel** link = &context.first_channel;
    while (*link != nullptr && *link != &channel) link = &(*link)->next;
    if (*link != nullptr) *link = channel.next;
    if (channel.fd >= 0) close(channel.fd);
    delete &channel;
    return 0;
}

extern "C" int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
    Context& context = context_of(channel->context);
    for (;;) {
        abi::CompletionEvent record{};
        int status = read_record(channel->fd, record);
        if (status < 0) return -1;
        if (status == 0) return dead_status(context);
        if (deliver_completion_event(context, record, cq, cq_context)) return 0;
    }
}

extern "C" void ibv_ack_cq_events(ibv_cq* public_cq, unsigned count) {
    Cq& cq = cq_of(public_cq);
    acknowledge(cq.mutex, cq.cond, cq.comp_events_completed, count);
}

extern "C" int ibv_get_async_event(ibv_context* public_context, ibv_async_event* event) {
    Context& context = context_of(public_context);
    for (;;) {
        abi::AsyncEventRecord record{};
        int status = read_record(public_context->async_fd, record);
        if (status < 0) return -1;
        if (status == 0) {
            dead_status(context);
            if (context.fatal_reported) return -1;
            context.fatal_reported = true;
            *event = {};
            event->event_type = IBV_EVENT_DEVICE_FATAL;
            return 0;
        }
        if (deliver(context, record, *event)) return 0;
    }
}

extern "C" void ibv_ack_async_event(ibv_async_event* event) {
    switch (target_of(event->event_type)) {
        case EventTarget::kCq: {
            ibv_cq& cq = *event->element.cq;
            acknowledge(cq.mutex, cq.cond, cq.async_events_completed, 1);
            return;
        }
        case EventTarget::kSrq: {
            ibv_srq& srq = *event->element.srq;
            acknowledge(srq.mutex, srq.cond, srq.events_completed, 1);
            return;
        }
        case EventTarget::kQp: {
            ibv_qp& qp = *event->element.qp;
            acknowledge(qp.mutex, qp.cond, qp.events_completed, 1);
            return;
        }
        case EventTarget::kWq: {
            ibv_qp& qp = static_cast<Wq*>(event->element.wq)->queue->base();
            acknowledge(qp.mutex, qp.cond, qp.events_completed, 1);
            return;
        }
        case EventTarget::kPort:
            return;
    }
}
