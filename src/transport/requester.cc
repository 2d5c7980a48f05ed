// Emission. A requester walks through its queue of work with a cursor: the work at `cursor`, and
// the next packet of it. Each packet takes the PSN behind the last one, so a place in the queue and
// a PSN are the same thing said twice; going back to a PSN (requester_ack.cc) is to move the
// cursor, and what follows is emitted again by the same code that emitted it first.
//
// A WQE is fetched when the cursor comes to it, and is admitted when
//   - fewer than kWindow packets are unacknowledged. The window bounds what a retransmission may
//     cost, and keeps all PSNs in flight within a quarter of the number space;
//   - it is not fenced off by reads before it (IBTA 9.7.3.3 of the ordering rules);
//   - it is not a read or atomic too many (max_rd_atomic).
// A WQE with an error of its own waits until all before it are done, then fails in its turn.
#include "transport/requester.h"

#include <algorithm>

#include "transport/placement.h"
#include "transport/qp_errors.h"

namespace rdmalab::transport {
namespace {

// Unacknowledged packets of a QP.
constexpr std::int32_t kWindow = 1024;
// An ACK is asked for at the end of a message and after so many packets within one.
constexpr std::uint32_t kAckInterval = 64;
// Response packets that one READ request on the wire asks for; a longer read is split. With the
// window this keeps less than 2^22 PSNs in flight.
constexpr std::uint32_t kReadPacketsMax = 1u << 21;
constexpr std::uint32_t kOwnQkeyBit = 0x8000'0000;

wire::PacketKind packet_kind(WrOpcode opcode) {
    switch (opcode) {
        case WrOpcode::kWrite:
        case WrOpcode::kWriteImm:
            return wire::PacketKind::kWrite;
        case WrOpcode::kRead:
            return wire::PacketKind::kReadRequest;
        case WrOpcode::kCompareSwap:
            return wire::PacketKind::kCompareSwap;
        case WrOpcode::kFetchAdd:
            return wire::PacketKind::kFetchAdd;
        case WrOpcode::kAtomicWrite:
            return wire::PacketKind::kAtomicWrite;
        default:
            return wire::PacketKind::kSend;
    }
}

bool has_immediate(WrOpcode opcode) {
    return opcode == WrOpcode::kSendImm || opcode == WrOpcode::kWriteImm;
}

//= IBA 9.2 table 38: which services carry which requests
bool is_supported(QpType type, WrOpcode opcode) {
    if (type == QpType::kRaw) return opcode == WrOpcode::kSend;
    switch (opcode) {
        case WrOpcode::kSend:
        case WrOpcode::kSendImm:
            return true;
        case WrOpcode::kWrite:
        case WrOpcode::kWriteImm:
        case WrOpcode::kLocalInvalidate:
        case WrOpcode::kBindMw:
            return type != QpType::kUd;
        case WrOpcode::kSendInvalidate:
        case WrOpcode::kRead:
        case WrOpcode::kCompareSwap:
        case WrOpcode::kFetchAdd:
        case WrOpcode::kAtomicWrite:
            return type == QpType::kRc || type == QpType::kXrcSend;
    }
    return false;
}

wire::Position position_of(std::uint32_t packet, std::uint32_t count) {
    if (count == 1) return wire::Position::kOnly;
    if (packet == 0) return wire::Position::kFirst;
    return packet + 1 == count ? wire::Position::kLast : wire::Position::kMiddle;
}

template <class Header>
Header* extension(wire::Frame& frame, std::size_t offset = 0) {
    return wire::header_at<Header>(frame, frame.bth_offset + sizeof(wire::Bth) + offset);
}

// An XRC request says which SRQ it is for; the other extensions follow. Returns their offset.
std::size_t add_xrceth(const Qp& qp, const SendWqe& wqe, wire::Frame& frame) {
    if (!qp.is_xrc_initiator()) return 0;
    *extension<wire::Xrceth>(frame) = {0, wqe.remote_srq.value};
    return sizeof(wire::Xrceth);
}

std::span<const Sge> sges_of(const SendWork& work) {
    return {work.wqe.sges.data(), work.wqe.sge_count};
}

}  // namespace

bool Requester::poll_frame(Qp& qp, wire::Frame& out) {
    RequesterState& requester = qp.requester;
    while (qp.state == QpState::kRts || qp.state == QpState::kSqd) {
        if (requester.is_rnr_waiting) return false;
        SendWork* const work = next_work(qp);
        if (work == nullptr) return false;
        if (work->status != WcStatus::kSuccess) {
            if (requester.cursor > 0) return false;
            fail_front(qp, work->status);
            continue;
        }
        if (!is_admitted(qp, *work)) return false;
        if (work->psn_count == 0) {
            execute_local(qp, *work);
        } else if (emit(qp, *work, out)) {
            return true;
        }
    }
    return false;
}

SendWork* Requester::next_work(Qp& qp) {
    RequesterState& requester = qp.requester;
    if (requester.cursor < requester.queue.size()) return &requester.queue.at(requester.cursor);
    if (!requester.may_have_work || qp.state != QpState::kRts) return nullptr;
    SendWork& work = requester.queue.spare();
    work.clear();
    if (!core_.work.fetch_send(qp.qpn, work.wqe)) {
        requester.may_have_work = false;
        return nullptr;
    }
    prepare(qp, work);
    requester.queue.push();
    return &work;
}

void Requester::prepare(Qp& qp, SendWork& work) {
    RequesterState& requester = qp.requester;
    work.first_psn = requester.sent_end;
    work.status = check_work(qp, work);
    requester.packet = 0;
    requester.place = {};
    if (work.status != WcStatus::kSuccess || work.is_local()) return;
    const bool is_one = work.is_atomic() || work.is_atomic_write() || qp.is_raw();
    work.psn_count = is_one ? 1 : packets_for(work.wqe.length, qp.mtu);
}

WcStatus Requester::check_work(const Qp& qp, SendWork& work) const {
    SendWqe& wqe = work.wqe;
    if (wqe.malformed) {
        wqe.opcode = WrOpcode::kSend;
        return WcStatus::kLocQpOpErr;
    }
    if (!is_supported(qp.init.type, wqe.opcode)) return WcStatus::kLocQpOpErr;
    if (work.is_local()) return WcStatus::kSuccess;
    if (work.expects_response() && qp.attributes.reads_outstanding == 0)
        return WcStatus::kLocQpOpErr;
    if (const WcStatus status = check_payload(qp, work); status != WcStatus::kSuccess)
        return status;
    return qp.is_ud() ? check_addressing(qp, work) : WcStatus::kSuccess;
}

//= IBA 10.7.2.2
WcStatus Requester::check_payload(const Qp& qp, SendWork& work) const {
    SendWqe& wqe = work.wqe;
    if (wqe.sge_count > wqe.sges.size()) return WcStatus::kLocQpOpErr;
    const bool is_carried = wqe.is_inline || !wqe.inline_data.empty();
    const std::uint64_t length = is_carried ? wqe.inline_data.size() : total_length(sges_of(work));
    if (length > limits::kMessageMax) return WcStatus::kLocLenErr;
    if (qp.is_ud() && length > qp.mtu) return WcStatus::kLocLenErr;
    if (qp.is_raw() && !RawPackets::is_frame_length(length)) return WcStatus::kLocLenErr;
    const bool is_word = work.is_atomic() || work.is_atomic_write();
    if (is_word && length != sizeof(std::uint64_t)) return WcStatus::kLocLenErr;
    const bool is_filled = work.is_read() || work.is_atomic();  // by the response
    if (is_filled && is_carried) return WcStatus::kLocQpOpErr;
    wqe.length = static_cast<std::uint32_t>(length);
    if (wqe.is_inline) return WcStatus::kSuccess;
    const std::uint32_t access = is_filled ? std::uint32_t{kAccessLocalWrite} : 0;
    const SgeCheck check = check_sges(core_, qp.init.pd, sges_of(work), wqe.length, access);
    return check == SgeCheck::kRefused ? WcStatus::kLocProtErr : WcStatus::kSuccess;
}

WcStatus Requester::check_addressing(const Qp& qp, const SendWork& work) const {
    const Ah* const ah = core_.ahs.find(qp.init.owner, work.wqe.ah);
    return ah != nullptr && ah->pd == qp.init.pd ? WcStatus::kSuccess : WcStatus::kLocQpOpErr;
}

bool Requester::is_admitted(const Qp& qp, const SendWork& work) const {
    const RequesterState& requester = qp.requester;
    const bool is_begun = requester.packet > 0 || requester.next_psn != requester.sent_end;
    // A QP in SQD ends what it has begun and starts nothing new (IBTA 10.3.1.5).
    if (qp.state == QpState::kSqd && !is_begun) return false;
    if (!qp.is_reliable()) return true;
    if (work.wqe.fence && requester.packet == 0 && requester.reads_in_flight > 0) return false;
    if (work.expects_response() && !work.is_counted &&
        requester.reads_in_flight >= qp.attributes.reads_outstanding)
        return false;
    return requester.next_psn.distance_from(requester.unacked_psn) < kWindow;
}

// Invalidations and binds. One that makes no sense is a memory management operation error, which
// bears the name of the bind in verbs.
//= IBA 10.8.6
bool Requester::manage_memory(const Qp& qp, const SendWqe& wqe) {
    if (wqe.opcode == WrOpcode::kLocalInvalidate)
        return core_.regions.invalidate(Rkey{wqe.immediate}, qp.init.pd, qp.qpn);
    return core_.regions.bind({.rkey = wqe.rkey,
                               .bind = wqe.bind,
                               .address = wqe.remote_address,
                               .pd = qp.init.pd,
                               .qpn = qp.qpn});
}

void Requester::execute_local(Qp& qp, SendWork& work) {
    if (!work.is_done && !manage_memory(qp, work.wqe)) {
        work.status = WcStatus::kMwBindErr;
        return;
    }
    work.is_done = true;
    ++qp.requester.cursor;
    settle(qp);
}

bool Requester::emit(Qp& qp, SendWork& work, wire::Frame& out) {
    const Psn psn = qp.requester.next_psn;
    if (qp.is_raw()) {
        if (!raw_.emit(qp, work, out)) {
            work.status = WcStatus::kLocProtErr;
            return false;
        }
        core_.stamp_origin(out, qp, false, psn);
        advance(qp, work, 1);
        return true;
    }
    if (work.is_read()) {
        emit_read(qp, work, out);
    } else if (work.is_atomic()) {
        emit_atomic(qp, work, out);
    } else if (!(qp.is_ud() ? emit_datagram(qp, work, out) : emit_message(qp, work, out))) {
        work.status = WcStatus::kLocProtErr;
        return false;
    }
    wire::finish_roce(out);
    core_.stamp_origin(out, qp, false, psn);
    return true;
}

wire::Bth* Requester::start_request(Qp& qp, wire::Frame& out, const wire::LowerTemplate& lower,
                                    std::uint8_t opcode) {
    wire::start_roce(out, lower, *wire::find_opcode(opcode));
    auto* const bth = wire::header_at<wire::Bth>(out, out.bth_offset);
    bth->destination_qp = qp.attributes.destination_qpn.value;
    bth->psn = qp.requester.next_psn.value();
    return bth;
}

bool Requester::add_payload(Qp& qp, const SendWork& work, std::uint64_t offset,
                            std::uint32_t length, wire::Frame& out) {
    if (length == 0) return true;
    const ByteView carried = work.wqe.inline_data;
    if (!carried.empty()) {
        const auto* const from = carried.data() + offset;
        out.add_segment({kCardSpace, length, reinterpret_cast<std::uint64_t>(from)});
        return true;
    }
    return gather(core_, qp.init.pd, sges_of(work), qp.requester.place, length, out);
}

bool Requester::emit_message(Qp& qp, SendWork& work, wire::Frame& out) {
    RequesterState& requester = qp.requester;
    const SendWqe& wqe = work.wqe;
    const std::uint32_t packet = requester.packet;
    const auto position = position_of(packet, work.psn_count);
    const bool is_start = packet == 0;
    const bool is_end = packet + 1 == work.psn_count;
    const auto kind = packet_kind(wqe.opcode);
    const bool immediate = is_end && has_immediate(wqe.opcode);
    const bool invalidate = is_end && wqe.opcode == WrOpcode::kSendInvalidate;
    wire::Bth* const bth = start_request(
        qp, out, qp.lower, wire::opcode_value(qp.service(), kind, position, immediate, invalidate));
    std::size_t offset = add_xrceth(qp, wqe, out);
    if (is_start && kind != wire::PacketKind::kSend) {
        *extension<wire::Reth>(out, offset) = {wqe.remote_address, wqe.rkey.value, wqe.length};
        offset += sizeof(wire::Reth);
    }
    // An immediate is an opaque 32-bit value in network order already.
    if (immediate)
        store_bytes(reinterpret_cast<std::byte*>(extension<wire::ImmDt>(out, offset)),
                    wqe.immediate);
    if (invalidate) extension<wire::Ieth>(out, offset)->rkey = wqe.immediate;
    if (is_end && wqe.solicited) bth->flags |= 0x80;
    if (qp.is_reliable() && (is_end || ++requester.unasked >= kAckInterval)) {
        bth->ack_request = 0x80;
        requester.unasked = 0;
    }
    const std::uint64_t from = std::uint64_t{packet} * qp.mtu;
    const auto length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(qp.mtu, wqe.length - from));
    if (!add_payload(qp, work, from, length, out)) return false;
    advance(qp, work, 1);
    return true;
}

bool Requester::emit_datagram(Qp& qp, SendWork& work, wire::Frame& out) {
    const SendWqe& wqe = work.wqe;
    const Ah* const ah = core_.ahs.find(qp.init.owner, wqe.ah);
    if (ah == nullptr) return false;
    const bool immediate = wqe.opcode == WrOpcode::kSendImm;
    wire::Bth* const bth =
        start_request(qp, out, ah->lower,
                      wire::opcode_value(wire::Service::kUd, wire::PacketKind::kSend,
                                         wire::Position::kOnly, immediate, false));
    bth->destination_qp = wqe.remote_qpn.value;
    if (wqe.solicited) bth->flags |= 0x80;
    if (ah->av.flow_label == 0) {
        wire::header_at<wire::UdpHeader>(out, out.l4_offset)->source_port =
            wire::source_port_for(0, qp.qpn, wqe.remote_qpn);
    }
    auto* const deth = extension<wire::Deth>(out);
    //= IBA 10.2.5: a controlled Q_Key in the WR stands for the QP's own
    deth->qkey = (wqe.remote_qkey & kOwnQkeyBit) != 0 ? qp.attributes.qkey : wqe.remote_qkey;
    deth->source_qp = qp.qpn.value;
    if (immediate) {
        auto* const immdt = extension<wire::ImmDt>(out, sizeof(wire::Deth));
        store_bytes(reinterpret_cast<std::byte*>(immdt), wqe.immediate);
    }
    if (!add_payload(qp, work, 0, wqe.length, out)) return false;
    advance(qp, work, 1);
    return true;
}

void Requester::emit_read(Qp& qp, SendWork& work, wire::Frame& out) {
    const SendWqe& wqe = work.wqe;
    const std::uint32_t packet = qp.requester.packet;
    const std::uint32_t packets = std::min(work.psn_count - packet, kReadPacketsMax);
    wire::Bth* const bth = start_request(
        qp, out, qp.lower,
        wire::opcode_value(qp.service(), wire::PacketKind::kReadRequest, wire::Position::kOnly));
    bth->ack_request = 0x80;
    const std::uint64_t offset = std::uint64_t{packet} * qp.mtu;
    const auto length = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(std::uint64_t{packets} * qp.mtu, wqe.length - offset));
    *extension<wire::Reth>(out, add_xrceth(qp, wqe, out)) = {wqe.remote_address + offset,
                                                             wqe.rkey.value, length};
    advance(qp, work, packets);
}

void Requester::emit_atomic(Qp& qp, SendWork& work, wire::Frame& out) {
    const SendWqe& wqe = work.wqe;
    const bool is_swap = wqe.opcode == WrOpcode::kCompareSwap;
    wire::Bth* const bth = start_request(
        qp, out, qp.lower,
        wire::opcode_value(qp.service(), packet_kind(wqe.opcode), wire::Position::kOnly));
    bth->ack_request = 0x80;
    auto* const atomic = extension<wire::AtomicEth>(out, add_xrceth(qp, wqe, out));
    atomic->virtual_address = wqe.remote_address;
    atomic->rkey = wqe.rkey.value;
    atomic->swap_or_add = is_swap ? wqe.swap : wqe.compare;
    atomic->compare = is_swap ? wqe.compare : 0;
    advance(qp, work, 1);
}

// The packets at the cursor have been emitted.
void Requester::advance(Qp& qp, SendWork& work, std::uint32_t packets) {
    RequesterState& requester = qp.requester;
    if (requester.next_psn.is_before(requester.sent_end)) ++core_.counters.retransmitted_frames;
    requester.packet += packets;
    requester.next_psn = requester.next_psn + packets;
    if (requester.sent_end.is_before(requester.next_psn)) requester.sent_end = requester.next_psn;
    if (work.expects_response() && !work.is_counted) {
        work.is_counted = true;
        ++requester.reads_in_flight;
    }
    if (requester.packet == work.psn_count) {
        ++requester.cursor;
        requester.packet = 0;
        requester.place = {};
    }
    if (qp.is_reliable()) {
        if (!Core::is_timer_set(qp, Timer::kRetransmit)) arm_retransmit(qp);
        return;
    }
    requester.unacked_psn = requester.next_psn;
    if (requester.cursor > 0) finish_front(qp, WcStatus::kSuccess);
    check_drained(qp);
}

void Requester::start(Qp& qp) {
    RequesterState& requester = qp.requester;
    requester.next_psn = requester.unacked_psn = requester.sent_end = qp.attributes.sq_psn;
    requester.retries_left = qp.attributes.retry_count;
    requester.rnr_retries_left = qp.attributes.rnr_retry;
    resume(qp);
}

void Requester::resume(Qp& qp) {
    qp.requester.is_draining = false;
    qp.requester.may_have_work = true;
    core_.ready.push_back(qp);
}

void Requester::drain(Qp& qp) {
    qp.requester.is_draining = true;
    core_.ready.push_back(qp);
    check_drained(qp);
}

}  // namespace rdmalab::transport
