// The RoCEv2 engine of one function (one RDMA device): queue pairs, their protocol state, memory
// and address tables.
//
// It does no I/O and reads no clock. The card calls, in this order, with a time that never goes
// back:
//
//   handle_doorbell(qpn)            an application posted sends
//   handle_frame(frame, now)        a frame arrived at this function
//   handle_timeout(now)             next_deadline() has come
//   poll_frame(now, out)            repeatedly: the next frame to send, until false. QPs take
//   turns; `budget` frames at most
//                                   from one QP before the next has its turn.
//   memory.flush(faults)            done by the card for all engines together
//   commit(faults, now)             completions and events of this round become visible; QPs that
//   owe an ACK for what has just
//                                   been placed become ready to send it. Faulted QPs get their
//                                   error here instead.
//
// Nothing is sent or completed for data before `commit`, so an ACK never runs ahead of the bytes it
// acknowledges.
//
// Errors of control calls are errno values as the man pages of the verbs say.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "transport/ports.h"
#include "transport/types.h"
#include "wire/headers.h"

namespace rdmalab::transport {

struct EngineConfig {
    std::uint8_t index = 0;  // which engine of the card this is
    MacAddress mac;
    std::uint32_t port_mtu = 4096;       // bytes; path MTU may not exceed it
    std::uint64_t seed = 1;              // first QPN tags, keys
    std::uint32_t frames_per_turn = 32;  // of one QP before the next has its turn
};

struct EngineCounters {
    std::uint64_t tx_frames = 0, tx_bytes = 0, rx_frames = 0,
                  rx_bytes = 0;  // whole frames on the wire
    std::uint64_t rx_icrc_errors = 0, rx_unknown_qp = 0,
                  rx_dropped = 0;  // dropped: wrong state, opcode, service, key
    std::uint64_t rx_write_requests = 0, rx_read_requests = 0, rx_atomic_requests = 0;
    std::uint64_t out_of_sequence = 0, duplicate_request = 0, packet_seq_err = 0,
                  rnr_nak_retry_err = 0;
    std::uint64_t local_ack_timeout_err = 0, implied_nak_seq_err = 0, req_cqe_error = 0,
                  resp_cqe_error = 0;
    std::uint64_t np_ecn_marked_roce_packets = 0, np_cnp_sent = 0, rp_cnp_handled = 0;
    std::uint64_t retransmitted_frames = 0, rnr_nak_sent = 0, nak_sent = 0;
};

// kNull: what is written to it is thrown away, what is read from it is zero; it has no memory and
// no remote access (ibv_alloc_null_mr).
enum class MrKind : std::uint8_t { kOrdinary, kNull };

struct MrInit {
    OwnerId owner;
    SpaceId space;
    PdId pd;
    std::uint64_t address = 0;  // in `space`
    std::uint64_t length = 0;
    std::uint64_t iova = 0;    // the address that SGEs and RETHs use
    std::uint32_t access = 0;  // AccessFlags
    MrKind kind = MrKind::kOrdinary;
};
// What ibv_rereg_mr changes; what is not given stays.
struct MrChange {
    struct Place {
        SpaceId space;
        std::uint64_t address = 0, length = 0, iova = 0;
    };
    std::optional<PdId> pd;
    std::optional<Place> place;
    std::optional<std::uint32_t> access;
};
// What a region is, for those who share it (ibv_import_mr).
struct MrFacts {
    PdId pd;
    std::uint64_t address = 0, length = 0, iova = 0;
    std::uint32_t access = 0;
};

// Type 1: bound by any QP of the PD, and bound again at will. Type 2 (B): bound by a QP, works for
// that QP only, and is invalidated before it is bound again. IBTA vol. 1, 10.6.7.2.
enum class WindowType : std::uint8_t { kType1, kType2 };

struct MrKeys {
    Lkey lkey;
    Rkey rkey;
};

struct SrqInit {
    OwnerId owner;
    PdId pd;
    std::uint32_t wr_max = 0, sge_max = 0;
    // XRC: the domain, and the CQ for everything that arrives through it.
    std::optional<XrcdId> xrcd;
    CqId cq;
};

// Live QPs' facts for status displays and rate control.
struct QpFacts {
    Qpn qpn;
    OwnerId owner;
    QpType type;
    QpState state;
    Qpn destination_qpn;
    std::uint64_t tx_bytes, rx_bytes;
};

class Engine {
public:
    Engine(const EngineConfig& config, MemoryPort& memory, WorkPort& work, OutcomePort& outcome);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // --- Addresses. The GID table is the card's; the engine keeps what it needs to emit and to
    // check.
    void set_gid(std::uint8_t index, const Gid& gid);
    const EngineConfig& config() const;

    // Without one every marked packet is answered with a CNP, and nothing is held back.
    void set_congestion_port(CongestionPort* port);
    // Facts about the packets of this QP go to the port (see CongestionPort). A QP that is no
    // longer watched is no longer held back either.
    void watch_qp(Qpn qpn, bool on);
    // ... of all connected QPs, also of those to come.
    void watch_all(bool on);
    bool has_qp(Qpn qpn) const;
    bool is_raw_qp(Qpn qpn) const;
    // The QP of this engine that has sent the frame; QPN 0: none has.
    Qpn sender_of(const wire::Frame& frame) const;
    // Somebody waits for the RoCEv2 frame: its QP exists, or its group has members.
    bool is_claimed(const wire::Frame& frame) const;
    // The way of a connected QP's packets, for RTT probes, which must take the same. nullptr: there
    // is none, or the QP's ends have agreed on no probes.
    const wire::LowerTemplate* probe_path(Qpn qpn) const;

    // --- Control. Handles of another owner's objects give EINVAL. Objects in use give EBUSY.
    Result<PdId> create_pd(OwnerId owner);
    bool has_pd(OwnerId owner, PdId pd) const;
    int destroy_pd(OwnerId owner, PdId pd);
    Result<MrKeys> register_mr(const MrInit& init);
    int deregister_mr(OwnerId owner, Lkey lkey);  // EBUSY: windows are bound to it
    int reregister_mr(OwnerId owner, Lkey lkey, const MrChange& change);
    Result<MrFacts> mr_facts(OwnerId owner, Lkey lkey) const;
    // An unbound window. It is known by its index, which is the rkey without the tag in the lowest
    // byte: the tag is new with each bind.
    Result<Rkey> create_window(OwnerId owner, PdId pd, WindowType type);
    int destroy_window(OwnerId owner, std::uint32_t index);
    Result<CqId> create_cq(OwnerId owner, std::uint32_t capacity);
    int destroy_cq(OwnerId owner, CqId cq);
    // XRC domains are shared: each owner opens one, as often as he likes. EBUSY: the owner closes
    // it for the last time and has SRQs or QPs on it.
    Result<XrcdId> create_xrcd(OwnerId owner);
    int open_xrcd(OwnerId owner, XrcdId xrcd);
    int close_xrcd(OwnerId owner, XrcdId xrcd);
    bool has_xrcd(XrcdId xrcd) const;
    Result<SrqId> create_srq(const SrqInit& init);
    int set_srq_limit(OwnerId owner, SrqId srq, std::uint32_t limit);
    Result<std::uint32_t> srq_limit(OwnerId owner, SrqId srq) const;
    int destroy_srq(OwnerId owner, SrqId srq);
    Result<Qpn> create_qp(const QpInit& init);
    int modify_qp(OwnerId owner, Qpn qpn, const QpAttributes& attributes, std::uint32_t mask,
                  Instant now);
    // Everything that ibv_query_qp(3) reports; `state` is the real one.
    Result<QpAttributes> query_qp(OwnerId owner, Qpn qpn) const;
    int destroy_qp(OwnerId owner, Qpn qpn);
    // An XRC target QP outlives its creator when others have opened it.
    int pass_on_qp(OwnerId from, Qpn qpn, OwnerId to);
    Result<AhId> create_ah(OwnerId owner, PdId pd, const AddressVector& av);
    int destroy_ah(OwnerId owner, AhId ah);
    int attach_multicast(OwnerId owner, Qpn qpn, const Gid& group);
    int detach_multicast(OwnerId owner, Qpn qpn, const Gid& group);
    // The owner is gone: its QPs go to the error state towards their peers (see below), everything
    // is freed. An RC QP that dies leaves silence behind, as a reset adapter does: the peer finds
    // out by its own retries; pending work of peers is answered with NAK "remote operational error"
    // only where IBTA says so. What the card decides is documented in transport/README.md.
    void release_owner(OwnerId owner);

    // --- Data path.
    void handle_doorbell(Qpn qpn);
    void handle_frame(wire::Frame& frame, Instant now);
    // A rule of the card steers the frame to this QP, whatever it is addressed to. A raw packet QP
    // gets the whole frame, a UD QP the datagram, if it is one that it may have. `tag` comes with
    // the completion.
    void handle_steered(Qpn qpn, const wire::Frame& frame, std::uint32_t tag, Instant now);
    void handle_timeout(Instant now);
    bool poll_frame(Instant now, wire::Frame& out);
    void commit(std::span<const CopyFault> faults, Instant now);
    Instant next_deadline() const;
    // poll_frame may return something, or commit has something to show (a control call moves QPs to
    // ERR outside of rounds).
    bool has_work() const;
    // The card has checked a frame for this function and its ICRC is wrong: it is counted
    // (rx_icrc_errors) and not handed over.
    void count_icrc_error();

    // --- Facts.
    const EngineCounters& counters() const;
    std::vector<QpFacts> list_qps() const;
    struct ObjectCounts {
        std::uint32_t pds, mrs, cqs, srqs, qps, ahs;
    };
    ObjectCounts object_counts() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace rdmalab::transport
