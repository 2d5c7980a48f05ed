// Receive work queues, and the tables by which a raw packet QP spreads what it gets over them
// (ibv_create_wq(3), ibv_create_rwq_ind_table(3), ibv_create_qp_ex(3)).
//
// To the card a WQ is a raw packet QP that only receives; the library keeps it behind the ibv_wq.
#include "verbs/wq.h"

#include <errno.h>

#include <algorithm>
#include <new>

#include "verbs/operations.h"
#include "verbs/qp.h"

namespace rdmalab::verbs {

namespace {

Wq& wq_of(ibv_wq* wq) { return *static_cast<Wq*>(wq); }
IndirectionTable& table_of(ibv_rwq_ind_table* table) {
    return *static_cast<IndirectionTable*>(table);
}

int post(ibv_wq* wq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
    return post_recv(&wq_of(wq).queue->base(), wr, bad_wr);
}

int move_to(Wq& wq, ibv_qp_state state, int more = 0) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    attributes.port_num = 1;
    return ibv_modify_qp(&wq.queue->base(), &attributes, IBV_QP_STATE | more);
}

int start(Wq& wq) {
    if (int status = move_to(wq, IBV_QPS_INIT, IBV_QP_PORT)) return status;
    return move_to(wq, IBV_QPS_RTR);
}

int enter_state(Wq& wq, ibv_wq_state from, ibv_wq_state to) {
    if (to == IBV_WQS_RESET) return move_to(wq, IBV_QPS_RESET);
    if (to == IBV_WQS_ERR) return move_to(wq, IBV_QPS_ERR);
    if (to != IBV_WQS_RDY || from == IBV_WQS_ERR) return EINVAL;
    return from == IBV_WQS_RDY ? 0 : start(wq);
}

int check_init(const ibv_wq_init_attr& init) {
    if (init.comp_mask & ~(IBV_WQ_INIT_ATTR_RESERVED - 1u)) return EINVAL;
    if ((init.comp_mask & IBV_WQ_INIT_ATTR_FLAGS) && init.create_flags != 0) return EOPNOTSUPP;
    if (init.wq_type != IBV_WQT_RQ || init.pd == nullptr || init.cq == nullptr) return EINVAL;
    return init.max_wr == 0 ? EINVAL : 0;
}

}  // namespace

ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* init) {
    if (int status = check_init(*init)) return fail(status);
    auto* wq = new (std::nothrow) Wq();
    if (wq == nullptr) return fail(ENOMEM);
    ibv_qp_init_attr queue{};
    queue.send_cq = queue.recv_cq = init->cq;
    queue.cap.max_recv_wr = init->max_wr;
    queue.cap.max_recv_sge = init->max_sge;
    queue.qp_type = IBV_QPT_RAW_PACKET;
    wq->queue = create_qp(init->pd, queue);
    if (wq->queue == nullptr) {
        delete wq;
        return nullptr;
    }
    wq->queue->wq = wq;
    init->max_wr = queue.cap.max_recv_wr;
    init->max_sge = queue.cap.max_recv_sge;
    wq->context = context;
    wq->pd = init->pd;
    wq->cq = init->cq;
    wq->wq_num = wq->handle = wq->queue->base().qp_num;
    wq->state = IBV_WQS_RESET;
    wq->wq_type = init->wq_type;
    wq->post_recv = post;
    return wq;
}

int modify_wq(ibv_wq* public_wq, ibv_wq_attr* attributes) {
    Wq& wq = wq_of(public_wq);
    std::uint32_t mask = attributes->attr_mask;
    if (mask & ~(IBV_WQ_ATTR_RESERVED - 1u)) return EINVAL;
    if ((mask & IBV_WQ_ATTR_FLAGS) && attributes->flags_mask != 0) return EOPNOTSUPP;
    if ((mask & IBV_WQ_ATTR_CURR_STATE) && attributes->curr_wq_state != wq.state) return EINVAL;
    if (!(mask & IBV_WQ_ATTR_STATE)) return 0;
    if (int status = enter_state(wq, wq.state, attributes->wq_state)) return status;
    wq.state = attributes->wq_state;
    return 0;
}

int destroy_wq(ibv_wq* public_wq) {
    Wq& wq = wq_of(public_wq);
    if (wq.uses.load() != 0) return EBUSY;
    if (int status = destroy_qp(*wq.queue)) return status;
    delete &wq;
    return 0;
}

ibv_rwq_ind_table* create_indirection_table(ibv_context* context,
                                            ibv_rwq_ind_table_init_attr* init) {
    constexpr std::uint32_t kLogMax = 9;
    static_assert(1u << kLogMax == abi::kHashTableMax);
    if (init->comp_mask != 0 || init->log_ind_tbl_size > kLogMax) return fail(EINVAL);
    std::uint32_t length = 1u << init->log_ind_tbl_size;
    for (std::uint32_t i = 0; i < length; ++i) {
        const ibv_wq* wq = init->ind_tbl[i];
        if (wq == nullptr || wq->context != context) return fail(EINVAL);
    }
    auto* table = new (std::nothrow) IndirectionTable();
    if (table == nullptr) return fail(ENOMEM);
    table->context = context;
    table->length = length;
    for (std::uint32_t i = 0; i < length; ++i) {
        table->queues[i] = &wq_of(init->ind_tbl[i]);
        table->queues[i]->uses.fetch_add(1);
    }
    // The table is the library's alone; its number tells it from others of this process.
    static std::atomic<int> last_number{0};
    table->ind_tbl_num = table->ind_tbl_handle = last_number.fetch_add(1) + 1;
    return table;
}

int destroy_indirection_table(ibv_rwq_ind_table* public_table) {
    IndirectionTable& table = table_of(public_table);
    if (table.uses.load() != 0) return EBUSY;
    for (std::uint32_t i = 0; i < table.length; ++i) table.queues[i]->uses.fetch_sub(1);
    delete &table;
    return 0;
}

Qp* create_spreading_qp(const ibv_qp_init_attr_ex& init) {
    constexpr std::uint64_t kFields = (IBV_RX_HASH_IPSEC_SPI << 1) - 1;
    const ibv_rx_hash_conf& conf = init.rx_hash_conf;
    constexpr std::uint32_t kBoth = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    const ibv_qp_cap& cap = init.cap;
    if ((init.comp_mask & kBoth) != kBoth || init.rwq_ind_tbl == nullptr) return fail(EINVAL);
    if (init.qp_type != IBV_QPT_RAW_PACKET || init.srq != nullptr) return fail(EINVAL);
    if (cap.max_recv_wr != 0 || cap.max_recv_sge != 0) return fail(EINVAL);
    if (cap.max_send_wr != 0) return fail(EOPNOTSUPP);  // it only receives
    if (conf.rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ) return fail(EOPNOTSUPP);
    if (conf.rx_hash_key_len != abi::kHashKeyLength || conf.rx_hash_key == nullptr) {
        return fail(EINVAL);
    }
    if (conf.rx_hash_fields_mask & ~(kFields | IBV_RX_HASH_INNER)) return fail(EOPNOTSUPP);
    IndirectionTable& table = table_of(init.rwq_ind_tbl);
    abi::CreateHashQpRequest request{};
    request.pd = init.pd->handle;
    request.cq = table.queues[0]->cq->handle;
    request.fields = static_cast<std::uint32_t>(conf.rx_hash_fields_mask & kFields);
    request.is_inner = (conf.rx_hash_fields_mask & IBV_RX_HASH_INNER) ? 1 : 0;
    std::copy_n(conf.rx_hash_key, abi::kHashKeyLength, request.key);
    request.table_length = table.length;
    for (std::uint32_t i = 0; i < table.length; ++i) {
        request.table[i] = table.queues[i]->wq_num;
    }
    Qp* qp = create_hash_qp(init, request);
    if (qp == nullptr) return nullptr;
    qp->table = &table;
    table.uses.fetch_add(1);
    return qp;
}

}  // namespace rdmalab::verbs
