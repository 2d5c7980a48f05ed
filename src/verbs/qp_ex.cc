// The newer way to post (ibv_wr_start(3)): a batch is built in place in the ring, between wr_start
// and wr_complete, under the lock of the queue. An error sticks until wr_complete, which then posts
// nothing.
#include <errno.h>

#include "verbs/operations.h"
#include "verbs/qp.h"
#include "verbs/send_entry.h"
#include "verbs/wq.h"

namespace rdmalab::verbs {

namespace {

void start(ibv_qp_ex* public_qp) {
    Qp& qp = qp_of(public_qp);
    if (qp.needs_lock) qp.sq.lock.lock();
    qp.batch_head = qp.sq.head;
    qp.batch_entry = nullptr;
    qp.batch_error = 0;
    if (qp.owner->is_dead()) qp.batch_error = EIO;
    if (!may_send_in(qp.qp_base.state)) qp.batch_error = EINVAL;
}

int complete(ibv_qp_ex* public_qp) {
    Qp& qp = qp_of(public_qp);
    int status = qp.batch_error;
    if (status == 0) publish_sends(qp, qp.batch_head);
    if (qp.needs_lock) qp.sq.lock.unlock();
    return status;
}

void abort_batch(ibv_qp_ex* public_qp) {
    Qp& qp = qp_of(public_qp);
    if (qp.needs_lock) qp.sq.lock.unlock();
}

// The entry of the next work request, or null when the batch has failed.
abi::SendEntry* begin(Qp& qp, ibv_wr_opcode opcode) {
    qp.batch_entry = nullptr;
    if (qp.batch_error != 0) return nullptr;
    if (!may_post(qp, opcode)) qp.batch_error = EINVAL;
    if (qp.sq.is_full(qp.batch_head)) qp.batch_error = ENOMEM;
    if (qp.batch_error != 0) return nullptr;
    const OpcodeRule& rule = kOpcodeRules[opcode];
    auto* entry = reinterpret_cast<abi::SendEntry*>(qp.sq.entry(qp.batch_head++));
    write_head(*entry, qp, rule, qp.wr_id, qp.wr_flags);
    qp.batch_entry = entry;
    qp.batch_carries_payload = rule.carries_payload;
    return entry;
}

void begin_rdma(ibv_qp_ex* qp, ibv_wr_opcode opcode, std::uint32_t rkey, std::uint64_t address) {
    if (abi::SendEntry* entry = begin(qp_of(qp), opcode)) {
        entry->rkey = rkey;
        entry->remote_address = address;
    }
}

void rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
    begin_rdma(qp, IBV_WR_RDMA_READ, rkey, address);
}

void rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
    begin_rdma(qp, IBV_WR_RDMA_WRITE, rkey, address);
}

void rdma_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
    begin_rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address);
    if (abi::SendEntry* entry = qp_of(qp).batch_entry) entry->immediate = immediate;
}

void compare_swap(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t compare,
                  std::uint64_t swap) {
    begin_rdma(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address);
    if (abi::SendEntry* entry = qp_of(qp).batch_entry) {
        entry->compare_add = compare;
        entry->swap = swap;
    }
}

void fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t add) {
    begin_rdma(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address);
    if (abi::SendEntry* entry = qp_of(qp).batch_entry) entry->compare_add = add;
}

void send(ibv_qp_ex* qp) { begin(qp_of(qp), IBV_WR_SEND); }

void send_imm(ibv_qp_ex* qp, __be32 immediate) {
    if (abi::SendEntry* entry = begin(qp_of(qp), IBV_WR_SEND_WITH_IMM)) {
        entry->immediate = immediate;
    }
}

void send_invalidate(ibv_qp_ex* qp, std::uint32_t rkey) {
    if (abi::SendEntry* entry = begin(qp_of(qp), IBV_WR_SEND_WITH_INV)) entry->immediate = rkey;
}

void local_invalidate(ibv_qp_ex* qp, std::uint32_t rkey) {
    if (abi::SendEntry* entry = begin(qp_of(qp), IBV_WR_LOCAL_INV)) entry->immediate = rkey;
}

void bind_window(ibv_qp_ex* public_qp, ibv_mw* mw, std::uint32_t rkey,
                 const ibv_mw_bind_info* info) {
    Qp& qp = qp_of(public_qp);
    if (abi::SendEntry* entry = begin(qp, IBV_WR_BIND_MW)) {
        if (int status = write_bind(*entry, *mw, rkey, *info)) qp.batch_error = status;
    }
}

// The eight bytes are copied here.
void atomic_write(ibv_qp_ex* public_qp, std::uint32_t rkey, std::uint64_t address,
                  const void* data) {
    Qp& qp = qp_of(public_qp);
    begin_rdma(public_qp, IBV_WR_ATOMIC_WRITE, rkey, address);
    if (qp.batch_entry == nullptr) return;
    begin_inline(*qp.batch_entry);
    if (int status = append_inline(qp, *qp.batch_entry, data, sizeof(std::uint64_t))) {
        qp.batch_error = status;
    }
}

void set_xrc_srq(ibv_qp_ex* qp, std::uint32_t number) {
    if (abi::SendEntry* entry = qp_of(qp).batch_entry) entry->ah = number;
}

void set_ud_address(ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t qpn, std::uint32_t qkey) {
    if (abi::SendEntry* entry = qp_of(qp).batch_entry) {
        entry->ah = ah->handle;
        entry->remote_qpn = qpn;
        entry->remote_qkey = qkey;
    }
}

void set_sge_list(ibv_qp_ex* public_qp, std::size_t count, const ibv_sge* list) {
    Qp& qp = qp_of(public_qp);
    if (qp.batch_entry == nullptr) return;
    if (int status = write_sges(qp, *qp.batch_entry, list, count, qp.batch_carries_payload)) {
        qp.batch_error = status;
    }
}

void set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
    ibv_sge sge{.addr = address, .length = length, .lkey = lkey};
    set_sge_list(qp, 1, &sge);
}

void set_inline_data_list(ibv_qp_ex* public_qp, std::size_t count, const ibv_data_buf* list) {
    Qp& qp = qp_of(public_qp);
    if (qp.batch_entry == nullptr) return;
    if (!qp.batch_carries_payload) qp.batch_error = EINVAL;
    begin_inline(*qp.batch_entry);
    for (std::size_t i = 0; i < count && qp.batch_error == 0; ++i) {
        qp.batch_error = append_inline(qp, *qp.batch_entry, list[i].addr, list[i].length);
    }
}

void set_inline_data(ibv_qp_ex* qp, void* data, std::size_t length) {
    ibv_data_buf buffer{.addr = data, .length = length};
    set_inline_data_list(qp, 1, &buffer);
}

constexpr std::uint64_t kKnownOperations =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
    IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
    IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_TSO | IBV_QP_EX_WITH_ATOMIC_WRITE;

// The IBV_QP_EX_WITH_* that belong to the opcodes a QP may post.
std::uint64_t offered_operations(ibv_qp_type type) {
    constexpr struct {
        ibv_wr_opcode opcode;
        std::uint64_t flag;
    } kPairs[] = {
        {IBV_WR_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE},
        {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM},
        {IBV_WR_SEND, IBV_QP_EX_WITH_SEND},
        {IBV_WR_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_IMM},
        {IBV_WR_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ},
        {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP},
        {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD},
        {IBV_WR_SEND_WITH_INV, IBV_QP_EX_WITH_SEND_WITH_INV},
        {IBV_WR_LOCAL_INV, IBV_QP_EX_WITH_LOCAL_INV},
        {IBV_WR_BIND_MW, IBV_QP_EX_WITH_BIND_MW},
        {IBV_WR_ATOMIC_WRITE, IBV_QP_EX_WITH_ATOMIC_WRITE},
    };
    std::uint64_t flags = 0;
    for (const auto& pair : kPairs) {
        if (allowed_opcodes(type) >> pair.opcode & 1) flags |= pair.flag;
    }
    return flags;
}

void install_batch_functions(ibv_qp_ex& qp) {
    qp.wr_start = start;
    qp.wr_complete = complete;
    qp.wr_abort = abort_batch;
    qp.wr_rdma_read = rdma_read;
    qp.wr_rdma_write = rdma_write;
    qp.wr_rdma_write_imm = rdma_write_imm;
    qp.wr_atomic_cmp_swp = compare_swap;
    qp.wr_atomic_fetch_add = fetch_add;
    qp.wr_send = send;
    qp.wr_send_imm = send_imm;
    qp.wr_send_inv = send_invalidate;
    qp.wr_local_inv = local_invalidate;
    qp.wr_bind_mw = bind_window;
    qp.wr_atomic_write = atomic_write;
    qp.wr_set_ud_addr = set_ud_address;
    qp.wr_set_xrc_srqn = set_xrc_srq;
    qp.wr_set_sge = set_sge;
    qp.wr_set_sge_list = set_sge_list;
    qp.wr_set_inline_data = set_inline_data;
    qp.wr_set_inline_data_list = set_inline_data_list;
}

// Either makes a QP that spreads what it gets, which takes both.
constexpr std::uint32_t kSpreads = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;

int check_extended_init(const ibv_qp_init_attr_ex& init) {
    constexpr std::uint32_t kUnderstood = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                          IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_XRCD |
                                          kSpreads;
    constexpr std::uint32_t kDefined = kUnderstood | IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
    if (init.comp_mask & ~kDefined) return EINVAL;
    if (init.comp_mask & ~kUnderstood) return EOPNOTSUPP;
    // The receiving end of XRC has a domain, everything else has a PD.
    bool is_target = init.qp_type == IBV_QPT_XRC_RECV;
    std::uint32_t home = is_target ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD;
    if (!(init.comp_mask & home)) return EINVAL;
    if (is_target && init.xrcd == nullptr) return EINVAL;
    if ((init.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && init.create_flags != 0) {
        return EOPNOTSUPP;
    }
    if (init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
        if (init.send_ops_flags & ~kKnownOperations) return EINVAL;
        if (init.send_ops_flags & ~offered_operations(init.qp_type)) return EOPNOTSUPP;
    }
    return 0;
}

}  // namespace

ibv_qp* create_qp_extended(ibv_context* context, ibv_qp_init_attr_ex* init) {
    if (int status = check_extended_init(*init)) return fail(status);
    if (init->comp_mask & kSpreads) {
        Qp* spreading = create_spreading_qp(*init);
        return spreading == nullptr ? nullptr : &spreading->base();
    }
    ibv_qp_init_attr basic{.qp_context = init->qp_context,
                           .send_cq = init->send_cq,
                           .recv_cq = init->recv_cq,
                           .srq = init->srq,
                           .cap = init->cap,
                           .qp_type = init->qp_type,
                           .sq_sig_all = init->sq_sig_all};
    Qp* qp = init->qp_type == IBV_QPT_XRC_RECV
                 ? create_target_qp(context_of(context), xrcd_of(init->xrcd), basic)
                 : create_qp(init->pd, basic);
    if (qp == nullptr) return nullptr;
    init->cap = basic.cap;
    if (init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
        qp->is_extended = true;
        install_batch_functions(*qp);
    }
    return &qp->base();
}

}  // namespace rdmalab::verbs

using namespace rdmalab;
using namespace rdmalab::verbs;

extern "C" ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* public_qp) {
    Qp& qp = qp_of(public_qp);
    if (!qp.is_extended) return fail(EOPNOTSUPP);
    return &qp;
}
