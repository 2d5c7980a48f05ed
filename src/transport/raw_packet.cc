#include "transport/raw_packet.h"

#include <algorithm>
#include <cstring>

#include "transport/placement.h"
#include "transport/qp_errors.h"
#include "transport/responder.h"
#include "wire/icrc.h"
#include "wire/offload.h"

namespace rdmalab::transport {
namespace {

constexpr std::size_t kHeadMax = wire::Frame::kHeaderMax;

std::span<const Sge> sges_of(const SendWork& work) {
    return {work.wqe.sges.data(), work.wqe.sge_count};
}

PayloadSegment segment_of(ByteView bytes) {
    return {kCardSpace, static_cast<std::uint32_t>(bytes.size()),
            reinterpret_cast<std::uint64_t>(bytes.data())};
}

ByteView bytes_of(const PayloadSegment& segment) {
    return {reinterpret_cast<const std::byte*>(segment.address), segment.length};
}

bool is_accepting(QpState state) {
    return state == QpState::kRtr || state == QpState::kRts || state == QpState::kSqd ||
           state == QpState::kSqe;
}

}  // namespace

// The first bytes of the list, now.
bool RawPackets::read_sges(const Qp& qp, const SendWork& work, ByteSpan out) {
    wire::Frame references;
    references.segment_count = 0;
    references.payload_length = 0;
    SgeCursor place;
    const auto length = static_cast<std::uint32_t>(out.size());
    if (!gather(core_, qp.init.pd, sges_of(work), place, length, references)) return false;
    for (const PayloadSegment& segment : payload_of(references)) {
        if (!core_.memory.read(segment.space, segment.address, out.first(segment.length)))
            return false;
        out = out.subspan(segment.length);
    }
    return true;
}

bool RawPackets::emit(const Qp& qp, const SendWork& work, wire::Frame& out) {
    const SendWqe& wqe = work.wqe;
    if (!wqe.inline_data.empty() || wqe.length <= kHeadMax || wqe.fills_checksums)
        return emit_whole(qp, work, out);
    // The ring is the client's memory: only the copy is looked at.
    std::array<std::byte, kHeadMax> head;
    if (wqe.head.size() == head.size())
        std::memcpy(head.data(), wqe.head.data(), head.size());
    else if (!read_sges(qp, work, head))
        return false;
    if (wire::parse_head(head, wqe.length, out)) return emit_whole(qp, work, out);
    SgeCursor place = seek_sges(sges_of(work), out.header_length);
    return gather(core_, qp.init.pd, sges_of(work), place, wqe.length - out.header_length, out);
}

bool RawPackets::emit_whole(const Qp& qp, const SendWork& work, wire::Frame& out) {
    const SendWqe& wqe = work.wqe;
    const std::uint32_t length = std::max(wqe.length, kFrameMin);
    const ByteSpan bytes{core_.staging.arena().allocate(length), length};
    if (!wqe.inline_data.empty())
        std::memcpy(bytes.data(), wqe.inline_data.data(), wqe.length);
    else if (!read_sges(qp, work, bytes.first(wqe.length)))
        return false;
    std::fill(bytes.begin() + wqe.length, bytes.end(), std::byte{0});
    if (wqe.fills_checksums) wire::fill_checksums(bytes.first(wqe.length));
    const ByteView head = bytes.first(std::min<std::size_t>(length, kHeadMax));
    if (wire::parse_head(head, length, out)) {
        if (wire::parse_frame(bytes, segment_of(bytes), out) == wire::ParseError::kNone)
            return true;
        wire::parse_head(head, length, out);  // not RoCEv2 after all
    }
    if (out.header_length < length) out.add_segment(segment_of(bytes.subspan(out.header_length)));
    return true;
}

// The frame as it would stand on the wire. False: its payload is not there.
bool RawPackets::make_bytes(const wire::Frame& frame, PayloadSegment& out) {
    const std::size_t length = wire::wire_length(frame);
    const ByteSpan bytes{core_.staging.arena().allocate(length), length};
    const bool is_roce = wire::is_roce(frame);
    std::byte* const payload = is_roce ? core_.staging.arena().allocate(frame.payload_length)
                                       : bytes.data() + frame.header_length;
    std::byte* at = payload;
    for (const PayloadSegment& segment : payload_of(frame)) {
        if (segment.length == 0) continue;
        if (!core_.memory.read(segment.space, segment.address, {at, segment.length})) return false;
        at += segment.length;
    }
    if (is_roce)
        wire::write_frame(frame, {payload, frame.payload_length}, bytes);
    else
        std::memcpy(bytes.data(), frame.header.data(), frame.header_length);
    out = segment_of(bytes);
    return true;
}

// TCP or UDP over IPv4, whose checksums the completion tells about.
bool RawPackets::is_checked(const wire::Frame& frame) {
    return frame.l4_offset != 0 && frame.l3_offset != 0 &&
           std::to_integer<unsigned>(frame.header[frame.l3_offset]) >> 4 == 4;
}

// Like a datagram: what finds no receive WQE, or one that is too small, is dropped.
void RawPackets::receive(Qp& qp, const wire::Frame& frame) {
    ResponderState& responder = qp.responder;
    PayloadSegment prefix;
    const bool is_whole = wire::is_roce(frame) || is_checked(frame);
    if (!is_accepting(qp.state) || !take_recv(core_, qp) ||
        (is_whole && !make_bytes(frame, prefix))) {
        ++core_.counters.rx_dropped;
        return;
    }
    if (!is_whole) {
        std::byte* const header = core_.staging.arena().allocate(frame.header_length);
        std::memcpy(header, frame.header.data(), frame.header_length);
        prefix = segment_of({header, frame.header_length});
    }
    const Psn psn = responder.expected_psn;  // frames bear no number: it is for blame alone
    ++responder.expected_psn;
    const std::span<const PayloadSegment> rest =
        is_whole ? std::span<const PayloadSegment>{} : payload_of(frame);
    const Verdict verdict = place_message(core_, qp, {&prefix, 1}, rest, true,
                                          core_.copy_owner(qp, true, psn, frame.origin));
    qp.rx_bytes += wire::wire_length(frame);
    if (verdict == Verdict::kTooLong) {
        ++core_.counters.rx_dropped;
        return;
    }
    Completion fields;
    fields.opcode = WcOpcode::kRecv;
    if (verdict == Verdict::kPass) {
        fields.byte_length = static_cast<std::uint32_t>(responder.received);
        fields.in_small_area = responder.in_small_area;
        fields.checksums_right = is_whole && wire::has_right_checksums(bytes_of(prefix));
    } else {
        fields.status = WcStatus::kLocProtErr;
        ++core_.counters.resp_cqe_error;
    }
    core_.staging.add_recv(qp, responder.recv, fields, psn, 1);
    responder.has_recv = false;
    if (verdict != Verdict::kPass) move_to_error(core_, qp);
}

}  // namespace rdmalab::transport
