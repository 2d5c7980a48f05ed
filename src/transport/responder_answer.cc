// Answers. RC answers in the order of the requests, so there are just two kinds of duty: the row of
// accepted reads and atomics, answered one after the other, and one ACK or NAK for what follows the
// last of them. One ACK covers everything that the round has placed.
//
// A repeated read or atomic moves the row's cursor back to it. Everything behind it is then
// answered again too, whether it is asked for again or not: so the responses stay in order even if
// the repetition came from the network and not from the requester.
#include <algorithm>
#include <bit>

#include "transport/placement.h"
#include "transport/qp_errors.h"
#include "transport/responder.h"

namespace rdmalab::transport {
namespace {

using wire::PacketKind;
using wire::Position;

bool is_rnr(std::uint8_t syndrome) { return (syndrome & 0xe0) == wire::kSyndromeRnr; }

}  // namespace

void Responder::start(Qp& qp) {
    ResponderState& responder = qp.responder;
    responder.expected_psn = qp.attributes.rq_psn;
    responder.msn = 0;
}

void Responder::size_resources(Qp& qp) {
    ResponderState& responder = qp.responder;
    responder.resources.assign(std::bit_ceil(std::uint32_t{qp.attributes.responder_resources}), {});
    responder.stored_end = responder.committed_end = 0;
    responder.emit_index = responder.emit_packet = responder.answered_end = 0;
}

void Responder::cancel_answers(Qp& qp) {
    ResponderState& responder = qp.responder;
    responder.emit_index = responder.committed_end = responder.stored_end;
    responder.answered_end = responder.stored_end;
    responder.emit_packet = 0;
    responder.ack_due = responder.nak_due = false;
    responder.ack_staged = responder.nak_staged = false;
}

ResponderResource& Responder::store_resource(Qp& qp, const Request& request) {
    ResponderState& responder = qp.responder;
    const auto size = static_cast<std::uint32_t>(responder.resources.size());
    // Replays that are in the way of new work give up their place.
    if (responder.stored_end - responder.emit_index >= size) {
        responder.emit_index = responder.stored_end - size + 1;
        responder.emit_packet = 0;
    }
    ResponderResource& resource = responder.resources[responder.stored_end % size];
    resource = {};
    resource.kind = request.info.kind;
    resource.first_psn = request.psn;
    resource.msn = (responder.msn + 1) & Psn::kMask;
    ++responder.stored_end;
    core_.staging.add_duty(qp);
    return resource;
}

void Responder::replay(Qp& qp, std::uint32_t index, std::uint32_t packet) {
    ResponderState& responder = qp.responder;
    const auto ahead = static_cast<std::int32_t>(index - responder.emit_index);
    const bool is_still_to_come = ahead > 0 || (ahead == 0 && packet >= responder.emit_packet);
    if (is_still_to_come) return;
    responder.emit_index = index;
    responder.emit_packet = packet;
    responder.resources[index % responder.resources.size()].request_packet = packet;
    core_.ready.push_back(qp);
}

void Responder::stage_ack(Qp& qp) {
    qp.responder.ack_staged = true;
    core_.staging.add_duty(qp);
}

void Responder::stage_nak(Qp& qp, std::uint8_t syndrome, Psn psn) {
    ResponderState& responder = qp.responder;
    responder.nak_staged = true;
    responder.nak_syndrome = syndrome;
    responder.nak_psn = psn;
    responder.is_awaiting_retransmit = true;
    core_.staging.add_duty(qp);
}

void Responder::commit(Qp& qp) {
    ResponderState& responder = qp.responder;
    responder.is_staged = false;
    responder.committed_end = responder.stored_end;
    if (responder.ack_staged) {
        responder.ack_due = true;
        responder.ack_psn = responder.expected_psn - 1;
    }
    responder.ack_msn = responder.msn;
    if (responder.nak_staged) responder.nak_due = true;
    responder.ack_staged = responder.nak_staged = false;
    core_.ready.push_back(qp);
}

bool Responder::poll_frame(Qp& qp, wire::Frame& out) {
    ResponderState& responder = qp.responder;
    if (responder.emit_index != responder.committed_end && emit_response(qp, out)) return true;
    return poll_acknowledgement(qp, out);
}

bool Responder::poll_acknowledgement(Qp& qp, wire::Frame& out) {
    ResponderState& responder = qp.responder;
    if (responder.emit_index != responder.committed_end) return false;
    if (responder.nak_due) {
        // A NAK acknowledges what comes before it, so it stands for the ACK too.
        responder.nak_due = responder.ack_due = false;
        EngineCounters& counters = core_.counters;
        ++(is_rnr(responder.nak_syndrome) ? counters.rnr_nak_sent : counters.nak_sent);
        emit_ack(qp, responder.nak_syndrome, responder.nak_psn, out);
        return true;
    }
    if (responder.ack_due) {
        responder.ack_due = false;
        emit_ack(qp, wire::kSyndromeAck, responder.ack_psn, out);
        return true;
    }
    return false;
}

wire::Bth* Responder::start_answer(Qp& qp, PacketKind kind, Position position, Psn psn,
                                   wire::Frame& out) {
    const std::uint8_t opcode = wire::opcode_value(qp.service(), kind, position);
    wire::start_roce(out, qp.lower, *wire::find_opcode(opcode));
    auto* const bth = wire::header_at<wire::Bth>(out, out.bth_offset);
    bth->destination_qp = qp.attributes.destination_qpn.value;
    bth->psn = psn.value();
    core_.stamp_origin(out, qp, true, psn);
    return bth;
}

void Responder::emit_ack(Qp& qp, std::uint8_t syndrome, Psn psn, wire::Frame& out) {
    start_answer(qp, PacketKind::kAck, Position::kOnly, psn, out);
    auto* const aeth = wire::header_at<wire::Aeth>(out, out.bth_offset + sizeof(wire::Bth));
    aeth->syndrome = syndrome;
    aeth->msn = qp.responder.ack_msn;
    wire::finish_roce(out);
}

bool Responder::emit_response(Qp& qp, wire::Frame& out) {
    ResponderState& responder = qp.responder;
    const ResponderResource& resource =
        responder.resources[responder.emit_index % responder.resources.size()];
    const Psn psn = resource.first_psn + responder.emit_packet;
    const bool is_atomic =
        resource.kind == PacketKind::kCompareSwap || resource.kind == PacketKind::kFetchAdd;
    if (is_atomic) {
        emit_atomic_response(qp, resource, out);
    } else if (!emit_read_response(qp, resource, out)) {
        handle_response_fault(qp, psn);
        commit(qp);
        return false;
    }
    wire::finish_roce(out);
    // The response acknowledges what an ACK for its PSN would.
    if (responder.ack_due && !psn.is_before(responder.ack_psn)) responder.ack_due = false;
    if (++responder.emit_packet < resource.psn_count) return true;
    responder.emit_packet = 0;
    ++responder.emit_index;
    if (static_cast<std::int32_t>(responder.emit_index - responder.answered_end) > 0)
        responder.answered_end = responder.emit_index;
    return true;
}

bool Responder::emit_read_response(Qp& qp, const ResponderResource& resource, wire::Frame& out) {
    const std::uint32_t packet = qp.responder.emit_packet;
    const bool is_first = packet == resource.request_packet;
    const bool is_last = packet + 1 == resource.psn_count;
    const Position position = is_first ? (is_last ? Position::kOnly : Position::kFirst)
                                       : (is_last ? Position::kLast : Position::kMiddle);
    const std::uint64_t offset = std::uint64_t{packet} * qp.mtu;
    const auto length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(qp.mtu, resource.length - offset));
    Translation at;
    if (length > 0) {
        at = core_.regions.remote(resource.rkey, resource.pd, qp.qpn, resource.address + offset,
                                  length, kAccessRemoteRead);
        if (!at.ok) return false;
    }
    start_answer(qp, PacketKind::kReadResponse, position, resource.first_psn + packet, out);
    if (position != Position::kMiddle) {
        auto* const aeth = wire::header_at<wire::Aeth>(out, out.bth_offset + sizeof(wire::Bth));
        aeth->syndrome = wire::kSyndromeAck;
        aeth->msn = resource.msn;
    }
    if (length > 0) out.add_segment({at.space, length, at.address});
    return true;
}

void Responder::emit_atomic_response(Qp& qp, const ResponderResource& resource, wire::Frame& out) {
    start_answer(qp, PacketKind::kAtomicAck, Position::kOnly, resource.first_psn, out);
    const std::size_t at = out.bth_offset + sizeof(wire::Bth);
    auto* const aeth = wire::header_at<wire::Aeth>(out, at);
    aeth->syndrome = wire::kSyndromeAck;
    aeth->msn = resource.msn;
    wire::header_at<wire::AtomicAckEth>(out, at + sizeof(wire::Aeth))->original = resource.original;
}

}  // namespace rdmalab::transport
