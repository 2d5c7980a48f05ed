// Polling of completions: the hot half of the library. A CQE is valid when its sequence number says
// so; the consumer index is stored once per call. See card/ring_abi.h.
#include <errno.h>
#include <string.h>

#include <algorithm>

#include "verbs/cq.h"
#include "verbs/idle.h"
#include "verbs/operations.h"

namespace rdmalab::verbs {

namespace {

// A small message lies in the receive entry, not yet in the buffers of the program. Buffers whose
// registration has gone meanwhile are left alone.
void scatter_small(const Context& context, const RecvQueue& queue, const abi::Cqe& cqe) {
    const abi::RecvEntry* entry = queue.entry(cqe.ring_index);
    auto* sges = reinterpret_cast<const abi::Sge*>(entry + 1);
    const std::byte* from = queue.small_area(cqe.ring_index);
    std::size_t left = std::min(cqe.byte_length, queue.small_max);
    for (std::uint32_t i = 0; i < entry->sge_count && left > 0; ++i) {
        std::size_t length = std::min<std::size_t>(left, sges[i].length);
        std::byte* to = context.mrs.find(sges[i].lkey, sges[i].address, length);
        if (to != nullptr) memcpy(to, from, length);
        from += length;
        left -= length;
    }
}

// What kind of packet a UD message came in is part of the remote address that a completion tells
// (IBTA annex A17.4.5.1). Programs look for it where mlx5 puts it, in the service level: 8 for a
// UDP header, 2 for IPv4, 1 for IPv6. The card leaves the room before an IPv4 header zero.
std::uint8_t packet_kind(const Context& context, const RecvQueue& queue, const abi::Cqe& cqe) {
    constexpr std::uint8_t kUdp = 8, kIpv4 = 2, kIpv6 = 1;
    const abi::RecvEntry* entry = queue.entry(cqe.ring_index);
    const std::byte* grh = queue.small_area(cqe.ring_index);
    if (!(cqe.flags & abi::kCqeSmall)) {
        const auto& first = *reinterpret_cast<const abi::Sge*>(entry + 1);
        grh = entry->sge_count > 0 ? context.mrs.find(first.lkey, first.address, 1) : nullptr;
    }
    bool is_ipv6 = grh != nullptr && *grh >> 4 == std::byte{6};
    return kUdp | (is_ipv6 ? kIpv6 : kIpv4);
}

// The service level of the completion; 0 where there is none.
std::uint8_t retire_receive(const Context& context, const RecvQueue& queue, const abi::Cqe& cqe) {
    std::uint8_t level = cqe.flags & abi::kCqeGrh ? packet_kind(context, queue, cqe) : 0;
    if (cqe.flags & abi::kCqeSmall) scatter_small(context, queue, cqe);
    return level;
}

// The card moves a QP to the error state by itself. The first sign of it makes the card look at the
// receives that were posted since.
void note_error(Qp& qp, const abi::Cqe& cqe) {
    if (cqe.status == IBV_WC_SUCCESS) return;
    if (!qp.may_be_in_error.exchange(true) && qp.rq.capacity != 0) {
        qp.owner->doorbell.ring(qp.slot);
    }
}

std::uint8_t retire_srq(const Context& context, const abi::Cqe& cqe) {
    Srq* srq = context.srqs.find(cqe.queue_slot);
    if (srq == nullptr || cqe.ring_index >= srq->queue.capacity) return 0;
    std::uint8_t level = retire_receive(context, srq->queue, cqe);
    srq->release(cqe.ring_index);
    return level;
}

constexpr ibv_wc_opcode kOpcodes[] = {
    IBV_WC_SEND,         IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ,
    IBV_WC_COMP_SWAP,    IBV_WC_FETCH_ADD,  IBV_WC_BIND_MW,
    IBV_WC_LOCAL_INV,    IBV_WC_RECV,       IBV_WC_RECV_RDMA_WITH_IMM,
    IBV_WC_ATOMIC_WRITE,
};

void fill(ibv_wc& out, const abi::Cqe& cqe, std::uint8_t service_level) {
    out.wr_id = cqe.wr_id;
    out.status = static_cast<ibv_wc_status>(cqe.status);
    out.opcode = wc_opcode(cqe);
    out.vendor_err = cqe.vendor_error;
    out.byte_len = cqe.byte_length;
    out.imm_data = cqe.immediate;
    out.qp_num = cqe.qpn;
    out.src_qp = cqe.source_qpn;
    out.wc_flags = wc_flags(cqe);
    out.pkey_index = 0;
    out.slid = 0;
    out.sl = service_level;
    out.dlid_path_bits = 0;
}

}  // namespace

ibv_wc_opcode wc_opcode(const abi::Cqe& cqe) {
    return cqe.opcode < std::size(kOpcodes) ? kOpcodes[cqe.opcode] : IBV_WC_SEND;
}

unsigned wc_flags(const abi::Cqe& cqe) {
    unsigned flags = 0;
    if (cqe.flags & abi::kCqeGrh) flags |= IBV_WC_GRH;
    if (cqe.flags & abi::kCqeImmediate) flags |= IBV_WC_WITH_IMM;
    if (cqe.flags & abi::kCqeInvalidated) flags |= IBV_WC_WITH_INV;
    if (cqe.flags & abi::kCqeChecksumsRight) flags |= IBV_WC_IP_CSUM_OK;
    return flags;
}

std::uint8_t retire(Cq& cq, const abi::Cqe& cqe) {
    const Context& context = context_of(cq.context);
    if (cqe.flags & abi::kCqeSrq) return retire_srq(context, cqe);
    Qp* qp = context.qps.find(cqe.queue_slot);
    if (qp == nullptr || qp->qp_base.qp_num != cqe.qpn) return 0;
    std::uint8_t level = 0;
    if (cqe.flags & abi::kCqeRecv) {
        if (cqe.ring_index < qp->rq.capacity) level = retire_receive(context, qp->rq, cqe);
        qp->rq.release_through(cqe.ring_index);
    } else {
        qp->sq.release_through(cqe.ring_index);
    }
    note_error(*qp, cqe);
    return level;
}

int poll_cq(ibv_cq* public_cq, int count, ibv_wc* completions) {
    Cq& cq = cq_of(public_cq);
    std::uint32_t next = 0;
    {
        OptionalGuard guard(cq.lock, cq.needs_lock);
        int found = 0;
        std::uint32_t before = cq.consumer;
        while (found < count) {
            const abi::Cqe* cqe = next_completion(cq);
            if (cqe == nullptr) break;
            std::uint8_t level = retire(cq, *cqe);
            fill(completions[found++], *cqe, level);
        }
        if (cq.consumer != before) publish_consumer(cq);
        if (found > 0) {
            note_hit();
            return found;
        }
        if (!is_persistent_miss()) return miss_status(cq);
        next = cq.consumer;
        cq.sleepers.fetch_add(1, std::memory_order_relaxed);
    }
    int status = wait_when_idle(cq, next);
    cq.sleepers.fetch_sub(1, std::memory_order_release);
    return -status;
}

}  // namespace rdmalab::verbs
