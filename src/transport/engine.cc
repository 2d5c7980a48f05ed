// The data path: from a frame to the QP and the half of it that is meant, and from the ready list
// to the next frame. See engine.h for the order of the calls.
#include "transport/engine.h"

#include <algorithm>

#include "transport/engine_impl.h"
#include "transport/notification.h"
#include "transport/qp_errors.h"
#include "wire/icrc.h"

namespace rdmalab::transport {
namespace {

constexpr std::uint16_t kPkeyMask = 0x7fff;  // without the membership bit
constexpr std::uint16_t kDefaultPkey = 0x7fff;

bool is_response(wire::PacketKind kind) {
    return kind == wire::PacketKind::kAck || kind == wire::PacketKind::kAtomicAck ||
           kind == wire::PacketKind::kReadResponse;
}

}  // namespace

//= IBA 9.6.1.1
void Engine::Impl::handle_frame(wire::Frame& frame) {
    EngineCounters& counters = core.counters;
    ++counters.rx_frames;
    counters.rx_bytes += wire::wire_length(frame);
    if (!wire::is_roce(frame)) {
        ++counters.rx_dropped;
        return;
    }
    if (frame.icrc_state == wire::IcrcState::kElided && !wire::invariants_unchanged(frame)) {
        ++counters.rx_icrc_errors;
        return;
    }
    const auto& bth = *wire::header_at<wire::Bth>(frame, frame.bth_offset);
    const wire::OpcodeInfo* const info = wire::find_opcode(bth.opcode);
    if (info == nullptr || (bth.pkey & kPkeyMask) != kDefaultPkey) {
        ++counters.rx_dropped;
        return;
    }
    const Qpn destination{bth.destination_qp};
    if (destination == kMulticastQpn) return handle_multicast(frame, *info);
    Qp* const qp = core.qps.find(destination);
    if (qp == nullptr) {
        ++counters.rx_unknown_qp;
        return;
    }
    deliver(*qp, frame, *info);
}

//= IBA 10.5.2
void Engine::Impl::handle_multicast(wire::Frame& frame, const wire::OpcodeInfo& info) {
    const auto members = core.multicast.members(wire::destination_gid(frame));
    if (info.service != wire::Service::kUd || members.empty()) {
        ++core.counters.rx_dropped;
        return;
    }
    for (const Qpn qpn : members)
        if (Qp* const qp = core.qps.find(qpn)) deliver(*qp, frame, info);
}

void Engine::Impl::handle_steered(Qp& qp, const wire::Frame& frame, std::uint32_t tag) {
    const std::size_t before = core.staging.completions().size();
    if (qp.is_raw()) {
        raw.receive(qp, frame);
    } else {
        const bool is_datagram =
            qp.is_ud() && wire::is_roce(frame) &&
            (frame.icrc_state != wire::IcrcState::kElided || wire::invariants_unchanged(frame));
        const wire::OpcodeInfo* const info =
            is_datagram
                ? wire::find_opcode(wire::header_at<wire::Bth>(frame, frame.bth_offset)->opcode)
                : nullptr;
        if (info == nullptr || info->service != wire::Service::kUd) {
            ++core.counters.rx_dropped;
            return;
        }
        deliver(qp, frame, *info);
    }
    for (StagedCompletion& staged : core.staging.completions().subspan(before))
        staged.completion.flow_tag = tag;
}

void Engine::Impl::deliver(Qp& qp, const wire::Frame& frame, const wire::OpcodeInfo& info) {
    if (qp.is_raw()) {
        ++core.counters.rx_dropped;
        return;
    }
    if (info.kind == wire::PacketKind::kCnp) {
        ++core.counters.rp_cnp_handled;
        if (core.congestion != nullptr) core.congestion->handle_cnp(qp.flow(), core.now);
        return;
    }
    if (info.service != qp.service()) {
        ++core.counters.rx_dropped;
        return;
    }
    qp.rx_bytes += frame.payload_length;
    if (info.carries_payload && wire::ecn(frame) == wire::kEcnCe)
        note_congestion(core, qp, frame, info);
    if (is_response(info.kind))
        requester.handle_response(qp, frame, info);
    else
        responder.handle_request(qp, frame, info);
}

void Engine::Impl::handle_timeout() {
    while (core.deadlines.next() <= core.now) {
        Qp& qp = *core.qps.at(core.deadlines.pop());
        for (std::size_t i = 0; i < kTimerCount; ++i) {
            if (qp.timers[i] > core.now) continue;
            qp.timers[i] = Instant::never();
            fire(qp, static_cast<Timer>(i));
        }
        schedule_timers(qp);
    }
}

void Engine::Impl::fire(Qp& qp, Timer timer) {
    switch (timer) {
        case Timer::kRetransmit:
            requester.handle_timeout(qp);
            break;
        case Timer::kRnr:
            requester.handle_rnr_expiry(qp);
            break;
        case Timer::kFlush:
            flush_late_recvs(core, qp);
            break;
        case Timer::kPace:
            if (core.congestion != nullptr && qp.is_watched)
                qp.hold_until = core.congestion->may_send(qp.flow(), core.now);
            core.ready.push_back(qp);
            break;
    }
}

void Engine::Impl::schedule_timers(Qp& qp) {
    Instant earliest = Instant::never();
    for (const Instant time : qp.timers) earliest = std::min(earliest, time);
    if (!earliest.is_never()) core.deadlines.schedule(qp.slot, earliest);
}

bool Engine::Impl::poll_frame(wire::Frame& out) {
    while (!core.ready.empty()) {
        Qp* const qp = core.qps.find(core.ready.front());
        if (qp != nullptr && poll_qp(*qp, out)) {
            const std::size_t bytes = wire::wire_length(out);
            ++core.counters.tx_frames;
            core.counters.tx_bytes += bytes;
            qp->tx_bytes += out.payload_length;
            if (qp->is_watched) [[unlikely]]
                note_sent(*qp, out, bytes);
            if (qp->attributes.rate_limit_kbps != 0) [[unlikely]]
                pace(*qp, bytes);
            if (budget <= 1) {
                core.ready.rotate();
                budget = core.config.frames_per_turn;
            } else {
                --budget;
            }
            return true;
        }
        if (qp != nullptr) qp->is_ready = false;
        core.ready.pop_front();
        budget = core.config.frames_per_turn;
    }
    return false;
}

bool Engine::Impl::poll_qp(Qp& qp, wire::Frame& out) {
    if (poll_notification(core, qp, out)) return true;
    if (qp.hold_until > core.now) [[unlikely]]
        return poll_held(qp, out);
    return responder.poll_frame(qp, out) || requester.poll_frame(qp, out);
}

// Acknowledgements do not wait: they are what the peer's clock runs by.
bool Engine::Impl::poll_held(Qp& qp, wire::Frame& out) {
    if (responder.poll_acknowledgement(qp, out)) return true;
    core.set_timer(qp, Timer::kPace, qp.hold_until);
    return false;
}

void Engine::Impl::note_sent(Qp& qp, const wire::Frame& frame, std::size_t bytes) {
    const auto& bth = *wire::header_at<wire::Bth>(frame, frame.bth_offset);
    const wire::OpcodeInfo* const info = wire::find_opcode(bth.opcode);
    const bool is_read = info != nullptr && info->kind == wire::PacketKind::kReadRequest;
    if (frame.payload_length == 0 && !is_read) return;
    SentPacket packet;
    packet.flow = qp.flow();
    packet.psn = Psn(bth.psn);
    packet.bytes = static_cast<std::uint32_t>(bytes);
    packet.is_requester = info != nullptr && !is_response(info->kind);
    packet.asks_ack = (bth.ack_request & 0x80) != 0;
    qp.hold_until = core.congestion->handle_sent(packet, core.now);
}

// IBV_QP_RATE_LIMIT, of raw packet QPs. A QP that is late makes up for a millisecond at most.
void Engine::Impl::pace(Qp& qp, std::size_t bytes) const {
    const Rate rate{std::uint64_t{qp.attributes.rate_limit_kbps} * 1'000};
    qp.hold_until = std::max(qp.hold_until, core.now - milliseconds(1)) + rate.time_for(bytes);
}

void Engine::Impl::commit(std::span<const CopyFault> faults) {
    for (const CopyFault& fault : faults) apply(fault);
    // A CQ that overflows stages more (the flush of its QPs), so this goes on until nothing is
    // left.
    push_completions();
    for (const AsyncEvent& event : core.staging.events()) core.outcome.push_event(event);
    for (const Qpn qpn : core.staging.duties())
        if (Qp* const qp = core.qps.find(qpn)) responder.commit(*qp);
    core.staging.clear();
}

// Of a read whose bytes could not be placed.
WcStatus status_of_response(const CopyFault& fault) {
    if (!fault.at_source) return WcStatus::kLocProtErr;
    return fault.is_gone ? WcStatus::kRetryExcErr : WcStatus::kRemAccessErr;
}

// A copy has two ends: the QP that received the bytes, and the QP that sent them. The end of a
// process is no fault of its memory: an adapter goes on writing to its pinned pages until the
// detachment, and what it can no longer answer is silence to the peer.
void Engine::Impl::apply(const CopyFault& fault) {
    if (fault.is_gone && !fault.at_source) return;
    const CopyOwner& owner = fault.owner;
    const Psn psn{owner.token};
    if (!owner.source_is_blamed && owner.engine == core.config.index) {
        if (Qp* const qp = core.qps.find(owner.qpn)) {
            if (!owner.is_responder)
                requester.handle_copy_fault(*qp, psn, status_of_response(fault));
            else if (fault.at_source)
                responder.handle_lost_source(*qp, psn);
            else
                responder.handle_target_fault(*qp, psn);
        }
    }
    const Origin origin = origin_from(owner.origin);
    if (!fault.at_source || !origin.is_known || origin.engine != core.config.index) return;
    if (Qp* const qp = core.qps.find(origin.qpn)) {
        if (origin.is_responder && !fault.is_gone)
            responder.handle_response_fault(*qp, origin.psn);
        else if (!origin.is_responder)
            requester.handle_copy_fault(*qp, origin.psn, WcStatus::kLocProtErr);
    }
}

void Engine::Impl::push_completions() {
    for (std::size_t i = 0; i < core.staging.completions().size(); ++i) {
        StagedCompletion staged = core.staging.completions()[i];
        Qp* const qp = core.qps.find(staged.completion.qpn);
        Cq* const cq = core.cqs.find(staged.cq);
        if (staged.is_silent || qp == nullptr || cq == nullptr || cq->is_broken) continue;
        staged.completion.time = core.now;
        if (!core.outcome.push_completion(staged.cq, staged.completion)) break_cq(*qp, staged.cq);
    }
}

//= IBA 11.6.3.2
void Engine::Impl::break_cq(Qp& qp, CqId id) {
    Cq& cq = *core.cqs.find(id);
    cq.is_broken = true;
    core.staging.add_event(AsyncEventType::kCqError, cq.owner, id.value);
    core.staging.add_event(AsyncEventType::kQpFatal, qp.init.owner, qp.qpn.value);
    move_to_error(core, qp);
}

Engine::Engine(const EngineConfig& config, MemoryPort& memory, WorkPort& work, OutcomePort& outcome)
    : impl_(std::make_unique<Impl>(config, memory, work, outcome)) {
    impl_->budget = config.frames_per_turn;
}

Engine::~Engine() = default;

const EngineConfig& Engine::config() const { return impl_->core.config; }

bool Engine::is_raw_qp(Qpn qpn) const {
    const Qp* const qp = impl_->core.qps.find(qpn);
    return qp != nullptr && qp->is_raw();
}

Qpn Engine::sender_of(const wire::Frame& frame) const {
    const Origin origin = origin_from(frame.origin);
    return origin.is_known && origin.engine == impl_->core.config.index ? origin.qpn : Qpn{};
}

bool Engine::is_claimed(const wire::Frame& frame) const {
    const Qpn qpn{wire::header_at<wire::Bth>(frame, frame.bth_offset)->destination_qp};
    if (qpn == kMulticastQpn)
        return !impl_->core.multicast.members(wire::destination_gid(frame)).empty();
    return has_qp(qpn);
}

void Engine::handle_doorbell(Qpn qpn) {
    Qp* const qp = impl_->core.qps.find(qpn);
    if (qp == nullptr) return;
    if (qp->state == QpState::kErr || qp->state == QpState::kSqe) {
        flush_sends(impl_->core, *qp);
        if (qp->state == QpState::kErr) flush_recvs(impl_->core, *qp);
        return;
    }
    qp->requester.may_have_work = true;
    if (qp->state == QpState::kRts) impl_->core.ready.push_back(*qp);
}

void Engine::handle_frame(wire::Frame& frame, Instant now) {
    impl_->core.now = now;
    impl_->handle_frame(frame);
}

void Engine::handle_steered(Qpn qpn, const wire::Frame& frame, std::uint32_t tag, Instant now) {
    impl_->core.now = now;
    ++impl_->core.counters.rx_frames;
    impl_->core.counters.rx_bytes += wire::wire_length(frame);
    if (Qp* const qp = impl_->core.qps.find(qpn)) impl_->handle_steered(*qp, frame, tag);
}

void Engine::handle_timeout(Instant now) {
    impl_->core.now = now;
    impl_->handle_timeout();
}

bool Engine::poll_frame(Instant now, wire::Frame& out) {
    impl_->core.now = now;
    return impl_->poll_frame(out);
}

void Engine::commit(std::span<const CopyFault> faults, Instant now) {
    impl_->core.now = now;
    impl_->commit(faults);
}

Instant Engine::next_deadline() const { return impl_->core.deadlines.next(); }

bool Engine::has_work() const { return !impl_->core.ready.empty() || !impl_->core.staging.empty(); }

void Engine::count_icrc_error() {
    ++impl_->core.counters.rx_frames;
    ++impl_->core.counters.rx_icrc_errors;
}

const EngineCounters& Engine::counters() const { return impl_->core.counters; }

}  // namespace rdmalab::transport
