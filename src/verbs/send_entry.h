// How a work request becomes an entry of the SQ: shared by ibv_post_send (post.cc) and ibv_wr_*
// (qp_ex.cc).
#pragma once

#include <errno.h>
#include <string.h>

#include <cstdint>

#include "verbs/objects.h"

namespace rdmalab::verbs {

// What a work request says about the remote end.
enum class Target : std::uint8_t { kNone, kRdma, kAtomic, kBind };

struct OpcodeRule {
    abi::SendOpcode opcode;
    bool carries_payload;  // the SGEs are what is sent, so it may ride along or be inline
    Target target;
};

// By enum ibv_wr_opcode. Where the enum has gaps, and for TSO, the rule is never used: no QP may
// post it.
inline constexpr OpcodeRule kNotOffered = {abi::SendOpcode::kSend, false, Target::kNone};
inline constexpr OpcodeRule kOpcodeRules[] = {
    {abi::SendOpcode::kWrite, true, Target::kRdma},
    {abi::SendOpcode::kWriteImm, true, Target::kRdma},
    {abi::SendOpcode::kSend, true, Target::kNone},
    {abi::SendOpcode::kSendImm, true, Target::kNone},
    {abi::SendOpcode::kRead, false, Target::kRdma},
    {abi::SendOpcode::kCompareSwap, false, Target::kAtomic},
    {abi::SendOpcode::kFetchAdd, false, Target::kAtomic},
    {abi::SendOpcode::kLocalInvalidate, false, Target::kNone},
    {abi::SendOpcode::kBindMw, false, Target::kBind},
    {abi::SendOpcode::kSendInvalidate, true, Target::kNone},
    kNotOffered,
    kNotOffered,
    kNotOffered,
    kNotOffered,
    kNotOffered,
    {abi::SendOpcode::kAtomicWrite, true, Target::kRdma},
};
inline constexpr unsigned kOpcodeCount = sizeof(kOpcodeRules) / sizeof(kOpcodeRules[0]);
static_assert(kOpcodeCount == IBV_WR_ATOMIC_WRITE + 1);

// The opcodes a QP of this type may post, one bit each (table in ibv_post_send(3); send with
// invalidate is defined for RC only, IBTA vol. 1, table 36).
constexpr std::uint32_t allowed_opcodes(ibv_qp_type type) {
    constexpr std::uint32_t kRaw = 1u << IBV_WR_SEND;
    constexpr std::uint32_t kUd = 1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM;
    constexpr std::uint32_t kUc = kUd | 1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM |
                                  1u << IBV_WR_LOCAL_INV | 1u << IBV_WR_BIND_MW;
    constexpr std::uint32_t kRc = kUc | 1u << IBV_WR_RDMA_READ | 1u << IBV_WR_ATOMIC_CMP_AND_SWP |
                                  1u << IBV_WR_ATOMIC_FETCH_AND_ADD | 1u << IBV_WR_SEND_WITH_INV |
                                  1u << IBV_WR_ATOMIC_WRITE;
    switch (type) {
        case IBV_QPT_RC:
        case IBV_QPT_XRC_SEND:
            return kRc;
        case IBV_QPT_UC:
            return kUc;
        case IBV_QPT_UD:
            return kUd;
        case IBV_QPT_RAW_PACKET:
            return kRaw;
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
    if ((flags & IBV_SEND_IP_CSUM) && qp.is_raw) out |= abi::kSendChecksums;
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

// The head of a frame that is too long to ride along whole.
inline void attach_head(const Qp& qp, abi::SendEntry& entry) {
    const abi::Sge* sges = sges_of(entry);
    auto* to = reinterpret_cast<std::byte*>(sges_of(entry) + entry.sge_count);
    std::uint32_t left = abi::kSendHeadLength;
    for (unsigned i = 0; i < entry.sge_count && left > 0; ++i) {
        std::uint32_t length = sges[i].length < left ? sges[i].length : left;
        const std::byte* from = qp.owner->mrs.find(sges[i].lkey, sges[i].address, length);
        if (from == nullptr) return;
        memcpy(to, from, length);
        to += length;
        left -= length;
    }
    entry.flags |= abi::kSendHead;
    entry.data_length = abi::kSendHeadLength;
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
    } else if (qp.is_raw && total > abi::kSendHeadLength) {
        attach_head(qp, entry);
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

// A bind has no SGEs; what it needs stands in fields that mean something else otherwise
// (card/ring_abi.h).
inline int write_bind(abi::SendEntry& entry, const ibv_mw& mw, std::uint32_t rkey,
                      const ibv_mw_bind_info& info) {
    constexpr unsigned kKnown = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                IBV_ACCESS_ZERO_BASED;
    unsigned access = info.mw_access_flags & ~unsigned{IBV_ACCESS_OPTIONAL_RANGE};
    if ((access & ~kKnown) || (info.mr == nullptr && info.length != 0)) return EINVAL;
    // The tag is the program's to choose, the rest of the key says which window it is.
    if ((rkey ^ mw.rkey) >> 8) return EINVAL;
    entry.rkey = rkey;
    entry.ah = info.mr != nullptr ? info.mr->lkey : 0;
    entry.remote_address = info.addr;
    entry.compare_add = info.length;
    entry.remote_qkey = access;
    return 0;
}

// Makes everything up to `head` visible to the card: one store and one doorbell per call.
inline void publish_sends(Qp& qp, std::uint32_t head) {
    if (head == qp.sq.head) return;
    qp.sq.head = head;
    qp.sq.header->producer.store(head, std::memory_order_release);
    qp.owner->doorbell.ring(qp.slot);
}

}  // namespace rdmalab::verbs
