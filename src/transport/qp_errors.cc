#include "transport/qp_errors.h"

#include <algorithm>

#include "transport/placement.h"

namespace rdmalab::transport {
namespace {

// Receives are posted without a doorbell, so a QP in ERR looks for new ones, ever more seldom while
// there are none: a QP that is left in ERR must not keep an idle card awake.
constexpr Duration kFlushIntervalMin = milliseconds(5);
constexpr Duration kFlushIntervalMax = milliseconds(640);
// WQEs that one call flushes: a client that posts as fast as we flush must not hold up the others.
constexpr std::uint32_t kFlushMax = limits::kWqeMax;

Completion flushed() {
    Completion completion;
    completion.status = WcStatus::kWrFlushErr;
    completion.opcode = WcOpcode::kRecv;
    return completion;
}

bool has_recv_queue(const Qp& qp) { return !qp.init.srq && !qp.is_xrc(); }

// True when there was one.
bool flush_posted_recvs(Core& core, Qp& qp) {
    std::uint32_t count = 0;
    while (count < kFlushMax && core.work.fetch_recv(qp.qpn, core.flushed_recv)) {
        core.staging.add_recv(qp, core.flushed_recv, flushed(), Psn{}, 0);
        ++count;
    }
    return count > 0;
}

void check_srq_limit(Core& core, Qp& qp) {
    const SrqId id = *qp.recv_target.srq;
    Srq* const srq = core.srqs.find(id);
    if (srq == nullptr || srq->limit == 0 || core.work.srq_depth(id) >= srq->limit) return;
    srq->limit = 0;
    core.staging.add_event(AsyncEventType::kSrqLimitReached, srq->owner, id.value);
}

}  // namespace

//= IBA 10.3.1.7
void move_to_error(Core& core, Qp& qp) {
    if (qp.state == QpState::kErr) return;
    qp.state = QpState::kErr;
    qp.timers.fill(Instant::never());
    qp.requester.is_rnr_waiting = false;
    qp.requester.is_draining = false;
    flush_sends(core, qp);
    flush_recvs(core, qp);
    if (qp.init.srq) {
        //= IBA 11.6.3.1
        core.staging.add_event(AsyncEventType::kQpLastWqeReached, qp.init.owner, qp.qpn.value);
    }
}

//= IBA 10.3.1.6
void move_to_sqe(Core& core, Qp& qp) {
    if (qp.state == QpState::kErr || qp.state == QpState::kSqe) return;
    qp.state = QpState::kSqe;
    qp.requester.is_draining = false;
    flush_sends(core, qp);
}

void flush_sends(Core& core, Qp& qp) {
    RequesterState& requester = qp.requester;
    for (std::uint32_t i = 0; i < requester.queue.size(); ++i)
        core.staging.add_send(qp, requester.queue.at(i), WcStatus::kWrFlushErr);
    requester.queue.clear();
    requester.cursor = 0;
    requester.packet = 0;
    requester.reads_in_flight = 0;
    requester.unacked_psn = requester.next_psn = requester.sent_end;
    SendWork& scratch = requester.queue.spare();
    for (std::uint32_t i = 0; i < kFlushMax && core.work.fetch_send(qp.qpn, scratch.wqe); ++i) {
        scratch.psn_count = 0;
        core.staging.add_send(qp, scratch, WcStatus::kWrFlushErr);
    }
    requester.may_have_work = false;
}

void flush_taken_recv(Core& core, Qp& qp) {
    ResponderState& responder = qp.responder;
    if (responder.has_recv) core.staging.add_recv(qp, responder.recv, flushed(), Psn{}, 0);
    responder.has_recv = false;
}

void flush_recvs(Core& core, Qp& qp) {
    ResponderState& responder = qp.responder;
    flush_taken_recv(core, qp);
    responder.inbound = Inbound::kNone;
    if (!has_recv_queue(qp)) return;
    flush_posted_recvs(core, qp);
    qp.flush_interval = kFlushIntervalMin;
    core.set_timer(qp, Timer::kFlush, core.now + qp.flush_interval);
}

void flush_late_recvs(Core& core, Qp& qp) {
    if (qp.state != QpState::kErr || !has_recv_queue(qp)) return;
    const bool is_in_use = flush_posted_recvs(core, qp);
    const Duration longer = std::min(qp.flush_interval * 2, kFlushIntervalMax);
    qp.flush_interval = is_in_use ? kFlushIntervalMin : longer;
    core.set_timer(qp, Timer::kFlush, core.now + qp.flush_interval);
}

bool take_recv(Core& core, Qp& qp) {
    ResponderState& responder = qp.responder;
    if (!responder.has_recv) {
        const bool is_there = qp.is_xrc_target()
                                  ? core.work.fetch_srq(*qp.recv_target.srq, responder.recv)
                                  : core.work.fetch_recv(qp.qpn, responder.recv);
        if (!is_there) return false;
        responder.has_recv = true;
        responder.recv_capacity =
            total_length({responder.recv.sges.data(), responder.recv.sge_count});
        if (qp.recv_target.srq) check_srq_limit(core, qp);
    }
    responder.recv_place = {};
    responder.received = 0;
    return true;
}

}  // namespace rdmalab::transport
