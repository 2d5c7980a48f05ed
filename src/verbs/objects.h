// The objects behind the structs of verbs.h: each derives from the public struct that the program
// holds a pointer to.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "card/ring_abi.h"
#include "verbs/api.h"
#include "verbs/context.h"
#include "verbs/mapping.h"
#include "verbs/spin_lock.h"

namespace rdmalab::verbs {

struct Td : ibv_td {
    Td() : ibv_td{} {}
    std::atomic<std::uint32_t> users{0};
};

// A protection domain, or a parent domain: a protection domain and perhaps a thread domain.
struct Pd : ibv_pd {
    Pd() : ibv_pd{} {}
    Pd* protection_domain = nullptr;  // set in a parent domain
    Td* thread_domain = nullptr;
    std::atomic<std::uint32_t> users{0};  // parent domains on it
};

struct Mr : ibv_mr {
    Mr() : ibv_mr{} {}
    unsigned access = 0;
    bool is_local = false;  // the library may copy small payload from and to it: MrTable has it
};

struct Mw : ibv_mw {
    Mw() : ibv_mw{} {}
};

struct Dm : ibv_dm {
    Dm() : ibv_dm{} {}
    Mapping memory;
    std::size_t length = 0;
};

struct Xrcd : ibv_xrcd {
    Xrcd() : ibv_xrcd{} {}
    std::uint32_t handle = 0;
};

struct Ah : ibv_ah {
    Ah() : ibv_ah{} {}
};

struct Channel : ibv_comp_channel {
    Channel() : ibv_comp_channel{} {}
    std::uint32_t handle = 0;
    Channel* next = nullptr;
};

// ibv_cq is the head of ibv_cq_ex; all our CQs are extended ones.
struct Cq : ibv_cq_ex {
    Cq() : ibv_cq_ex{} {}

    Mapping memory;
    abi::CqHeader* header = nullptr;
    abi::Cqe* ring = nullptr;
    std::uint32_t mask = 0;
    std::uint32_t consumer = 0;
    std::uint32_t generation = 0;
    bool needs_lock = true;
    SpinLock lock;
    abi::Cqe* current = nullptr;  // between start_poll and end_poll
    std::uint8_t current_service_level = 0;

    std::uint32_t completion_events_delivered = 0;
    std::uint32_t async_events_delivered = 0;

    std::atomic<std::uint32_t> sleepers{0};  // the ring must stay mapped while there are any
};

struct SendQueue {
    abi::QueueHeader* header = nullptr;
    std::byte* entries = nullptr;
    std::uint32_t capacity = 0, stride = 0, sge_max = 0, inline_max = 0;
    std::uint32_t head = 0;              // the next entry to write; guarded by `lock`
    std::atomic<std::uint32_t> tail{0};  // the oldest entry in use; stored under the CQ's lock
    SpinLock lock;

    std::byte* entry(std::uint32_t index) const {
        return entries + static_cast<std::size_t>(index & (capacity - 1)) * stride;
    }
    bool is_full(std::uint32_t next) const {
        return next - tail.load(std::memory_order_acquire) >= capacity;
    }
    // The entry at `index` (in the ring or ever growing) has completed, and all before it.
    void release_through(std::uint32_t index) {
        std::uint32_t oldest = tail.load(std::memory_order_relaxed);
        tail.store(oldest + ((index - oldest) & (capacity - 1)) + 1, std::memory_order_release);
    }
};

// Receive entries of an RQ complete in the order of posting, so entry i of the table simply stands
// at place i of the ring; entries of an SRQ complete in any order, and a stack keeps the free ones.
struct RecvQueue {
    abi::QueueHeader* header = nullptr;
    std::uint32_t* ring = nullptr;  // of table indexes
    std::byte* table = nullptr;
    std::uint32_t capacity = 0, stride = 0, sge_max = 0, small_max = 0;
    std::uint32_t head = 0;
    std::atomic<std::uint32_t> tail{0};  // RQ only
    SpinLock lock;

    void bind(std::byte* base, std::uint32_t small_payload_max);
    std::size_t bytes() const;
    abi::RecvEntry* entry(std::uint32_t table_index) const {
        return reinterpret_cast<abi::RecvEntry*>(table +
                                                 static_cast<std::size_t>(table_index) * stride);
    }
    const std::byte* small_area(std::uint32_t table_index) const {
        return table + static_cast<std::size_t>(table_index + 1) * stride - small_max;
    }
    void release_through(std::uint32_t table_index) {
        std::uint32_t oldest = tail.load(std::memory_order_relaxed);
        tail.store(oldest + ((table_index - oldest) & (capacity - 1)) + 1,
                   std::memory_order_release);
    }
    void publish() { header->producer.store(head, std::memory_order_release); }
};

struct Srq : ibv_srq {
    Srq() : ibv_srq{} {}
    ~Srq() { delete[] free_entries; }

    Mapping memory;
    RecvQueue queue;
    std::uint32_t* free_entries = nullptr;
    std::uint32_t free_count = 0;  // guarded by queue.lock
    std::uint32_t generation = 0;
    std::uint32_t events_delivered = 0;
    bool is_xrc = false;

    void release(std::uint32_t table_index) {
        std::lock_guard guard(queue.lock);
        if (free_count < queue.capacity) free_entries[free_count++] = table_index;
    }
};

// How a work request names the receiver: not at all, by an address handle, or by the remote SRQ.
enum class Addressing : std::uint8_t { kConnected, kDatagram, kXrc };

struct Wq;
struct IndirectionTable;

struct Qp : ibv_qp_ex {
    Qp() : ibv_qp_ex{} {}

    Context* owner = nullptr;
    bool needs_lock = true;
    Mapping send_memory;
    Mapping recv_memory;
    SendQueue sq;
    RecvQueue rq;
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
    std::uint32_t allowed_opcodes = 0;  // bit per enum ibv_wr_opcode
    bool signal_all = false;
    bool is_raw = false;                // entries have abi::kSendHead and kSendChecksums
    Wq* wq = nullptr;                   // that this is the queue of
    IndirectionTable* table = nullptr;  // by which it spreads what it gets
    Addressing addressing = Addressing::kConnected;
    bool is_extended = false;  // has the ibv_wr_* functions
    // The card may have moved the QP to the error state: receives are then flushed only when it is
    // told of them.
    std::atomic<bool> may_be_in_error{false};
    ibv_qp_init_attr init{};
    std::uint32_t events_delivered = 0;
    Qp* next_in_context = nullptr;

    // Between wr_start and wr_complete (qp_ex.cc).
    std::uint32_t batch_head = 0;
    int batch_error = 0;
    abi::SendEntry* batch_entry = nullptr;
    bool batch_carries_payload = false;

    ibv_qp& base() { return qp_base; }
};

inline Pd& pd_of(ibv_pd* pd) { return *static_cast<Pd*>(pd); }
inline bool is_single_threaded(ibv_pd* pd) { return pd_of(pd).thread_domain != nullptr; }
inline Context& context_of(const ibv_pd* pd) { return context_of(pd->context); }
inline Mr& mr_of(ibv_mr* mr) { return *static_cast<Mr*>(mr); }
inline Dm& dm_of(ibv_dm* dm) { return *static_cast<Dm*>(dm); }
inline Xrcd& xrcd_of(ibv_xrcd* xrcd) { return *static_cast<Xrcd*>(xrcd); }
inline Cq& cq_of(ibv_cq* cq) { return *static_cast<Cq*>(reinterpret_cast<ibv_cq_ex*>(cq)); }
inline Cq& cq_of(ibv_cq_ex* cq) { return *static_cast<Cq*>(cq); }
inline ibv_cq* public_cq(Cq& cq) { return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(&cq)); }
inline Qp& qp_of(ibv_qp* qp) { return *static_cast<Qp*>(reinterpret_cast<ibv_qp_ex*>(qp)); }
inline Qp& qp_of(ibv_qp_ex* qp) { return *static_cast<Qp*>(qp); }
inline Srq& srq_of(ibv_srq* srq) { return *static_cast<Srq*>(srq); }
inline Channel& channel_of(ibv_comp_channel* channel) { return *static_cast<Channel*>(channel); }

// Verbs that return an object answer null and set errno.
inline std::nullptr_t fail(int error) {
    errno = error;
    return nullptr;
}

// After the card has died its objects are gone: destroying what is left of them succeeds.
inline int destroy_status(const Context& context, int status) {
    return context.is_dead() ? 0 : status;
}

}  // namespace rdmalab::verbs
