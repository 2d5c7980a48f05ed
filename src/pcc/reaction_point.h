// The reaction point of one port: what happened to the packets of its flows goes in, the time of
// the next packet comes out.
//
// A flow's rate comes from one of two places. Without a process (EventLink) it is the built-in
// DCQCN: flows that have no CNPs are not even looked at. With one, everything that happens to a
// flow becomes events for it, and its answers are the rate; flows that it does not serve (slot 15,
// see FlowPolicy) stay with the built-in algorithm. In report-only mode its answers are not
// enforced.
//
// Sans-IO: the card calls `poll` each round and at next_deadline().
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "base/prng.h"
#include "base/units.h"
#include "pcc/dcqcn_law.h"
#include "pcc/event_link.h"
#include "pcc/flow_table.h"
#include "pcc/pacer.h"
#include "pcc/pcc_abi.h"
#include "pcc/settings.h"

namespace rdmalab::pcc {

// What the reaction point asks of the card.
class ReactionPort {
public:
    virtual ~ReactionPort() = default;
    // Facts about this flow are (not) wanted.
    virtual void watch(FlowId flow, bool on) = 0;
    // ... about all flows of the port.
    virtual void watch_all(bool on) = 0;
    // An RTT probe to the flow's peer. False: there is no way to it.
    virtual bool send_probe(FlowId flow, Instant now) = 0;
    virtual void wake(std::atomic<std::uint32_t>& word) = 0;
};

struct SentFacts {
    FlowId flow = 0;
    std::uint32_t sn = 0;
    std::uint32_t bytes = 0;
    bool is_requester = true;
    bool asks_ack = false;
};

struct ReactionCounters {
    // By EventType. Handled: things that happened; events: what they were coalesced to; lost: of
    // these, because the ring was full (or the process slow) and by injection.
    struct Type {
        std::uint64_t handled = 0, events = 0, lost = 0, lost_injected = 0;
    };
    std::array<Type, 8> types{};
    std::uint64_t answers = 0, answers_refused = 0;
    std::uint64_t probes_sent = 0, probes_answered = 0, probes_lost = 0;
    std::uint64_t fallbacks = 0;  // processes that were given up
    std::uint64_t packets_paced = 0;
};

struct FlowFacts {
    FlowId id = 0;
    std::uint8_t slot = 0;
    std::uint32_t rate = 0;  // enforced
    bool is_internal = false;
    std::uint64_t cnps = 0;
};

class ReactionPoint {
public:
    // `settings` may change at any time.
    ReactionPoint(const Settings& settings, std::uint64_t seed, std::uint8_t port_number,
                  ReactionPort& port);

    // --- Facts.
    void handle_cnp(FlowId id, Instant now);
    // Returns the time before which the flow's next packet may not leave.
    Instant handle_sent(const SentFacts& sent, Instant now);
    Instant may_send(FlowId id, Instant now);
    void handle_ack(FlowId id, std::uint32_t sn, Instant now);
    void handle_nack(FlowId id, NackKind kind, std::uint32_t sn, Instant now);
    void handle_rtt(FlowId id, const RttFacts& rtt, Instant now);
    // Both ends have negotiated congestion control (FlowPolicy::kCm).
    void set_negotiated(FlowId id);
    void forget(FlowId id);

    // --- The process. The link is the caller's and stays until detach.
    void attach(EventLink& link, bool report_only, Instant now);
    void detach(Instant now);
    bool is_attached() const { return link_ != nullptr; }
    // Why the process cannot go on; kNone: it can. To be asked after poll.
    ErrorReason fault() const { return fault_; }

    // --- Rounds. True: something was done.
    bool poll(Instant now);
    Instant next_deadline() const;
    bool has_answer() const { return link_ != nullptr && link_->has_answer(); }

    void set_line_rate(std::uint64_t bps, Instant now);
    std::uint64_t line_rate() const { return line_bps_; }
    // Settings that flows must hear of have changed (is_pacing).
    void settings_changed(Instant now);

    const ReactionCounters& counters() const { return counters_; }
    std::vector<FlowFacts> flows() const;
    std::uint32_t flow_count() const { return flows_.size(); }
    std::uint32_t limited_count() const;

private:
    struct Burst {  // things that become one event
        std::uint32_t count = 0, bytes = 0, first_sn = 0, sn = 0;
        Instant first;
        std::uint8_t flags = 0;
    };
    struct Flow {
        FlowId id = 0;
        bool is_negotiated = false;
        bool is_overloaded = false;
        bool is_pending = false;  // stands in pending_
        std::uint32_t rate = kRateMax;
        std::uint64_t cnps = 0;
        Pacer pacer;
        dcqcn_state dcqcn{};
        Burst tx, cnp, ack;
        bool is_probing = false, wants_probe = false, probe_sent = false;
        Instant probe_time = Instant{-seconds(1).ns};
    };
    struct Due {
        FlowId flow;
        Instant time;
    };

    bool is_served(const Flow& flow) const {
        return link_ != nullptr && (flow.is_negotiated || settings_.flows == FlowPolicy::kAll);
    }
    bool is_enforced(const Flow& flow) const {
        return settings_.is_pacing && !(report_only_ && is_served(flow));
    }
    std::uint64_t line_mbps() const { return line_bps_ / 1'000'000; }

    void follow_internal(Flow& flow, Instant now);
    void set_rate(Flow& flow, std::uint32_t rate, Instant now);
    void add(Flow& flow, Burst& burst, std::uint32_t sn, Instant now);
    Event event_for(const Flow& flow, EventType type, Instant now) const;
    void end_tx(Flow& flow, Instant now);
    void end_feedback(Flow& flow, Burst& burst, EventType type, Instant now);
    void end_all(Flow& flow, Instant now);
    void push(Flow& flow, const Event& event);
    void push_gone();
    bool take_answers(Instant now);
    void take(const Answer& answer, Instant now);
    void want_probe(Flow& flow, Instant now);
    void send_probe(Flow& flow, Instant now);
    void end_bursts(Instant now);
    void send_waiting_probes(Instant now);
    ReactionCounters::Type& counter(EventType type) {
        return counters_.types[static_cast<std::size_t>(type) & 7];
    }

    const Settings& settings_;
    ReactionPort& port_;
    std::uint8_t port_number_;
    Prng prng_;
    std::uint64_t line_bps_;
    FlowTable<Flow> flows_;
    EventLink* link_ = nullptr;
    bool report_only_ = false;
    ErrorReason fault_ = ErrorReason::kNone;
    Instant stuck_look_;
    std::deque<Due> pending_;  // flows with unfinished bursts, by time
    std::deque<Due> probes_;   // that wait for their interval
    std::deque<FlowId> gone_;  // that the process has not been told
    ReactionCounters counters_;
};

}  // namespace rdmalab::pcc
