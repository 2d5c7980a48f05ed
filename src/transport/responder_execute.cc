// Execution of requests that passed the checks: where their data goes and what completes.
#include <algorithm>
#include <cstring>

#include "transport/placement.h"
#include "transport/qp_errors.h"
#include "transport/responder.h"

namespace rdmalab::transport {
namespace {

using wire::PacketKind;

constexpr std::uint32_t kGrhLength = 40;

// Where the immediate stands: behind RETH or DETH, or right behind the BTH.
std::uint32_t immediate_of(const Request& request) {
    std::size_t offset = 0;
    if (request.has(wire::kHasReth)) offset = sizeof(wire::Reth);
    if (request.has(wire::kHasDeth)) offset = sizeof(wire::Deth);
    const auto& immdt = request.extension<wire::ImmDt>(offset);
    return load_bytes<std::uint32_t>(reinterpret_cast<const std::byte*>(&immdt));
}

}  // namespace

Verdict Responder::execute(Qp& qp, const Request& request) {
    switch (request.info.kind) {
        case PacketKind::kSend:
            return execute_send(qp, request);
        case PacketKind::kWrite:
            return execute_write(qp, request);
        case PacketKind::kReadRequest:
            return execute_read(qp, request);
        case PacketKind::kCompareSwap:
        case PacketKind::kFetchAdd:
            return execute_atomic(qp, request);
        case PacketKind::kAtomicWrite:
            return execute_atomic_write(qp, request);
        default:
            return Verdict::kInvalidRequest;
    }
}

Verdict Responder::execute_send(Qp& qp, const Request& request) {
    ResponderState& responder = qp.responder;
    if (request.is_start()) responder.message_psn = request.psn;
    if (const Verdict verdict = place_send(qp, request, {}); verdict != Verdict::kPass)
        return verdict;
    responder.inbound = request.is_end() ? Inbound::kNone : Inbound::kSend;
    if (!request.is_end()) return Verdict::kPass;
    Completion fields;
    fields.opcode = WcOpcode::kRecv;
    fields.byte_length = static_cast<std::uint32_t>(responder.received);
    if (request.has(wire::kHasIeth)) {
        const Rkey rkey{request.extension<wire::Ieth>().rkey};
        //= IBA 9.4.1.1.3
        if (!core_.regions.invalidate(rkey, qp.remote_pd(), qp.qpn)) return Verdict::kRemoteAccess;
        fields.invalidated = true;
        fields.immediate = rkey.value;
    }
    complete_recv(qp, request, fields);
    return Verdict::kPass;
}

namespace {
std::uint64_t length_of(std::span<const PayloadSegment> segments) {
    std::uint64_t length = 0;
    for (const PayloadSegment& segment : segments) length += segment.length;
    return length;
}
}  // namespace

// The payload goes to the SGEs of the receive WQE, or, if the whole message is small, to the place
// where the client's library finds it with the completion.
Verdict place_message(Core& core, Qp& qp, std::span<const PayloadSegment> prefix,
                      std::span<const PayloadSegment> payload, bool is_whole,
                      const CopyOwner& owner) {
    ResponderState& responder = qp.responder;
    const RecvWqe& recv = responder.recv;
    const std::uint64_t before = length_of(prefix), length = before + length_of(payload);
    responder.received += length;
    if (responder.received > responder.recv_capacity) return Verdict::kTooLong;
    const std::span<const Sge> sges{recv.sges.data(), recv.sge_count};
    const PdId pd = qp.recv_target.pd;
    responder.in_small_area = false;
    if (is_whole && length <= recv.small_area.size()) {
        const SgeCheck check = check_sges(core, pd, sges, length, kAccessLocalWrite);
        if (check == SgeCheck::kRefused) return Verdict::kRecvProtection;
        responder.in_small_area = check == SgeCheck::kValid;
    }
    if (responder.in_small_area) {
        const auto area = reinterpret_cast<std::uint64_t>(recv.small_area.data());
        copy_to(core, kCardSpace, area, prefix, owner);
        copy_to(core, kCardSpace, area + before, payload, owner);
        return Verdict::kPass;
    }
    Placed placed = scatter(core, pd, sges, responder.recv_place, prefix, owner);
    if (placed == Placed::kOk)
        placed = scatter(core, pd, sges, responder.recv_place, payload, owner);
    return placed == Placed::kOk ? Verdict::kPass : Verdict::kRecvProtection;
}

Verdict Responder::place_send(Qp& qp, const Request& request,
                              std::span<const PayloadSegment> prefix) {
    const bool is_whole = request.info.position == wire::Position::kOnly;
    return place_message(core_, qp, prefix, payload_of(request.frame), is_whole,
                         core_.copy_owner(qp, true, request.psn, request.frame.origin));
}

void Responder::complete_recv(Qp& qp, const Request& request, Completion fields) {
    ResponderState& responder = qp.responder;
    const std::uint32_t packets =
        ((request.psn.value() - responder.message_psn.value()) & Psn::kMask) + 1;
    fields.solicited = request.bth.solicited();
    fields.in_small_area = request.info.kind == PacketKind::kSend && responder.in_small_area;
    if (request.has(wire::kHasImmDt)) {
        fields.has_immediate = true;
        fields.immediate = immediate_of(request);
    }
    core_.staging.add_recv(qp, responder.recv, fields, responder.message_psn, packets);
    responder.has_recv = false;
}

Verdict Responder::execute_write(Qp& qp, const Request& request) {
    ResponderState& responder = qp.responder;
    if (request.is_start()) {
        const auto& reth = request.extension<wire::Reth>();
        responder.message_psn = request.psn;
        responder.write_address = reth.virtual_address;
        responder.write_length = reth.length;
        responder.write_rkey = Rkey{reth.rkey};
        responder.written = 0;
        ++core_.counters.rx_write_requests;
    }
    const std::uint32_t payload = request.frame.payload_length;
    if (payload > 0) {
        const Translation at = core_.regions.remote(responder.write_rkey, qp.remote_pd(), qp.qpn,
                                                    responder.write_address + responder.written,
                                                    payload, kAccessRemoteWrite);
        if (!at.ok) return Verdict::kRemoteAccess;
        copy_to(core_, at.space, at.address, payload_of(request.frame),
                core_.copy_owner(qp, true, request.psn, request.frame.origin));
    }
    responder.written += payload;
    responder.inbound = request.is_end() ? Inbound::kNone : Inbound::kWrite;
    if (request.has(wire::kHasImmDt)) {
        Completion fields;
        fields.opcode = WcOpcode::kRecvWriteImm;
        fields.byte_length = responder.write_length;
        complete_recv(qp, request, fields);
    }
    return Verdict::kPass;
}

Verdict Responder::execute_read(Qp& qp, const Request& request) {
    ++core_.counters.rx_read_requests;
    const auto& reth = request.extension<wire::Reth>();
    ResponderResource& resource = store_resource(qp, request);
    resource.address = reth.virtual_address;
    resource.rkey = Rkey{reth.rkey};
    resource.pd = qp.remote_pd();
    resource.length = reth.length;
    resource.psn_count = packets_for(resource.length, qp.mtu);
    // The response takes up PSNs (IBTA 9.7.1); `conclude` counts the last of them.
    qp.responder.expected_psn = request.psn + (resource.psn_count - 1);
    return Verdict::kPass;
}

//= IBA 9.4.5
Verdict Responder::execute_atomic(Qp& qp, const Request& request) {
    ++core_.counters.rx_atomic_requests;
    const auto& atomic = request.extension<wire::AtomicEth>();
    const Translation at =
        core_.regions.remote(Rkey{atomic.rkey}, qp.remote_pd(), qp.qpn, atomic.virtual_address,
                             sizeof(std::uint64_t), kAccessRemoteAtomic);
    std::array<std::byte, sizeof(std::uint64_t)> bytes;
    if (!at.ok || !core_.memory.read(at.space, at.address, bytes)) return Verdict::kRemoteAccess;
    const auto original = load_bytes<std::uint64_t>(bytes.data());
    const bool is_add = request.info.kind == PacketKind::kFetchAdd;
    if (is_add || original == atomic.compare) {
        const std::uint64_t operand = atomic.swap_or_add;
        store_bytes(bytes.data(), is_add ? original + operand : operand);
        if (!core_.memory.write(at.space, at.address, bytes)) return Verdict::kRemoteAccess;
    }
    ResponderResource& resource = store_resource(qp, request);
    resource.psn_count = 1;
    resource.original = original;
    return Verdict::kPass;
}

// Answered like a read of nothing, so it is repeated by its answer and not carried out twice.
//= IBA 9.4.8
Verdict Responder::execute_atomic_write(Qp& qp, const Request& request) {
    ++core_.counters.rx_atomic_requests;
    const auto& reth = request.extension<wire::Reth>();
    const Translation at =
        core_.regions.remote(Rkey{reth.rkey}, qp.remote_pd(), qp.qpn, reth.virtual_address,
                             sizeof(std::uint64_t), kAccessRemoteWrite);
    if (!at.ok) return Verdict::kRemoteAccess;
    copy_to(core_, at.space, at.address, payload_of(request.frame),
            core_.copy_owner(qp, true, request.psn, request.frame.origin));
    store_resource(qp, request).psn_count = 1;
    return Verdict::kPass;
}

// The 40 bytes that precede a datagram in the receive buffer: the IPv6 header, or the IPv4 header
// in the last 20 of them (IBTA A17.4.5.1).
std::span<const PayloadSegment> Responder::make_grh(const wire::Frame& frame,
                                                    PayloadSegment& segment) {
    std::byte* const grh = core_.staging.arena().allocate(kGrhLength);
    std::memset(grh, 0, kGrhLength);
    const std::size_t l3_length =
        std::min<std::size_t>(frame.l4_offset - frame.l3_offset, kGrhLength);
    std::memcpy(grh + kGrhLength - l3_length, frame.header.data() + frame.l3_offset, l3_length);
    segment = {kCardSpace, kGrhLength, reinterpret_cast<std::uint64_t>(grh)};
    return {&segment, 1};
}

//= IBA 9.8.3
void Responder::handle_ud(Qp& qp, const Request& request) {
    ResponderState& responder = qp.responder;
    const auto& deth = request.extension<wire::Deth>();
    const bool is_welcome = request.frame.payload_length <= qp.mtu &&
                            deth.qkey == qp.attributes.qkey && take_recv(core_, qp);
    if (!is_welcome) {
        ++core_.counters.rx_dropped;
        return;
    }
    responder.message_psn = request.psn;
    PayloadSegment grh;
    const Verdict verdict = place_send(qp, request, make_grh(request.frame, grh));
    Completion fields;
    fields.opcode = WcOpcode::kRecv;
    fields.byte_length = static_cast<std::uint32_t>(responder.received);
    fields.has_grh = true;
    fields.source_qpn = Qpn{deth.source_qp};
    if (verdict == Verdict::kPass) return complete_recv(qp, request, fields);
    ++core_.counters.rx_dropped;
    // A datagram that does not fit leaves the receive WQE for the next one.
    if (verdict == Verdict::kTooLong) return;
    fields.status = WcStatus::kLocProtErr;
    fields.byte_length = 0;
    ++core_.counters.resp_cqe_error;
    core_.staging.add_recv(qp, responder.recv, fields, request.psn, 1);
    responder.has_recv = false;
    move_to_error(core_, qp);
}

}  // namespace rdmalab::transport
