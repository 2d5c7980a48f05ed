// Memory that was registered and is gone when a copy is carried out. The error is that of the key
// check which would have failed had it been known in time; what was staged behind the packet in
// question is taken back.
#include "transport/qp_errors.h"
#include "transport/responder.h"

namespace rdmalab::transport {
namespace {

std::uint8_t nak(wire::NakCode code) {
    return static_cast<std::uint8_t>(wire::kSyndromeNak | static_cast<std::uint8_t>(code));
}

bool is_recv_of(const StagedCompletion& staged, const Qp& qp) {
    return staged.completion.is_recv && staged.completion.qpn == qp.qpn &&
           staged.completion.status == WcStatus::kSuccess;
}

// The staged completion of the message that holds `psn` becomes an error, those behind it are
// flushed. Returns the one that holds it.
StagedCompletion* take_back(Staging& staging, const Qp& qp, Psn psn) {
    StagedCompletion* found = nullptr;
    for (StagedCompletion& staged : staging.completions()) {
        if (!is_recv_of(staged, qp)) continue;
        if (found != nullptr) {
            staged.completion.status = WcStatus::kWrFlushErr;
        } else if (psn.in_window(staged.first_psn, staged.psn_count)) {
            found = &staged;
            const bool is_send = staged.completion.opcode == WcOpcode::kRecv;
            staged.completion.status = is_send ? WcStatus::kLocProtErr : WcStatus::kLocAccessErr;
            staged.completion.in_small_area = false;
        }
    }
    return found;
}

}  // namespace

void Responder::handle_target_fault(Qp& qp, Psn psn) {
    ResponderState& responder = qp.responder;
    const StagedCompletion* const found = take_back(core_.staging, qp, psn);
    if (qp.state == QpState::kErr) return;
    bool is_send = found != nullptr && found->completion.opcode == WcOpcode::kRecv;
    if (found == nullptr && responder.inbound == Inbound::kSend && responder.has_recv) {
        is_send = true;
        Completion fields;
        fields.status = WcStatus::kLocProtErr;
        core_.staging.add_recv(qp, responder.recv, fields, psn, 1);
        responder.has_recv = false;
    }
    if (found == nullptr && !is_send)
        core_.staging.add_event(AsyncEventType::kQpAccessError, qp.init.owner, qp.qpn.value);
    else
        ++core_.counters.resp_cqe_error;
    if (qp.is_reliable()) {
        responder.stored_end = responder.committed_end;
        responder.ack_staged = false;
        stage_nak(qp,
                  nak(is_send ? wire::NakCode::kRemoteOperational : wire::NakCode::kRemoteAccess),
                  psn);
    }
    move_to_error(core_, qp);
}

void Responder::handle_lost_source(Qp& qp, Psn psn) {
    for (StagedCompletion& staged : core_.staging.completions()) {
        if (!is_recv_of(staged, qp) || !psn.in_window(staged.first_psn, staged.psn_count)) continue;
        staged.completion.status = WcStatus::kRemAbortErr;
        staged.completion.in_small_area = false;
        return;
    }
    // A message that is still arriving will not be completed: its sender is in error.
    if (!qp.is_reliable()) qp.responder.inbound = Inbound::kNone;
}

void Responder::handle_response_fault(Qp& qp, Psn psn) {
    if (qp.state == QpState::kErr) return;
    cancel_answers(qp);
    stage_nak(qp, nak(wire::NakCode::kRemoteAccess), psn);
    core_.staging.add_event(AsyncEventType::kQpAccessError, qp.init.owner, qp.qpn.value);
    move_to_error(core_, qp);
}

}  // namespace rdmalab::transport
