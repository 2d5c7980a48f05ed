#include "verbs/qp.h"

#include <errno.h>

#include <new>

#include "base/identity.h"
#include "verbs/cq.h"
#include "verbs/send_entry.h"
#include "verbs/wq.h"

namespace rdmalab::verbs {

namespace {

int check_init(const Context& context, const ibv_qp_init_attr& init) {
    const abi::OpenContextReply& limits = context.attributes;
    const ibv_qp_cap& cap = init.cap;
    switch (init.qp_type) {
        case IBV_QPT_RC:
        case IBV_QPT_UC:
        case IBV_QPT_UD:
        case IBV_QPT_XRC_SEND:
        case IBV_QPT_RAW_PACKET:
            break;
        case IBV_QPT_DRIVER:
            return EOPNOTSUPP;
        default:
            return EINVAL;
    }
    bool is_xrc = init.qp_type == IBV_QPT_XRC_SEND;
    if (init.send_cq == nullptr || (init.recv_cq == nullptr && !is_xrc)) return EINVAL;
    if (is_xrc && init.srq != nullptr) return EINVAL;
    if (cap.max_send_wr > limits.wqe_max || cap.max_recv_wr > limits.wqe_max) return EINVAL;
    if (cap.max_send_sge > limits.sge_max || cap.max_recv_sge > limits.sge_max) return EINVAL;
    if (cap.max_inline_data > limits.inline_max) return EINVAL;
    return 0;
}

abi::CreateQpRequest request_for(const ibv_pd& pd, const ibv_qp_init_attr& init) {
    bool is_xrc = init.qp_type == IBV_QPT_XRC_SEND;
    bool has_rq = init.srq == nullptr && !is_xrc;
    return {.type = init.qp_type,
            .pd = pd.handle,
            .send_cq = init.send_cq->handle,
            .recv_cq = is_xrc ? 0 : init.recv_cq->handle,
            .srq = init.srq == nullptr ? abi::kNoSrq : init.srq->handle,
            .send_wr_max = init.cap.max_send_wr,
            .recv_wr_max = has_rq ? init.cap.max_recv_wr : 0,
            .send_sge_max = init.cap.max_send_sge,
            .recv_sge_max = has_rq ? init.cap.max_recv_sge : 0,
            .inline_max = init.cap.max_inline_data,
            .signal_all = init.sq_sig_all ? 1u : 0u,
            .xrcd = abi::kNoXrcd};
}

int bind_send_queue(Qp& qp, const abi::CreateQpReply& reply) {
    if (reply.send_region.length == 0) return 0;
    std::size_t needed =
        abi::kRingHeaderSize + static_cast<std::size_t>(reply.send_capacity) * reply.send_stride;
    if (int status = qp.send_memory.map(qp.owner->memory_fd, reply.send_region, needed)) {
        return status;
    }
    qp.sq.header = reinterpret_cast<abi::QueueHeader*>(qp.send_memory.base());
    qp.sq.entries = qp.send_memory.base() + abi::kRingHeaderSize;
    qp.sq.capacity = reply.send_capacity;
    qp.sq.stride = reply.send_stride;
    qp.sq.sge_max = reply.send_sge_max;
    qp.sq.inline_max = reply.inline_max;
    return 0;
}

int bind_recv_queue(Qp& qp, const abi::CreateQpReply& reply) {
    if (reply.recv_region.length == 0) return 0;
    RecvQueue& rq = qp.rq;
    rq.capacity = reply.recv_capacity;
    rq.stride = reply.recv_stride;
    rq.sge_max = reply.recv_sge_max;
    if (int status = qp.recv_memory.map(qp.owner->memory_fd, reply.recv_region, rq.bytes())) {
        return status;
    }
    rq.bind(qp.recv_memory.base(), qp.owner->attributes.small_payload_max);
    for (std::uint32_t i = 0; i < rq.capacity; ++i) rq.ring[i] = i;
    return 0;
}

void publish_to_program(Qp& qp, ibv_pd* pd, ibv_qp_init_attr& init) {
    ibv_qp& base = qp.base();
    base.context = &qp.owner->context;
    base.qp_context = init.qp_context;
    base.pd = pd;
    base.send_cq = init.send_cq;
    base.recv_cq = init.recv_cq;
    base.srq = init.srq;
    base.qp_type = init.qp_type;
    base.state = IBV_QPS_RESET;
    pthread_mutex_init(&base.mutex, nullptr);
    pthread_cond_init(&base.cond, nullptr);
    init.cap.max_send_wr = qp.sq.capacity;
    init.cap.max_send_sge = qp.sq.sge_max;
    init.cap.max_inline_data = qp.sq.inline_max;
    init.cap.max_recv_wr = qp.rq.capacity;
    init.cap.max_recv_sge = qp.rq.sge_max;
    qp.init = init;
    qp.signal_all = init.sq_sig_all != 0;
    qp.allowed_opcodes = allowed_opcodes(init.qp_type);
    if (init.qp_type == IBV_QPT_UD) qp.addressing = Addressing::kDatagram;
    qp.is_raw = init.qp_type == IBV_QPT_RAW_PACKET;
    if (init.qp_type == IBV_QPT_XRC_SEND) qp.addressing = Addressing::kXrc;
}

int enter_tables(Qp& qp) {
    std::lock_guard guard(qp.owner->objects_mutex);
    if (!qp.owner->qps.insert(qp.slot, &qp)) return ENOMEM;
    qp.next_in_context = qp.owner->first_qp;
    qp.owner->first_qp = &qp;
    return 0;
}

void leave_tables(Qp& qp) {
    std::lock_guard guard(qp.owner->objects_mutex);
    qp.owner->qps.erase(qp.slot, &qp);
    Qp** link = &qp.owner->first_qp;
    while (*link != nullptr && *link != &qp) link = &(*link)->next_in_context;
    if (*link != nullptr) *link = qp.next_in_context;
}

// What the card has made becomes the QP that the program sees.
int take_over(Qp& qp, const abi::CreateQpReply& reply, ibv_pd* pd, ibv_qp_init_attr& init) {
    qp.base().qp_num = reply.qpn;
    qp.base().handle = reply.qpn;
    qp.slot = reply.slot;
    qp.generation = reply.generation;
    int status = reply.slot < abi::kDoorbellSlots ? bind_send_queue(qp, reply) : EPROTO;
    if (status == 0) status = bind_recv_queue(qp, reply);
    if (status == 0) {
        publish_to_program(qp, pd, init);
        status = enter_tables(qp);
    }
    if (status != 0) {
        qp.owner->connection.call(abi::Op::kDestroyQp, abi::HandleRequest{reply.qpn});
    }
    return status;
}

template <class Request>
Qp* make_qp(Context& context, abi::Op op, const Request& request, ibv_pd* pd,
            ibv_qp_init_attr& init) {
    auto* qp = new (std::nothrow) Qp();
    if (qp == nullptr) return fail(ENOMEM);
    qp->owner = &context;
    qp->needs_lock = pd == nullptr || !is_single_threaded(pd);
    abi::CreateQpReply reply{};
    int status = context.connection.call(op, request, reply);
    if (status == 0) status = take_over(*qp, reply, pd, init);
    if (status != 0) {
        delete qp;
        return fail(status);
    }
    return qp;
}

// An XRC QP has one CQ or none; what arrived through it belongs to the SRQ.
void discard_all_completions(Qp& qp) {
    ibv_qp& base = qp.base();
    if (base.send_cq != nullptr) discard_completions(cq_of(base.send_cq), qp);
    bool is_other = base.recv_cq != nullptr && base.recv_cq != base.send_cq;
    if (is_other) discard_completions(cq_of(base.recv_cq), qp);
}

// In RESET the queues are empty. Indexes go on: the card has dropped everything that was posted.
void empty_rings(Qp& qp) {
    discard_all_completions(qp);
    {
        std::lock_guard guard(qp.sq.lock);
        qp.sq.tail.store(qp.sq.head, std::memory_order_release);
    }
    std::lock_guard guard(qp.rq.lock);
    qp.rq.tail.store(qp.rq.head, std::memory_order_release);
    qp.may_be_in_error.store(false);
}

void wait_for_acknowledgements(Qp& qp) {
    ibv_qp& base = qp.base();
    pthread_mutex_lock(&base.mutex);
    while (base.events_completed != qp.events_delivered) {
        pthread_cond_wait(&base.cond, &base.mutex);
    }
    pthread_mutex_unlock(&base.mutex);
}

}  // namespace

Qp* create_qp(ibv_pd* pd, ibv_qp_init_attr& init) {
    Context& context = context_of(pd);
    if (int status = check_init(context, init)) return fail(status);
    return make_qp(context, abi::Op::kCreateQp, request_for(*pd, init), pd, init);
}

Qp* create_target_qp(Context& context, Xrcd& xrcd, ibv_qp_init_attr& init) {
    if (init.srq != nullptr) return fail(EINVAL);
    init.send_cq = init.recv_cq = nullptr;
    abi::CreateQpRequest request{};
    request.type = IBV_QPT_XRC_RECV;
    request.srq = abi::kNoSrq;
    request.xrcd = xrcd.handle;
    return make_qp(context, abi::Op::kCreateQp, request, nullptr, init);
}

Qp* open_target_qp(Context& context, Xrcd& xrcd, std::uint32_t qpn, void* qp_context) {
    ibv_qp_init_attr init{};
    init.qp_context = qp_context;
    init.qp_type = IBV_QPT_XRC_RECV;
    abi::OpenQpRequest request{.xrcd = xrcd.handle, .qpn = qpn};
    return make_qp(context, abi::Op::kOpenQp, request, nullptr, init);
}

Qp* create_hash_qp(const ibv_qp_init_attr_ex& init, const abi::CreateHashQpRequest& request) {
    ibv_qp_init_attr basic{};
    basic.qp_context = init.qp_context;
    basic.qp_type = init.qp_type;
    return make_qp(context_of(init.pd), abi::Op::kCreateHashQp, request, init.pd, basic);
}

int destroy_qp(Qp& qp) {
    int status =
        qp.owner->connection.call(abi::Op::kDestroyQp, abi::HandleRequest{qp.base().qp_num});
    if (destroy_status(*qp.owner, status) != 0) return status;
    if (!qp.owner->is_abandoned) discard_all_completions(qp);
    leave_tables(qp);
    if (!qp.owner->is_abandoned) wait_for_acknowledgements(qp);
    pthread_cond_destroy(&qp.base().cond);
    pthread_mutex_destroy(&qp.base().mutex);
    if (qp.table != nullptr) qp.table->uses.fetch_sub(1);
    delete &qp;
    return 0;
}

void RecvQueue::bind(std::byte* base, std::uint32_t small_payload_max) {
    header = reinterpret_cast<abi::QueueHeader*>(base);
    ring = reinterpret_cast<std::uint32_t*>(base + abi::kRingHeaderSize);
    std::size_t ring_bytes = (capacity * sizeof(std::uint32_t) + 63) / 64 * 64;
    table = base + abi::kRingHeaderSize + ring_bytes;
    small_max = small_payload_max;
}

std::size_t RecvQueue::bytes() const {
    std::size_t ring_bytes = (capacity * sizeof(std::uint32_t) + 63) / 64 * 64;
    return abi::kRingHeaderSize + ring_bytes + static_cast<std::size_t>(capacity) * stride;
}

}  // namespace rdmalab::verbs

using namespace rdmalab;
using namespace rdmalab::verbs;

namespace {

constexpr int kPublicMask = (IBV_QP_RATE_LIMIT << 1) - 1;

}  // namespace

extern "C" ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
    Qp* qp = create_qp(pd, *init);
    return qp == nullptr ? nullptr : &qp->base();
}

extern "C" int ibv_destroy_qp(ibv_qp* qp) { return destroy_qp(qp_of(qp)); }

extern "C" int ibv_modify_qp(ibv_qp* public_qp, ibv_qp_attr* attributes, int mask) {
    Qp& qp = qp_of(public_qp);
    if ((mask & ~kPublicMask) != 0) return EINVAL;
    abi::ModifyQpRequest request{.qpn = public_qp->qp_num,
                                 .mask = static_cast<std::uint32_t>(mask),
                                 .attributes = to_abi(*attributes)};
    if (int status = qp.owner->connection.call(abi::Op::kModifyQp, request)) return status;
    if (!(mask & IBV_QP_STATE)) return 0;
    if (attributes->qp_state == IBV_QPS_RESET) empty_rings(qp);
    if (attributes->qp_state == IBV_QPS_ERR) qp.may_be_in_error.store(true);
    public_qp->state = attributes->qp_state;
    return 0;
}

extern "C" int ibv_query_qp(ibv_qp* public_qp, ibv_qp_attr* attributes, int /*mask*/,
                            ibv_qp_init_attr* init) {
    Qp& qp = qp_of(public_qp);
    abi::QpAttributes reply{};
    abi::HandleRequest request{public_qp->qp_num};
    if (int status = qp.owner->connection.call(abi::Op::kQueryQp, request, reply)) return status;
    *attributes = from_abi(reply);
    attributes->cap = qp.init.cap;
    *init = qp.init;
    public_qp->state = attributes->qp_state;
    if (public_qp->state == IBV_QPS_ERR) qp.may_be_in_error.store(true);
    return 0;
}

extern "C" int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, uint32_t) {
    return 0;  // the card places a message with copies whose inner order nobody promises
}

extern "C" int ibv_set_ece(ibv_qp* public_qp, ibv_ece* ece) {
    if (ece->comp_mask != 0 || ece->vendor_id != identity::kVendorId) return EINVAL;
    abi::ModifyQpRequest request{
        .qpn = public_qp->qp_num, .mask = abi::kModifyEce, .attributes = {}};
    ece->options &= abi::kEceSupported;
    request.attributes.ece_options = static_cast<std::uint8_t>(ece->options);
    return qp_of(public_qp).owner->connection.call(abi::Op::kModifyQp, request);
}

extern "C" int ibv_query_ece(ibv_qp* public_qp, ibv_ece* ece) {
    *ece = {};
    abi::QpAttributes reply{};
    abi::HandleRequest request{public_qp->qp_num};
    Qp& qp = qp_of(public_qp);
    if (int status = qp.owner->connection.call(abi::Op::kQueryQp, request, reply)) return status;
    ece->vendor_id = identity::kVendorId;
    ece->options = reply.ece_options;
    return 0;
}

namespace {

int multicast(abi::Op op, ibv_qp* qp, const ibv_gid* gid) {
    if (qp->qp_type != IBV_QPT_UD) return EINVAL;
    abi::McastRequest request{.qpn = qp->qp_num, .gid = {}};
    static_assert(sizeof request.gid == sizeof gid->raw);
    std::copy(std::begin(gid->raw), std::end(gid->raw), std::begin(request.gid));
    return qp_of(qp).owner->connection.call(op, request);
}

}  // namespace

extern "C" int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t /*lid*/) {
    return multicast(abi::Op::kAttachMcast, qp, gid);
}

extern "C" int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t /*lid*/) {
    return multicast(abi::Op::kDetachMcast, qp, gid);
}
