// The card: engines (one per function), e-switch domains (one per PF), cables, and the rings of
// attached clients. Sans-IO: the host (card/host, or a test) gives it memory and time and carries
// out what it asks for through HostPort.
//
// A round is `poll(now)`: doorbells -> engines make frames -> e-switch -> cable -> e-switch ->
// engines take them, copies queue up -> memory flush -> commit (completions, events, ACK duty). It
// returns true while there is more to do at once; otherwise the host may sleep until the bell, a
// control message or `next_deadline()`.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "card/cm_host.h"
#include "card/config.h"
#include "card/ring_abi.h"
#include "card/uplink.h"
#include "flow/pipeline.h"
#include "pcc/pcc_abi.h"
#include "pcc/reaction_point.h"
#include "pcc/settings.h"
#include "transport/cm_types.h"
#include "transport/engine.h"
#include "wire/frame.h"

namespace rdmalab::card {

// A region of a context's shared memory, mapped into the card. It stays mapped until free_region.
struct MappedRegion {
    abi::Region region;
    std::byte* base = nullptr;
};

// A place where frames can be captured: a port of the card or a representor (the switch side of a
// vport).
struct TapPoint {
    bool is_port = false;     // else a function's vport
    std::uint32_t index = 0;  // of CardConfig::ports or ::functions
    bool operator==(const TapPoint&) const = default;
};

// One connection of a program that owns a switch domain; chosen by the host, never reused.
using FlowSessionId = StrongId<struct FlowSessionIdTag>;

// The switch domain of a PF.
struct FlowDomainFacts {
    std::string pf;                            // its device
    std::string owner;                         // the program that owns it; empty: nobody does
    const flow::Pipeline* pipeline = nullptr;  // of the owner
};
// One attached congestion control process; chosen by the host, never reused.
using CongestionProcessId = StrongId<struct CongestionProcessIdTag>;

class HostPort : public CmHostPort {
public:
    // Zeroed, page-aligned shared memory in the context's memfd. ENOMEM when there is none.
    virtual Result<MappedRegion> allocate_region(OwnerId owner, std::uint64_t length) = 0;
    virtual void free_region(OwnerId owner, const MappedRegion& region) = 0;
    // Record for a completion channel, or for the context's async pipe. Must not block; a full pipe
    // keeps the record and retries.
    virtual void notify_channel(OwnerId owner, std::uint32_t channel,
                                const abi::CompletionEvent& event) = 0;
    virtual void notify_async(OwnerId owner, const abi::AsyncEventRecord& event) = 0;
    // Wakes clients that futex-wait on this shared word.
    virtual void wake(std::atomic<std::uint32_t>& word) = 0;
    // A frame passes a tap that set_tap switched on. `inbound`: towards the function (representor)
    // or from the cable (port).
    virtual void captured(TapPoint point, const wire::Frame& frame, bool inbound) = 0;
    // A frame that is not RoCE has reached a function. False: the function has no network
    // interface. The payload is to be read within the call.
    virtual bool deliver_to_netdev(std::uint32_t, const wire::Frame&) { return false; }
    // Frames leave by an uplink. Returns how many bursts have been taken; the others stay where
    // they are until the host calls Card::resume_uplink.
    virtual std::size_t send_by_uplink(std::uint32_t, std::span<const UplinkBurst> bursts) {
        return bursts.size();
    }
    // A congestion control process was given up; the built-in algorithm, or the next in line, goes
    // on.
    virtual void congestion_process_failed(CongestionProcessId, pcc::ErrorReason) {}
    // Of CmHostPort. Only a host that opens CM sessions needs to do something here.
    void notify_cm(CmSessionId, std::uint32_t, const abi::CmEventRecord&) override {}
    std::vector<abi::CmEventRecord> withdraw_cm(CmSessionId, std::uint32_t,
                                                std::uint32_t) override {
        return {};
    }
};

// Reply to a control request: `status` is 0 or an errno value; `text` explains it (may be empty).
struct ControlReply {
    int status = 0;
    std::string text;
    std::vector<std::byte> body;
};

struct PortCounters {
    std::uint64_t tx_frames = 0, tx_bytes = 0, rx_frames = 0, rx_bytes = 0;
    std::uint64_t dropped = 0;    // no cable, or no such destination in the e-switch
    std::uint64_t malformed = 0;  // from an uplink: not what its headers claim
};
struct CableCounters {  // one direction
    std::uint64_t frames = 0, bytes = 0, lost = 0, reordered = 0, duplicated = 0, corrupted = 0,
                  ce_marked = 0, overflowed = 0;
};

// Congestion control of one PF.
struct CongestionFacts {
    struct Process {
        CongestionProcessId id;
        pcc::ProcessState state;
        std::uint32_t workers;
        bool report_only;
    };
    std::string pf;
    std::uint64_t line_rate_bps = 0;
    pcc::ReactionCounters counters;
    std::vector<pcc::FlowFacts> flows;
    std::vector<Process> processes;
};

class Card {
public:
    Card(const CardConfig& config, HostPort& host, transport::MemoryPort& memory);
    ~Card();
    Card(const Card&) = delete;
    Card& operator=(const Card&) = delete;

    const CardConfig& config() const;

    // --- Attachments. `owner` and `space` are chosen by the host, never reused while frames may
    // refer to them; owner 0 and space 0 are not used. The reply body of open_context is an
    // abi::OpenContextReply.
    ControlReply open_context(OwnerId owner, SpaceId space, std::uint32_t device);
    void close_context(OwnerId owner);
    // All ops from kQueryPort to kCreateHashQp of an attached client; `channel` ops only bookkeep
    // (the host makes the pipe). `now` as in poll.
    // `speaker`: the memory that addresses in the request belong to, when it is not that of
    // open_context (several processes may share a context).
    ControlReply handle_request(OwnerId owner, abi::Op op, ByteView body, Instant now,
                                SpaceId speaker = {});
    // The reply of open_context once more, for one who joins the context.
    ControlReply describe_context(OwnerId owner) const;
    std::vector<abi::DeviceInfo> list_devices() const;

    // --- CM sessions (cm_abi.h). Bit i of `visible` lets the session see device i. The body is
    // that of kOpen, the reply's an abi::CmOpenReply.
    ControlReply open_cm_session(CmSessionId session, std::uint64_t visible, ByteView body);
    void close_cm_session(CmSessionId session, Instant now);
    // All other ops of abi::CmOp; for channels the host makes and closes the pipe.
    ControlReply handle_cm_request(CmSessionId session, abi::CmOp op, ByteView body, Instant now);

    // --- Switch domains (flow/commands.h). The first request of a session makes it the owner of
    // the domain of a PF; `program` is how others are told about it. EBUSY: it has another owner.
    // When the session closes, its pipes vanish and the default forwarding returns.
    ControlReply handle_flow_request(FlowSessionId session, const std::string& program,
                                     ByteView body);
    void close_flow_session(FlowSessionId session);
    std::vector<FlowDomainFacts> flow_domains() const;
    Result<FlowDomainFacts> find_flow_domain(const std::string& pf) const;  // or its PCI address
    // Follows packets through the pipes of the PF. EINVAL: it has no owner.
    Status trace_flow(const std::string& pf, const flow::Match& filter,
                      const std::optional<flow::FieldValues>& mask, std::uint32_t packets);
    // --- Congestion control processes (pcc/pcc_abi.h). `memory` is zeroed, shared with the
    // process, of pcc::shared_size(workers) bytes, and stays mapped until detach. `device` is a PF.
    Status attach_congestion(CongestionProcessId id, std::uint32_t device, std::uint32_t workers,
                             bool report_only, std::byte* memory, Instant now);
    void detach_congestion(CongestionProcessId id, Instant now);
    const pcc::Settings& congestion_settings() const;
    void set_congestion_settings(const pcc::Settings& settings, Instant now);
    std::vector<CongestionFacts> congestion_facts() const;

    // --- Data path.
    bool poll(Instant now);
    Instant next_deadline() const;
    // True when a client rang a doorbell since the last poll: the host checks it after it has
    // published `sleeping`.
    bool doorbell_pending() const;
    std::size_t context_count() const;  // what the look for doorbells costs

    // A frame (no FCS) that the network interface of a function sends. RoCE frames are welcome too.
    // False: it is not what its headers claim, and is dropped.
    bool handle_netdev_frame(std::uint32_t function, ByteView bytes, Instant now);

    // --- Uplinks. Something has come in: a frame without FCS or, when `segment_length` is not 0, a
    // burst of them (wire/burst.h). The bytes must stay as they are until the next poll() is over.
    void handle_uplink(std::uint32_t port, ByteView bytes, std::uint32_t segment_length,
                       Instant now);
    void resume_uplink(std::uint32_t port);
    void forbid_bursts(std::uint32_t port);  // the interface takes none
    // The state of the devices behind the uplink; programs are told by an event.
    void set_uplink_state(std::uint32_t port, bool is_up);

    // --- Operation.
    Status set_impairments(const std::string& cable, std::optional<bool> a_to_b,
                           const Impairments& impairments, Instant now);
    Result<TapPoint> find_tap(const std::string& name) const;  // port, representor or device name
    void set_tap(TapPoint point, bool on);

    // --- Facts.
    const transport::Engine& engine(std::uint32_t function) const;
    std::size_t flow_rule_count(std::uint32_t function) const;
    const transport::CmCounters& cm_counters(std::uint32_t function) const;
    CmCounts cm_counts() const;
    PortCounters port_counters(std::uint32_t port) const;
    PortCounters vport_counters(std::uint32_t function) const;
    Rate rate_of(std::uint32_t function) const;  // of the cable at its PF's port
    CableCounters cable_counters(std::uint32_t cable, bool a_to_b) const;
    Impairments impairments(std::uint32_t cable, bool a_to_b) const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace rdmalab::card
