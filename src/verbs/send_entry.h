// How a work request becomes an entry of the SQ: shared by ibv_post_send (post.cc) and ibv_wr_*
// (qp_ex.cc).
#pragma once

#include <string.h>

#include <cstdint>

#include "verbs/objects.h"

namespace rdmalab::verbs {

struct OpcodeRule {
    abi::SendOpcode opcode;
    bool is_supported;
    bool carries_payload;  // the SGEs are what is sent, so it may ride along or be inline
    bool is_rdma;          // remote address and key in wr.rdma
    bool is_atomic;        // remote address and key in wr.atomic
};

// By enum ibv_wr_opcode. Memory windows, TSO and atomic write are not offered by the card.
inline constexpr OpcodeRule kOpcodeRules[] = {
    {abi::SendOpcode::kWrite, true, true, true, false},
    {abi::SendOpcode::kWriteImm, true, true, true, false},
    {abi::SendOpcode::kSend, true, true, false, false},
    {abi::SendOpcode::kSendImm, true, true, false, false},
    {abi::SendOpcode::kRead, true, false, true, false},
    {abi::SendOpcode::kCompareSwap, true, false, false, true},
    {abi::SendOpcode::kFetchAdd, true, false, false, true},
    {abi::SendOpcode::kLocalInvalidate, false, false, false, false},
    {abi::SendOpcode::kBindMw, false, false, false, false},
    {abi::SendOpcode::kSendInvalidate, true, true, false, false},
};
inline constexpr unsigned kOpcodeCount = sizeof(kOpcodeRules) / sizeof(kOpcodeRules[0]);

// The opcodes a QP of this type may post, one bit each (table in ibv_post_send(3); send with
// invalidate is defined for RC only, IBTA vol. 1, table 36).
constexpr std::uint32_t allowed_opcodes(ibv_qp_type type) {
    constexpr std::uint32_t kUd = 1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM;
    constexpr std::uint32_t kUc = kUd | 1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM;
    constexpr std::uint32_t kRc = kUc | 1u << IBV_WR_RDMA_READ | 1u << IBV_WR_ATOMIC_CMP_AND_SWP |
                                  1u << IBV_WR_ATOMIC_FETCH_AND_ADD | 1u << IBV_WR_SEND_WITH_INV;
    switch (type) {
        case IBV_QPT_RC:
            return kRc;
        case IBV_QPT_UC:
            return kUc;
        case IBV_QPT_UD:
            return kUd;
        default:
            return 0;
    }
}
inline bool may_post(const Qp& qp, unsigned opcode) {
    return opcode < kOpcodeCount && (qp.allowed_opcodes >> opcode & 1) != 0;
}

// IBTA vol. 1, 10.3.1: work is refused before RTS; in SQD it waits, in SQE and ERR it is flushed.
inline bool may_send_in(ibv_qp_state state) {
    return state != IBV_QPS_RESET && state != IBV_QPS_INIT && state != IBV_QPS_RTR;
}

// `flags` are enum ibv_send_flags.
inline void write_head(abi::SendEntry& entry, const Qp& qp, const OpcodeRule& rule,
                       std::uint64_t wr_id, unsigned flags) {
    entry = abi::SendEntry{};
    entry.wr_id = wr_id;
    entry.opcode = static_cast<std::uint8_t>(rule.opcode);
    unsigned out = 0;
    if ((flags & IBV_SEND_SIGNALED) || qp.signal_all) out |= abi::kSendSignaled;
    if (flags & IBV_SEND_SOLICITED) out |= abi::kSendSolicited;
    if (flags & IBV_SEND_FENCE) out |= abi::kSendFence;
    entry.flags = static_cast<std::uint8_t>(out);
}

inline abi::Sge* sges_of(abi::SendEntry& entry) { return reinterpret_cast<abi::Sge*>(&entry + 1); }

// Small payload rides along: the card then needs no system call to fetch it.
inline void attach_small_payload(const Qp& qp, abi::SendEntry& entry) {
    const abi::Sge* sges = sges_of(entry);
    auto* to = reinterpret_cast<std::byte*>(sges_of(entry) + entry.sge_count);
    for (unsigned i = 0; i < entry.sge_count; ++i) {
        const std::byte* from = qp.owner->mrs.find(sges[i].lkey, sges[i].address, sges[i].length);
        if (from == nullptr) return;
        memcpy(to, from, sges[i].length);
        to += sges[i].length;
    }
    entry.flags |= abi::kSendSmall;
}

// EINVAL when there are too many SGEs.
inline int write_sges(const Qp& qp, abi::SendEntry& entry, const ibv_sge* list, std::size_t count,
                      bool carries_payload) {
    if (count > qp.sq.sge_max) return EINVAL;
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < count; ++i) {
        sges_of(entry)[i] = {list[i].addr, list[i].length, list[i].lkey};
        total += list[i].length;
    }
    entry.sge_count = static_cast<std::uint8_t>(count);
    entry.data_length = total > UINT32_MAX ? UINT32_MAX : static_cast<std::uint32_t>(total);
    if (carries_payload && total != 0 && total <= qp.owner->attributes.small_payload_max) {
        attach_small_payload(qp, entry);
    }
    return 0;
}

// Inline data is collected piece by piece. EINVAL when it exceeds what the QP was created for.
inline int append_inline(const Qp& qp, abi::SendEntry& entry, const void* data,
                         std::size_t length) {
    if (length > qp.sq.inline_max - entry.data_length) return EINVAL;
    memcpy(reinterpret_cast<std::byte*>(sges_of(entry)) + entry.data_length, data, length);
    entry.data_length += static_cast<std::uint32_t>(length);
    return 0;
}
inline void begin_inline(abi::SendEntry& entry) {
    entry.sge_count = 0;
    entry.data_length = 0;
    entry.flags |= abi::kSendInline;
}

// Makes everything up to `head` visible to the card: one store and one doorbell per call.
inline void publish_sends(Qp& qp, std::uint32_t head) {
    if (head == qp.sq.head) return;
    qp.sq.head = head;
    qp.sq.header->producer.store(head, std::memory_order_release);
    qp.owner->doorbell.ring(qp.slot);
}

}  // namespace rdmalab::verbs
