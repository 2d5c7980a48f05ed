// The chain of checks. A request is looked at by one small check after the other, in the order of
// the standard (IBTA vol. 1, 9.7.4.1 for RC, 9.8.3 for UC and UD); the first objection is the
// verdict, and what a verdict does to the requester, the receive WQE and the QP is said in one
// place
// (`conclude`, `fail`). A request without objection is executed (responder_execute.cc).
//
// Nothing is answered here: answers are staged, and become due when the round is committed and the
// data is in place (responder_answer.cc).
#include "transport/responder.h"

#include "transport/qp_errors.h"

namespace rdmalab::transport {
namespace {

using wire::PacketKind;

bool is_atomic(const Request& request) {
    return request.info.kind == PacketKind::kCompareSwap ||
           request.info.kind == PacketKind::kFetchAdd;
}

bool is_atomic_write(const Request& request) {
    return request.info.kind == PacketKind::kAtomicWrite;
}

// Takes a responder resource and is answered by a response of its own.
bool is_answered(const Request& request) {
    return request.info.kind == PacketKind::kReadRequest || is_atomic(request) ||
           is_atomic_write(request);
}

bool is_accepting(QpState state) {
    return state == QpState::kRtr || state == QpState::kRts || state == QpState::kSqd ||
           state == QpState::kSqe;
}

std::uint8_t nak(wire::NakCode code) {
    return static_cast<std::uint8_t>(wire::kSyndromeNak | static_cast<std::uint8_t>(code));
}

// What an objection means for both sides (IBTA 9.9.3, responder errors).
struct Failure {
    wire::NakCode code;
    WcStatus recv_status;  // of the receive WQE, if the message has taken one
    AsyncEventType event;  // otherwise
};
Failure failure_of(Verdict verdict) {
    switch (verdict) {
        case Verdict::kRemoteAccess:
            return {wire::NakCode::kRemoteAccess, WcStatus::kLocAccessErr,
                    AsyncEventType::kQpAccessError};
        case Verdict::kTooLong:
            return {wire::NakCode::kInvalidRequest, WcStatus::kLocLenErr,
                    AsyncEventType::kQpRequestError};
        case Verdict::kRecvProtection:
            return {wire::NakCode::kRemoteOperational, WcStatus::kLocProtErr,
                    AsyncEventType::kQpFatal};
        default:
            return {wire::NakCode::kInvalidRequest, WcStatus::kRemInvReqErr,
                    AsyncEventType::kQpRequestError};
    }
}

}  // namespace

void Responder::handle_request(Qp& qp, const wire::Frame& frame, const wire::OpcodeInfo& info) {
    if (!is_accepting(qp.state) || qp.is_xrc_initiator()) {
        ++core_.counters.rx_dropped;
        return;
    }
    const auto& bth = *wire::header_at<wire::Bth>(frame, frame.bth_offset);
    const Request request{frame, info, bth, Psn{bth.psn}};
    if (qp.is_ud()) return handle_ud(qp, request);
    if (qp.state == QpState::kRtr && !qp.comm_established) {
        //= IBA 11.6.3.1
        qp.comm_established = true;
        core_.staging.add_event(AsyncEventType::kCommEstablished, qp.init.owner, qp.qpn.value);
    }
    if (qp.is_reliable())
        handle_rc(qp, request);
    else
        handle_uc(qp, request);
}

void Responder::handle_rc(Qp& qp, const Request& request) {
    Verdict verdict = check_psn(qp, request);
    if (verdict == Verdict::kPass) verdict = check_sequence(qp, request);
    if (verdict == Verdict::kPass) verdict = check_content(qp, request);
    if (verdict == Verdict::kPass) verdict = execute(qp, request);
    conclude(qp, request, verdict);
}

Verdict Responder::check_content(Qp& qp, const Request& request) {
    Verdict verdict = qp.is_xrc_target() ? check_target(qp, request) : Verdict::kPass;
    if (verdict == Verdict::kPass) verdict = check_enabled(qp, request);
    if (verdict == Verdict::kPass) verdict = check_length(qp, request);
    if (verdict == Verdict::kPass) verdict = check_resources(qp, request);
    if (verdict == Verdict::kPass) verdict = check_rkey(qp, request);
    return verdict;
}

//= IBA 9.7.4.1.1
Verdict Responder::check_psn(const Qp& qp, const Request& request) const {
    const std::int32_t distance = request.psn.distance_from(qp.responder.expected_psn);
    if (distance == 0) return Verdict::kPass;
    return distance < 0 ? Verdict::kDuplicate : Verdict::kOutOfSequence;
}

//= IBA 9.7.4.1.2
Verdict Responder::check_sequence(const Qp& qp, const Request& request) const {
    const Inbound inbound = qp.responder.inbound;
    if (request.is_start())
        return inbound == Inbound::kNone ? Verdict::kPass : Verdict::kInvalidRequest;
    const Inbound needed =
        request.info.kind == PacketKind::kSend ? Inbound::kSend : Inbound::kWrite;
    return inbound == needed ? Verdict::kPass : Verdict::kInvalidRequest;
}

// The SRQ of an XRC request, in whose PD it is carried out, belongs to the domain of the QP. The
// packets of one message name one SRQ.
//= IBA A14: XRC SRQ validation
Verdict Responder::check_target(Qp& qp, const Request& request) {
    const SrqId id{request.xrceth().srq};
    const Srq* const srq = core_.srqs.find(id);
    if (srq == nullptr || !srq->xrcd || srq->xrcd != qp.init.xrcd) return Verdict::kInvalidRequest;
    const bool is_other = qp.recv_target.srq != id;
    if (!request.is_start() && is_other) return Verdict::kInvalidRequest;
    if (is_other) {
        // A WQE that was taken from another SRQ for a message that was refused.
        if (qp.responder.has_recv) flush_taken_recv(core_, qp);
        qp.recv_target = {srq->cq, id, srq->pd};
    }
    return Verdict::kPass;
}

//= IBA 9.7.4.1.5
Verdict Responder::check_enabled(const Qp& qp, const Request& request) const {
    std::uint32_t needed = 0;
    if (request.info.kind == PacketKind::kWrite || is_atomic_write(request))
        needed = kAccessRemoteWrite;
    if (request.info.kind == PacketKind::kReadRequest) needed = kAccessRemoteRead;
    if (is_atomic(request)) needed = kAccessRemoteAtomic;
    return (qp.attributes.access & needed) == needed ? Verdict::kPass : Verdict::kInvalidRequest;
}

//= IBA 9.7.4.1.6
Verdict Responder::check_length(const Qp& qp, const Request& request) const {
    const std::uint32_t payload = request.frame.payload_length;
    if (request.info.kind == PacketKind::kReadRequest) {
        const std::uint32_t length = request.extension<wire::Reth>().length;
        return length <= limits::kMessageMax ? Verdict::kPass : Verdict::kInvalidRequest;
    }
    if (is_atomic(request)) return Verdict::kPass;
    if (is_atomic_write(request)) {
        const bool is_word = payload == sizeof(std::uint64_t) &&
                             request.extension<wire::Reth>().length == sizeof(std::uint64_t);
        return is_word ? Verdict::kPass : Verdict::kInvalidRequest;
    }
    if (payload > qp.mtu) return Verdict::kInvalidRequest;
    if (!request.is_end() && payload != qp.mtu) return Verdict::kInvalidRequest;
    if (!request.is_start() && payload == 0) return Verdict::kInvalidRequest;
    if (request.info.kind == PacketKind::kSend) return Verdict::kPass;
    const std::uint32_t total = request.is_start()
                                    ? std::uint32_t{request.extension<wire::Reth>().length}
                                    : qp.responder.write_length - qp.responder.written;
    if (total > limits::kMessageMax) return Verdict::kInvalidRequest;
    const bool fits = request.is_end() ? payload == total : payload < total;
    return fits ? Verdict::kPass : Verdict::kInvalidRequest;
}

//= IBA 9.7.4.1.4
Verdict Responder::check_resources(Qp& qp, const Request& request) {
    const ResponderState& responder = qp.responder;
    if (is_answered(request)) {
        const std::uint32_t unanswered = responder.stored_end - responder.answered_end;
        return unanswered < qp.attributes.responder_resources ? Verdict::kPass
                                                              : Verdict::kInvalidRequest;
    }
    if (!request.takes_recv()) return Verdict::kPass;
    return take_recv(core_, qp) ? Verdict::kPass : Verdict::kNotReady;
}

//= IBA 9.7.4.1.3
Verdict Responder::check_rkey(const Qp& qp, const Request& request) const {
    const PdId pd = qp.remote_pd();
    if (is_atomic(request)) {
        const auto& atomic = request.extension<wire::AtomicEth>();
        //= IBA 9.4.5: an atomic's address is a multiple of its size
        if (atomic.virtual_address % sizeof(std::uint64_t) != 0) return Verdict::kInvalidRequest;
        const bool ok = core_.regions
                            .remote(Rkey{atomic.rkey}, pd, qp.qpn, atomic.virtual_address,
                                    sizeof(std::uint64_t), kAccessRemoteAtomic)
                            .ok;
        return ok ? Verdict::kPass : Verdict::kRemoteAccess;
    }
    if (!request.has(wire::kHasReth)) return Verdict::kPass;
    const auto& reth = request.extension<wire::Reth>();
    if (reth.length == 0) return Verdict::kPass;
    //= IBA 9.4.8: as for the other atomics
    if (is_atomic_write(request) && reth.virtual_address % sizeof(std::uint64_t) != 0)
        return Verdict::kInvalidRequest;
    const std::uint32_t access =
        request.info.kind == PacketKind::kReadRequest ? kAccessRemoteRead : kAccessRemoteWrite;
    const bool ok =
        core_.regions.remote(Rkey{reth.rkey}, pd, qp.qpn, reth.virtual_address, reth.length, access)
            .ok;
    return ok ? Verdict::kPass : Verdict::kRemoteAccess;
}

void Responder::conclude(Qp& qp, const Request& request, Verdict verdict) {
    ResponderState& responder = qp.responder;
    switch (verdict) {
        case Verdict::kPass:
            ++responder.expected_psn;
            if (request.is_end()) responder.msn = (responder.msn + 1) & Psn::kMask;
            responder.is_awaiting_retransmit = false;
            if (responder.nak_staged || responder.nak_due) {
                // What the NAK was for has arrived; what was dropped behind it has not.
                responder.nak_syndrome = nak(wire::NakCode::kPsnSequence);
                responder.nak_psn = responder.expected_psn;
            }
            if (request.bth.wants_ack()) stage_ack(qp);
            break;
        case Verdict::kDuplicate:
            handle_duplicate(qp, request);
            break;
        case Verdict::kOutOfSequence:
            //= IBA 9.7.5.1.2
            ++core_.counters.out_of_sequence;
            if (!responder.is_awaiting_retransmit)
                stage_nak(qp, nak(wire::NakCode::kPsnSequence), responder.expected_psn);
            break;
        case Verdict::kNotReady:
            stage_nak(qp,
                      static_cast<std::uint8_t>(wire::kSyndromeRnr |
                                                (qp.attributes.min_rnr_timer & 0x1f)),
                      request.psn);
            break;
        case Verdict::kDrop:
            ++core_.counters.rx_dropped;
            break;
        default:
            fail(qp, request, verdict);
            break;
    }
}

//= IBA 9.9.3
void Responder::fail(Qp& qp, const Request& request, Verdict verdict) {
    ResponderState& responder = qp.responder;
    const Failure failure = failure_of(verdict);
    const bool has_taken = responder.has_recv && (responder.inbound == Inbound::kSend ||
                                                  request.info.kind == PacketKind::kSend);
    if (has_taken) {
        ++core_.counters.resp_cqe_error;
        Completion fields;
        fields.status = failure.recv_status;
        fields.opcode = WcOpcode::kRecv;
        core_.staging.add_recv(qp, responder.recv, fields, request.psn, 1);
        responder.has_recv = false;
    } else {
        core_.staging.add_event(failure.event, qp.init.owner, qp.qpn.value);
    }
    stage_nak(qp, nak(failure.code), request.psn);
    move_to_error(core_, qp);
}

//= IBA 9.7.5.1.5
void Responder::handle_duplicate(Qp& qp, const Request& request) {
    ++core_.counters.duplicate_request;
    ResponderState& responder = qp.responder;
    if (!is_answered(request)) return stage_ack(qp);
    const auto size = static_cast<std::uint32_t>(responder.resources.size());
    for (std::uint32_t back = 1; back <= size && back <= responder.stored_end; ++back) {
        const std::uint32_t index = responder.stored_end - back;
        const ResponderResource& resource = responder.resources[index % size];
        if (resource.kind != request.info.kind) continue;
        if (!request.psn.in_window(resource.first_psn, resource.psn_count)) continue;
        const auto packet = (request.psn.value() - resource.first_psn.value()) & Psn::kMask;
        return replay(qp, index, packet);
    }
    // Its resources have been reused: the requester did not keep to max_dest_rd_atomic.
    ++core_.counters.rx_dropped;
}

//= IBA 9.8.2.2
void Responder::handle_uc(Qp& qp, const Request& request) {
    ResponderState& responder = qp.responder;
    // A gap breaks the message that was arriving; the next start of one is taken up.
    if (request.psn != responder.expected_psn || request.is_start())
        responder.inbound = Inbound::kNone;
    responder.expected_psn = request.psn + 1;
    Verdict verdict = check_sequence(qp, request);
    if (verdict == Verdict::kPass) verdict = check_content(qp, request);
    if (verdict == Verdict::kPass) verdict = execute(qp, request);
    if (verdict == Verdict::kPass) return;
    ++core_.counters.rx_dropped;
    responder.inbound = Inbound::kNone;
    if (verdict != Verdict::kRecvProtection) return;
    Completion fields;
    fields.status = WcStatus::kLocProtErr;
    fields.opcode = WcOpcode::kRecv;
    ++core_.counters.resp_cqe_error;
    core_.staging.add_recv(qp, responder.recv, fields, request.psn, 1);
    responder.has_recv = false;
    move_to_error(core_, qp);
}

}  // namespace rdmalab::transport
