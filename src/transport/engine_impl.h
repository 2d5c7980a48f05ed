// The inside of Engine: the data path in engine.cc, the control calls in control.cc.
#pragma once

#include "transport/core.h"
#include "transport/raw_packet.h"
#include "transport/requester.h"
#include "transport/responder.h"

namespace rdmalab::transport {

struct Engine::Impl {
    Impl(const EngineConfig& config, MemoryPort& memory, WorkPort& work, OutcomePort& outcome)
        : core(config, memory, work, outcome), requester(core), responder(core), raw(core) {}

    // Data path.
    void handle_frame(wire::Frame& frame);
    void handle_multicast(wire::Frame& frame, const wire::OpcodeInfo& info);
    void handle_steered(Qp& qp, const wire::Frame& frame, std::uint32_t tag);
    void deliver(Qp& qp, const wire::Frame& frame, const wire::OpcodeInfo& info);
    void handle_timeout();
    void fire(Qp& qp, Timer timer);
    void schedule_timers(Qp& qp);
    bool poll_frame(wire::Frame& out);
    bool poll_qp(Qp& qp, wire::Frame& out);
    bool poll_held(Qp& qp, wire::Frame& out);
    void note_sent(Qp& qp, const wire::Frame& frame, std::size_t bytes);
    void watch(Qp& qp, bool on);
    void pace(Qp& qp, std::size_t bytes) const;
    void commit(std::span<const CopyFault> faults);
    void apply(const CopyFault& fault);
    void push_completions();
    void break_cq(Qp& qp, CqId id);

    // Control.
    int check_qp_init(const QpInit& init);
    void count_uses(const Qp& qp, std::uint32_t by);
    Xrcd::Member* find_member(OwnerId owner, XrcdId id);
    void leave_xrcd(OwnerId owner, XrcdId id);
    void forget_target(SrqId srq);
    int modify(Qp& qp, const QpAttributes& attributes, std::uint32_t mask);
    static int set_ece(Qp& qp, const QpAttributes& attributes, std::uint32_t mask);
    int check_attributes(const Qp& qp, const QpAttributes& attributes, std::uint32_t mask) const;
    int resolve_peer(Qp& qp, const QpAttributes& attributes, std::uint32_t mask);
    void assign(Qp& qp, const QpAttributes& attributes, std::uint32_t mask) const;
    void enter(Qp& qp, QpState from, QpState to);
    void reset(Qp& qp);
    void remove_qp(Qp& qp);
    Qp* find_qp(OwnerId owner, Qpn qpn);

    Core core;
    Requester requester;
    Responder responder;
    RawPackets raw;
    std::uint32_t budget = 0;  // frames that the QP at the front may still send in its turn
};

}  // namespace rdmalab::transport
