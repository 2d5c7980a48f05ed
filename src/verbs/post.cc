// Posting of work: the other hot half of the library. An entry is written into the ring, the
// producer index is stored once per call, and the doorbell is rung once per call.
#include <errno.h>

#include "verbs/operations.h"
#include "verbs/send_entry.h"

namespace rdmalab::verbs {

namespace {

int write_inline(const Qp& qp, abi::SendEntry& entry, const ibv_send_wr& wr) {
    begin_inline(entry);
    for (int i = 0; i < wr.num_sge; ++i) {
        const auto* data = reinterpret_cast<const void*>(wr.sg_list[i].addr);
        if (int status = append_inline(qp, entry, data, wr.sg_list[i].length)) return status;
    }
    return 0;
}

// What is not sent often, kept out of the way of what is.
int write_other_target(abi::SendEntry& entry, const OpcodeRule& rule, const ibv_send_wr& wr) {
    if (rule.target == Target::kAtomic) {
        entry.remote_address = wr.wr.atomic.remote_addr;
        entry.rkey = wr.wr.atomic.rkey;
        entry.compare_add = wr.wr.atomic.compare_add;
        entry.swap = wr.wr.atomic.swap;
        return 0;
    }
    if (wr.num_sge != 0 || wr.bind_mw.mw == nullptr) return EINVAL;
    return write_bind(entry, *wr.bind_mw.mw, wr.bind_mw.rkey, wr.bind_mw.bind_info);
}

// Of a QP that is not connected to one peer queue for good.
int write_address(abi::SendEntry& entry, const OpcodeRule& rule, const Qp& qp,
                  const ibv_send_wr& wr) {
    if (qp.addressing == Addressing::kXrc) {
        if (rule.target != Target::kBind) entry.ah = wr.qp_type.xrc.remote_srqn;
        return 0;
    }
    if (wr.wr.ud.ah == nullptr) return EINVAL;
    entry.ah = wr.wr.ud.ah->handle;
    entry.remote_qpn = wr.wr.ud.remote_qpn;
    entry.remote_qkey = wr.wr.ud.remote_qkey;
    return 0;
}

// The remote end.
int write_target(abi::SendEntry& entry, const OpcodeRule& rule, const Qp& qp,
                 const ibv_send_wr& wr) {
    if (rule.target == Target::kRdma) {
        entry.remote_address = wr.wr.rdma.remote_addr;
        entry.rkey = wr.wr.rdma.rkey;
    } else if (rule.target != Target::kNone) {
        if (int status = write_other_target(entry, rule, wr)) return status;
    }
    return qp.addressing == Addressing::kConnected ? 0 : write_address(entry, rule, qp, wr);
}

int write_send(const Qp& qp, abi::SendEntry& entry, const ibv_send_wr& wr) {
    if (!may_post(qp, wr.opcode) || wr.num_sge < 0) return EINVAL;
    const OpcodeRule& rule = kOpcodeRules[wr.opcode];
    write_head(entry, qp, rule, wr.wr_id, wr.send_flags);
    entry.immediate = wr.imm_data;
    if (int status = write_target(entry, rule, qp, wr)) return status;
    if (wr.send_flags & IBV_SEND_INLINE) {
        return rule.carries_payload ? write_inline(qp, entry, wr) : EINVAL;
    }
    return write_sges(qp, entry, wr.sg_list, static_cast<std::size_t>(wr.num_sge),
                      rule.carries_payload);
}

int write_recv(const RecvQueue& queue, std::uint32_t table_index, const ibv_recv_wr& wr) {
    if (wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > queue.sge_max) return EINVAL;
    abi::RecvEntry* entry = queue.entry(table_index);
    auto* sges = reinterpret_cast<abi::Sge*>(entry + 1);
    entry->wr_id = wr.wr_id;
    entry->sge_count = static_cast<std::uint8_t>(wr.num_sge);
    for (int i = 0; i < wr.num_sge; ++i) {
        sges[i] = {wr.sg_list[i].addr, wr.sg_list[i].length, wr.sg_list[i].lkey};
    }
    return 0;
}

// The next entry of each queue; ENOMEM when it is full.
int take_send(const Qp& qp, std::uint32_t head, const ibv_send_wr& wr) {
    if (qp.sq.is_full(head)) return ENOMEM;
    return write_send(qp, *reinterpret_cast<abi::SendEntry*>(qp.sq.entry(head)), wr);
}

int take_recv(RecvQueue& rq, const ibv_recv_wr& wr) {
    if (rq.head - rq.tail.load(std::memory_order_acquire) >= rq.capacity) return ENOMEM;
    if (int status = write_recv(rq, rq.head & (rq.capacity - 1), wr)) return status;
    ++rq.head;
    return 0;
}

int take_srq_recv(Srq& srq, const ibv_recv_wr& wr) {
    RecvQueue& queue = srq.queue;
    if (srq.free_count == 0) return ENOMEM;
    std::uint32_t index = srq.free_entries[srq.free_count - 1];
    if (int status = write_recv(queue, index, wr)) return status;
    --srq.free_count;
    queue.ring[queue.head++ & (queue.capacity - 1)] = index;
    return 0;
}

template <class WorkRequest>
int refuse(WorkRequest* wr, WorkRequest** bad_wr, int status) {
    *bad_wr = wr;
    return status;
}

}  // namespace

int post_send(ibv_qp* public_qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
    Qp& qp = qp_of(public_qp);
    if (qp.owner->is_dead()) return refuse(wr, bad_wr, EIO);
    if (!may_send_in(qp.qp_base.state)) return refuse(wr, bad_wr, EINVAL);
    OptionalGuard guard(qp.sq.lock, qp.needs_lock);
    int status = 0;
    std::uint32_t head = qp.sq.head;
    for (; wr != nullptr; wr = wr->next, ++head) {
        status = take_send(qp, head, *wr);
        if (status != 0) break;
    }
    publish_sends(qp, head);
    return status == 0 ? 0 : refuse(wr, bad_wr, status);
}

int post_recv(ibv_qp* public_qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
    Qp& qp = qp_of(public_qp);
    RecvQueue& rq = qp.rq;
    if (qp.owner->is_dead()) return refuse(wr, bad_wr, EIO);
    if (qp.qp_base.state == IBV_QPS_RESET || qp.qp_base.srq != nullptr) {
        return refuse(wr, bad_wr, EINVAL);
    }
    if (rq.header == nullptr) return refuse(wr, bad_wr, ENOMEM);
    OptionalGuard guard(rq.lock, qp.needs_lock);
    int status = 0;
    for (; wr != nullptr; wr = wr->next) {
        status = take_recv(rq, *wr);
        if (status != 0) break;
    }
    rq.publish();
    if (qp.may_be_in_error.load(std::memory_order_relaxed)) qp.owner->doorbell.ring(qp.slot);
    return status == 0 ? 0 : refuse(wr, bad_wr, status);
}

int post_srq_recv(ibv_srq* public_srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
    Srq& srq = srq_of(public_srq);
    if (context_of(srq.context).is_dead()) return refuse(wr, bad_wr, EIO);
    std::lock_guard guard(srq.queue.lock);
    int status = 0;
    for (; wr != nullptr; wr = wr->next) {
        status = take_srq_recv(srq, *wr);
        if (status != 0) break;
    }
    srq.queue.publish();
    return status == 0 ? 0 : refuse(wr, bad_wr, status);
}

}  // namespace rdmalab::verbs
