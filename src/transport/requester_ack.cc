// Acknowledgement. An ACK for a PSN stands for everything before it, with one exception: a read or
// atomic is acknowledged by its response only. If something behind it is acknowledged and its
// response is missing, the response was lost, as if a NAK had named it (IBTA 9.7.5.1.1, implied
// NAK).
//
// Recovery is go-back-N: the cursor moves back to the PSN in question and everything from there is
// sent again (a read asks for the rest of its response only).
//
// The retransmission timer runs for exactly the interval that the attribute names, 4.096 us *
// 2^timeout; the standard allows up to four times that. With a retry count of n a dead peer is
// found after (n + 1) such intervals.
#include <algorithm>

#include "transport/placement.h"
#include "transport/qp_errors.h"
#include "transport/requester.h"
#include "transport/rnr_timer.h"

namespace rdmalab::transport {
namespace {

constexpr std::uint8_t kRnrRetryForever = 7;
constexpr std::int64_t kTimeoutUnitNs = 4'096;

bool has_unacked(const RequesterState& requester) {
    return requester.unacked_psn != requester.sent_end;
}

// IBTA 9.7.5.2.8 names the codes; 11.6.2 the statuses that they become.
WcStatus status_of_nak(std::uint8_t code) {
    switch (static_cast<wire::NakCode>(code)) {
        case wire::NakCode::kInvalidRequest:
            return WcStatus::kRemInvReqErr;
        case wire::NakCode::kRemoteAccess:
            return WcStatus::kRemAccessErr;
        case wire::NakCode::kRemoteOperational:
            return WcStatus::kRemOpErr;
        case wire::NakCode::kPsnSequence:
        case wire::NakCode::kInvalidRd:
            break;
    }
    return WcStatus::kBadRespErr;
}

// How far `psn` lies behind `start`.
std::uint32_t offset_of(Psn psn, Psn start) { return (psn.value() - start.value()) & Psn::kMask; }
std::uint32_t offset_in(const SendWork& work, Psn psn) { return offset_of(psn, work.first_psn); }

}  // namespace

void Requester::handle_response(Qp& qp, const wire::Frame& frame, const wire::OpcodeInfo& info) {
    const RequesterState& requester = qp.requester;
    if (!qp.is_reliable() || qp.is_xrc_target() ||
        (qp.state != QpState::kRts && qp.state != QpState::kSqd)) {
        ++core_.counters.rx_dropped;
        return;
    }
    const Psn psn{wire::header_at<wire::Bth>(frame, frame.bth_offset)->psn};
    //= IBA 9.7.5.1.1: a response that belongs to no outstanding request is a ghost
    const std::uint32_t outstanding = offset_of(requester.sent_end, requester.unacked_psn);
    if (!psn.in_window(requester.unacked_psn, outstanding)) return;
    switch (info.kind) {
        case wire::PacketKind::kAck:
            handle_ack(
                qp, *wire::header_at<wire::Aeth>(frame, frame.bth_offset + sizeof(wire::Bth)), psn);
            break;
        case wire::PacketKind::kReadResponse:
            handle_read_response(qp, frame, psn);
            break;
        case wire::PacketKind::kAtomicAck:
            handle_atomic_response(qp, frame, psn);
            break;
        default:
            break;
    }
}

// Completes what an acknowledgement of everything before `end` completes; `end` lies between
// unacked_psn and sent_end. Returns the read or atomic that stands in the way, if its PSNs begin
// before `end`. Distances are counted from unacked_psn: a message of 2 GiB may take up 2^23 PSNs,
// too many to order its two ends by themselves.
SendWork* Requester::acknowledge_before(Qp& qp, Psn end) {
    RequesterState& requester = qp.requester;
    const Psn before = requester.unacked_psn;
    SendWork* blocker = nullptr;
    while (!requester.queue.empty()) {
        SendWork& work = requester.queue.front();
        if (work.status != WcStatus::kSuccess || (work.psn_count == 0 && !work.is_done)) break;
        if (work.psn_count > 0) {
            const std::uint32_t acknowledged = offset_of(end, requester.unacked_psn);
            if (acknowledged == 0) break;
            if (work.expects_response()) {
                blocker = &work;
                break;
            }
            const std::uint32_t rest =
                offset_of(work.first_psn + work.psn_count, requester.unacked_psn);
            if (acknowledged < rest) {
                requester.unacked_psn = end;
                break;
            }
            requester.unacked_psn = requester.unacked_psn + rest;
        }
        finish_front(qp, WcStatus::kSuccess);
    }
    note_progress(qp, before);
    return qp.state == QpState::kErr ? nullptr : blocker;
}

void Requester::note_progress(Qp& qp, Psn before) {
    RequesterState& requester = qp.requester;
    if (requester.unacked_psn == before || qp.state == QpState::kErr) return;
    if (qp.is_watched) [[unlikely]]
        core_.congestion->handle_ack(qp.flow(), requester.unacked_psn, core_.now);
    //= IBA 9.7.5.2.8: retry counters are reloaded when the responder makes progress
    requester.retries_left = qp.attributes.retry_count;
    requester.rnr_retries_left = qp.attributes.rnr_retry;
    requester.is_recovering = false;
    if (requester.next_psn.is_before(requester.unacked_psn)) seek(qp, requester.unacked_psn);
    if (has_unacked(requester) && !requester.is_rnr_waiting)
        arm_retransmit(qp);
    else
        Core::clear_timer(qp, Timer::kRetransmit);
    settle(qp);
    check_drained(qp);
    core_.ready.push_back(qp);
}

void Requester::handle_ack(Qp& qp, const wire::Aeth& aeth, Psn psn) {
    const auto code = static_cast<std::uint8_t>(aeth.syndrome & 0x1f);
    switch (aeth.syndrome & 0xe0) {
        case 0:
            if (acknowledge_before(qp, psn + 1) != nullptr) imply_nak(qp);
            break;
        case wire::kSyndromeRnr:
            handle_rnr_nak(qp, code, psn);
            break;
        case wire::kSyndromeNak:
            handle_nak(qp, code, psn);
            break;
        default:
            break;
    }
}

//= IBA 9.7.5.2.8
void Requester::handle_nak(Qp& qp, std::uint8_t code, Psn psn) {
    RequesterState& requester = qp.requester;
    const SendWork* const blocker = acknowledge_before(qp, psn);
    if (qp.state == QpState::kErr || requester.queue.empty()) return;
    if (blocker != nullptr && requester.unacked_psn != psn) return imply_nak(qp);
    if (code == static_cast<std::uint8_t>(wire::NakCode::kPsnSequence)) {
        ++core_.counters.packet_seq_err;
        const bool is_repeated = requester.is_recovering && requester.recover_psn == psn;
        if (qp.is_watched)
            core_.congestion->handle_nak(qp.flow(), NakKind::kSequence, psn, core_.now);
        if (!is_repeated) retry_from(qp, psn);
        return;
    }
    fail_front(qp, status_of_nak(code));
}

//= IBA 9.7.5.2.8
void Requester::handle_rnr_nak(Qp& qp, std::uint8_t code, Psn psn) {
    RequesterState& requester = qp.requester;
    const SendWork* const blocker = acknowledge_before(qp, psn);
    if (qp.state == QpState::kErr || requester.queue.empty() || requester.is_rnr_waiting) return;
    if (blocker != nullptr && requester.unacked_psn != psn) return imply_nak(qp);
    ++core_.counters.rnr_nak_retry_err;
    if (qp.is_watched) core_.congestion->handle_nak(qp.flow(), NakKind::kRnr, psn, core_.now);
    if (qp.attributes.rnr_retry != kRnrRetryForever) {
        if (requester.rnr_retries_left == 0) return fail_front(qp, WcStatus::kRnrRetryExcErr);
        --requester.rnr_retries_left;
    }
    requester.is_rnr_waiting = true;
    seek(qp, psn);
    Core::clear_timer(qp, Timer::kRetransmit);
    core_.set_timer(qp, Timer::kRnr, core_.now + rnr_timer(code));
}

void Requester::handle_rnr_expiry(Qp& qp) {
    qp.requester.is_rnr_waiting = false;
    core_.ready.push_back(qp);
}

void Requester::handle_read_response(Qp& qp, const wire::Frame& frame, Psn psn) {
    SendWork* const work = acknowledge_before(qp, psn + 1);
    if (work == nullptr) return;
    const bool is_read = work->is_read() || work->is_atomic_write();
    const bool is_next = qp.requester.unacked_psn == psn && is_read &&
                         psn.in_window(work->first_psn, work->psn_count);
    if (is_next)
        accept_read_response(qp, *work, frame, psn);
    else
        imply_nak(qp);
}

void Requester::accept_read_response(Qp& qp, SendWork& work, const wire::Frame& frame, Psn psn) {
    const std::uint64_t offset = std::uint64_t{offset_in(work, psn)} * qp.mtu;
    // An atomic write is answered by an empty response.
    const std::uint64_t left = work.is_read() ? work.wqe.length - offset : 0;
    const std::uint64_t expected = std::min<std::uint64_t>(qp.mtu, left);
    //= IBA 9.7.5.1.4
    if (frame.payload_length != expected) return fail_front(qp, WcStatus::kBadRespErr);
    const std::span<const Sge> sges{work.wqe.sges.data(), work.wqe.sge_count};
    SgeCursor place = seek_sges(sges, offset);
    const Placed placed = scatter(core_, qp.init.pd, sges, place, payload_of(frame),
                                  core_.copy_owner(qp, false, psn, frame.origin));
    if (placed != Placed::kOk) return fail_front(qp, WcStatus::kLocProtErr);
    qp.requester.unacked_psn = psn + 1;
    if (offset_in(work, psn) + 1 == work.psn_count) finish_front(qp, WcStatus::kSuccess);
    note_progress(qp, psn);
}

void Requester::handle_atomic_response(Qp& qp, const wire::Frame& frame, Psn psn) {
    SendWork* const work = acknowledge_before(qp, psn + 1);
    if (work == nullptr) return;
    if (qp.requester.unacked_psn != psn) return imply_nak(qp);
    if (!work->is_atomic()) return fail_front(qp, WcStatus::kBadRespErr);
    const std::size_t at = frame.bth_offset + sizeof(wire::Bth) + sizeof(wire::Aeth);
    const std::uint64_t original = wire::header_at<wire::AtomicAckEth>(frame, at)->original;
    std::byte* const stored = core_.staging.arena().allocate(sizeof original);
    store_bytes(stored, original);
    const PayloadSegment source{kCardSpace, sizeof original,
                                reinterpret_cast<std::uint64_t>(stored)};
    SgeCursor place;
    const Placed placed = scatter(core_, qp.init.pd, {work->wqe.sges.data(), work->wqe.sge_count},
                                  place, {&source, 1}, core_.copy_owner(qp, false, psn, 0));
    if (placed != Placed::kOk) return fail_front(qp, WcStatus::kLocProtErr);
    qp.requester.unacked_psn = psn + 1;
    finish_front(qp, WcStatus::kSuccess);
    note_progress(qp, psn);
}

//= IBA 9.7.5.1.1
void Requester::imply_nak(Qp& qp) {
    RequesterState& requester = qp.requester;
    // The responses that follow a lost one all say the same.
    if (requester.is_recovering && requester.recover_psn == requester.unacked_psn) return;
    ++core_.counters.implied_nak_seq_err;
    retry_from(qp, requester.unacked_psn);
}

void Requester::handle_timeout(Qp& qp) {
    if (!has_unacked(qp.requester) || qp.requester.is_rnr_waiting) return;
    ++core_.counters.local_ack_timeout_err;
    retry_from(qp, qp.requester.unacked_psn);
}

//= IBA 9.7.6.1.2
void Requester::retry_from(Qp& qp, Psn psn) {
    RequesterState& requester = qp.requester;
    if (requester.retries_left == 0) return fail_front(qp, WcStatus::kRetryExcErr);
    --requester.retries_left;
    requester.is_recovering = true;
    requester.recover_psn = psn;
    Core::clear_timer(qp, Timer::kRetransmit);
    seek(qp, psn);
    core_.ready.push_back(qp);
}

// Moves the cursor to the packet `psn`, which is one of those in flight or the next new one.
void Requester::seek(Qp& qp, Psn psn) {
    RequesterState& requester = qp.requester;
    SendQueue& queue = requester.queue;
    std::uint32_t position = 0;
    requester.packet = 0;
    requester.place = {};
    for (; position < queue.size(); ++position) {
        const SendWork& work = queue.at(position);
        if (work.psn_count == 0 && work.is_done) continue;
        if (work.psn_count == 0 || work.first_psn == psn) break;
        if (!psn.in_window(work.first_psn, work.psn_count)) continue;
        requester.packet = offset_in(work, psn);
        requester.place = seek_sges({work.wqe.sges.data(), work.wqe.sge_count},
                                    std::uint64_t{requester.packet} * qp.mtu);
        break;
    }
    requester.cursor = position;
    requester.next_psn = psn;
    for (; position < queue.size(); ++position) {
        SendWork& work = queue.at(position);
        if (work.is_counted) --requester.reads_in_flight;
        work.is_counted = false;
    }
}

// The front may be local work that waited for its turn.
void Requester::settle(Qp& qp) {
    RequesterState& requester = qp.requester;
    while (!requester.queue.empty() && qp.state != QpState::kErr) {
        const SendWork& front = requester.queue.front();
        if (front.status != WcStatus::kSuccess) return fail_front(qp, front.status);
        if (front.psn_count > 0 || !front.is_done) return;
        finish_front(qp, WcStatus::kSuccess);
    }
}

void Requester::finish_front(Qp& qp, WcStatus status) {
    RequesterState& requester = qp.requester;
    const SendWork& work = requester.queue.front();
    if (work.is_counted) --requester.reads_in_flight;
    core_.staging.add_send(qp, work, status);
    requester.queue.pop();
    if (requester.cursor > 0)
        --requester.cursor;
    else
        requester.packet = 0;
}

//= IBA 10.10.2
void Requester::fail_front(Qp& qp, WcStatus status) {
    ++core_.counters.req_cqe_error;
    finish_front(qp, status);
    if (qp.is_reliable())
        move_to_error(core_, qp);
    else
        move_to_sqe(core_, qp);
}

void Requester::arm_retransmit(Qp& qp) {
    //= IBA 9.7.6.1.3: 0 stands for no timeout at all
    if (qp.attributes.timeout == 0) return;
    core_.set_timer(qp, Timer::kRetransmit,
                    core_.now + nanoseconds(kTimeoutUnitNs << qp.attributes.timeout));
}

//= IBA 10.3.1.5
void Requester::check_drained(Qp& qp) {
    RequesterState& requester = qp.requester;
    if (qp.state != QpState::kSqd || !requester.is_draining) return;
    if (has_unacked(requester) || requester.packet > 0) return;
    requester.is_draining = false;
    if (qp.attributes.sqd_async_notify)
        core_.staging.add_event(AsyncEventType::kSqDrained, qp.init.owner, qp.qpn.value);
}

void Requester::handle_copy_fault(Qp& qp, Psn psn, WcStatus status) {
    bool is_found = false;
    for (StagedCompletion& staged : core_.staging.completions()) {
        if (staged.completion.qpn != qp.qpn || staged.completion.is_recv) continue;
        if (staged.completion.status != WcStatus::kSuccess) continue;
        if (!is_found && psn.in_window(staged.first_psn, staged.psn_count)) {
            is_found = true;
            staged.completion.status = status;
            staged.is_silent = false;
        } else if (is_found && qp.is_reliable()) {
            staged.completion.status = WcStatus::kWrFlushErr;
            staged.is_silent = false;
        }
    }
    if (is_found) {
        ++core_.counters.req_cqe_error;
        return qp.is_reliable() ? move_to_error(core_, qp) : move_to_sqe(core_, qp);
    }
    for (std::uint32_t i = 0; i < qp.requester.queue.size(); ++i) {
        SendWork& work = qp.requester.queue.at(i);
        if (psn.in_window(work.first_psn, work.psn_count)) work.status = status;
    }
    settle(qp);
}

}  // namespace rdmalab::transport
