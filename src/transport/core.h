// What the parts of the engine share: configuration, ports, tables, timers, the ready list and the
// stage of the round. The parts (requester, responder, control) are behaviour over this and a QP.
#pragma once

#include <span>

#include "transport/deadline_heap.h"
#include "transport/engine.h"
#include "transport/memory_table.h"
#include "transport/multicast.h"
#include "transport/object_table.h"
#include "transport/qp_table.h"
#include "transport/ready_list.h"
#include "transport/staging.h"

namespace rdmalab::transport {

struct Pd {
    OwnerId owner;
    std::uint32_t uses = 0;
};
struct Cq {
    OwnerId owner;
    std::uint32_t uses = 0;
    bool is_broken = false;  // it has overflowed
};
struct Srq {
    OwnerId owner;
    PdId pd;
    std::optional<XrcdId> xrcd;
    CqId cq;                  // XRC
    std::uint32_t limit = 0;  // 0: not armed
    std::uint32_t uses = 0;
};
// Shared by several owners, so it belongs to none of them.
struct Xrcd {
    struct Member {
        OwnerId owner;
        std::uint32_t opens = 0, uses = 0;  // uses: by SRQs and QPs
    };
    OwnerId owner;
    std::vector<Member> members;

    Member* find(OwnerId of) {
        for (Member& member : members)
            if (member.owner == of) return &member;
        return nullptr;
    }
};
struct Ah {
    OwnerId owner;
    PdId pd;
    AddressVector av;
    wire::LowerTemplate lower;
};

struct Core {
    Core(const EngineConfig& engine_config, MemoryPort& memory_port, WorkPort& work_port,
         OutcomePort& outcome_port)
        : config(engine_config),
          memory(memory_port),
          work(work_port),
          outcome(outcome_port),
          regions(engine_config.seed),
          qps(engine_config.seed) {}

    EngineConfig config;
    MemoryPort& memory;
    WorkPort& work;
    OutcomePort& outcome;
    CongestionPort* congestion = nullptr;
    bool watches_all = false;
    EngineCounters counters;
    std::array<Gid, limits::kGidMax> gids{};
    MemoryTable regions;
    ObjectTable<PdId, Pd> pds{limits::kPdMax};
    ObjectTable<CqId, Cq> cqs{limits::kCqMax};
    ObjectTable<SrqId, Srq> srqs{limits::kSrqMax};
    ObjectTable<AhId, Ah> ahs{limits::kAhMax};
    ObjectTable<XrcdId, Xrcd> xrcds{limits::kXrcdMax};
    QpTable qps;
    MulticastTable multicast;
    DeadlineHeap deadlines;
    ReadyList ready;
    Staging staging;
    RecvWqe flushed_recv;  // scratch: a WQE that is fetched only to be flushed
    Instant now;           // the latest time that the card has given

    void set_timer(Qp& qp, Timer timer, Instant time) {
        qp.timers[static_cast<std::size_t>(timer)] = time;
        deadlines.schedule(qp.slot, time);
    }
    // The heap is left alone: it finds out when its time comes.
    static void clear_timer(Qp& qp, Timer timer) {
        qp.timers[static_cast<std::size_t>(timer)] = Instant::never();
    }
    static bool is_timer_set(const Qp& qp, Timer timer) {
        return !qp.timers[static_cast<std::size_t>(timer)].is_never();
    }
    CopyOwner copy_owner(const Qp& qp, bool is_responder, Psn psn, std::uint64_t origin) const {
        return {.qpn = qp.qpn,
                .is_responder = is_responder,
                .engine = config.index,
                .source_is_blamed = false,
                .token = psn.value(),
                .origin = origin};
    }
    void stamp_origin(wire::Frame& frame, const Qp& qp, bool is_responder, Psn psn) const;
};

// Frame::origin taken apart.
struct Origin {
    bool is_known = false;
    bool is_responder = false;
    std::uint8_t engine = 0;
    Qpn qpn;
    Psn psn;
};
Origin origin_from(std::uint64_t packed);

}  // namespace rdmalab::transport
