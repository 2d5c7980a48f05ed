// State of one QP. Plain data, in the two halves that the standard has: requester and responder.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "transport/ports.h"
#include "transport/send_queue.h"
#include "transport/types.h"
#include "wire/headers.h"

namespace rdmalab::transport {

enum class Timer : std::uint8_t {
    kRetransmit,  // the oldest request lacks its ACK (IBTA 9.7.6.1.3)
    kRnr,         // the responder asked to wait (9.7.5.2.8)
    kFlush,       // a QP in ERR looks for receives that were posted without a doorbell
    kPace,        // a QP that is held back may send again
};
inline constexpr std::size_t kTimerCount = 4;

// Packets of a message: an empty one takes a packet too.
constexpr std::uint32_t packets_for(std::uint32_t length, std::uint32_t mtu) {
    return length == 0 ? 1 : (length - 1) / mtu + 1;
}

// A place in a list of SGEs.
struct SgeCursor {
    std::uint32_t index = 0;
    std::uint32_t offset = 0;
};

struct RequesterState {
    SendQueue queue;           // fetched and not yet completed
    std::uint32_t cursor = 0;  // position in `queue` of the work to emit next
    std::uint32_t packet = 0;  // its next packet
    SgeCursor place;           // where that packet's payload starts
    Psn next_psn;              // of the next packet to emit
    Psn unacked_psn;           // oldest without acknowledgement
    Psn sent_end;              // one past the newest ever emitted
    std::uint32_t reads_in_flight = 0;
    std::uint32_t unasked = 0;  // packets since the last one that asked for an ACK
    std::uint8_t retries_left = 0;
    std::uint8_t rnr_retries_left = 0;
    bool may_have_work = false;  // a doorbell rang since the queue was last found empty
    bool is_rnr_waiting = false;
    bool is_draining = false;    // SQD, and not all requests in progress are done
    bool is_recovering = false;  // went back to `recover_psn`; nothing was acknowledged since
    Psn recover_psn;
};

// A read or atomic request that was accepted: what is needed to answer it, again if need be
// (IBTA 9.7.5.1.5: responder resources).
struct ResponderResource {
    wire::PacketKind kind = wire::PacketKind::kReadRequest;
    Psn first_psn;
    std::uint32_t psn_count = 0;
    std::uint32_t request_packet = 0;  // where the request that is being answered starts
    std::uint64_t address = 0;
    Rkey rkey;
    PdId pd;  // that the key was checked with
    std::uint32_t length = 0;
    std::uint32_t msn = 0;
    std::uint64_t original = 0;  // atomics: the value that was found
};

enum class Inbound : std::uint8_t { kNone, kSend, kWrite };

struct ResponderState {
    Psn expected_psn;
    std::uint32_t msn = 0;
    // Message that is arriving.
    Inbound inbound = Inbound::kNone;
    bool is_discarding = false;  // UC: the rest of a broken message is dropped
    bool in_small_area = false;  // a message of one packet went to RecvWqe::small_area
    bool has_recv = false;       // `recv` was taken from the RQ or SRQ
    RecvWqe recv;
    std::uint64_t recv_capacity = 0;
    SgeCursor recv_place;
    std::uint64_t received = 0;  // bytes of the send that arrived
    Psn message_psn;             // first of the message
    std::uint64_t write_address = 0;
    std::uint32_t write_length = 0;
    std::uint32_t written = 0;  // bytes of the write that arrived
    Rkey write_rkey;
    // A NAK went out and the requester has not come back to `expected_psn` yet: later packets are
    // dropped without another NAK (IBTA 9.7.5.1.2).
    bool is_awaiting_retransmit = false;

    // Accepted reads and atomics. The indexes only grow; the slot is index % resources.size().
    std::vector<ResponderResource> resources;
    std::uint32_t stored_end = 0;     // accepted
    std::uint32_t committed_end = 0;  // ... and released by commit
    std::uint32_t emit_index = 0;     // being answered
    std::uint32_t emit_packet = 0;    // its next packet
    std::uint32_t answered_end = 0;   // completely answered at least once

    // Duties of this round, released by commit.
    bool is_staged = false;  // the QP stands in the list of the round
    bool ack_staged = false;
    bool nak_staged = false;
    std::uint8_t nak_syndrome = 0;
    Psn nak_psn;
    // Released duties.
    bool ack_due = false;
    bool nak_due = false;
    Psn ack_psn;
    std::uint32_t ack_msn = 0;
};

// Where messages go: fixed for a QP, but for an XRC target QP said by each message.
struct RecvTarget {
    CqId cq;
    std::optional<SrqId> srq;
    PdId pd;  // of the receive WQEs; XRC: of the remote keys too
};

struct Notification {
    bool is_due = false;
    Qpn destination;
    wire::LowerTemplate lower;
};

struct Qp {
    Qpn qpn;
    std::uint32_t slot = 0;
    QpInit init;
    QpState state = QpState::kReset;
    QpAttributes attributes;
    std::uint32_t mtu = 0;
    wire::LowerTemplate lower;      // to the peer of a connected QP
    wire::LowerTemplate cnp_lower;  // ... with the traffic class of CNPs
    RequesterState requester;
    ResponderState responder;
    RecvTarget recv_target;
    Notification notification;
    std::array<Instant, kTimerCount> timers;
    Duration flush_interval;  // of Timer::kFlush
    std::uint32_t multicast_groups = 0;
    bool is_ready = false;  // stands in the ready list
    bool comm_established = false;
    std::uint64_t tx_bytes = 0, rx_bytes = 0;
    bool is_watched = false;  // CongestionPort hears of its packets
    Instant hold_until;       // no payload leaves before

    FlowPoint flow() const { return {qpn, slot}; }
    bool is_ud() const { return init.type == QpType::kUd; }
    // Sends and receives Ethernet frames as they are, without any RDMA transport.
    bool is_raw() const { return init.type == QpType::kRaw; }
    // Has a peer, whose packets follow each other.
    bool is_connected() const { return !is_ud() && !is_raw(); }
    bool is_xrc() const { return is_xrc_initiator() || is_xrc_target(); }
    bool is_xrc_initiator() const { return init.type == QpType::kXrcSend; }
    bool is_xrc_target() const { return init.type == QpType::kXrcRecv; }
    // RC, and XRC, whose ends follow the same protocol.
    bool is_reliable() const { return init.type == QpType::kRc || is_xrc(); }
    wire::Service service() const {
        if (init.type == QpType::kRc) return wire::Service::kRc;
        if (is_xrc()) return wire::Service::kXrc;
        return is_ud() ? wire::Service::kUd : wire::Service::kUc;
    }
    // The PD that remote keys are checked with (IBTA vol. 1, A14: XRC, that of the SRQ).
    PdId remote_pd() const { return is_xrc_target() ? recv_target.pd : init.pd; }
};

}  // namespace rdmalab::transport
