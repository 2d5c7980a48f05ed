// Congestion control of the card: ties engines, e-switch domains and src/pcc together.
//
// Each function has a notification point (which marks are answered), each PF's port a reaction
// point (how fast the flows of its functions may send). Processes attach to a PF with rings in
// shared memory: the first is Active, later ones wait as Standby and follow when it goes or is
// given up. RTT probes are made and answered here.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "card/card.h"
#include "card/function.h"
#include "pcc/event_link.h"
#include "pcc/notification_point.h"
#include "pcc/reaction_point.h"
#include "wire/cc_probe.h"

namespace rdmalab::card {

class Congestion {
public:
    using Functions = std::vector<std::unique_ptr<Function>>;

    // The engines of `functions` report here from now on.
    Congestion(const CardConfig& config, HostPort& host, Functions& functions);
    ~Congestion();
    Congestion(const Congestion&) = delete;
    Congestion& operator=(const Congestion&) = delete;

    // --- Frames.
    // True: it was a probe or its answer.
    bool handle_mad(std::uint32_t function, const wire::Frame& frame, Instant now);
    // A frame of the connection manager leaves: QPs whose connection it makes may be served by a
    // process.
    void note_connection(std::uint32_t function, const wire::Frame& frame);
    bool has_frames(std::uint32_t function) const { return !outboxes_[function].empty(); }
    bool poll_frame(std::uint32_t function, wire::Frame& out);

    // --- Rounds.
    bool poll(Instant now);
    Instant next_deadline() const;
    bool has_answers() const;

    // --- Processes.
    Status attach(CongestionProcessId id, std::uint32_t device, std::uint32_t workers,
                  bool report_only, std::byte* memory, Instant now);
    void detach(CongestionProcessId id, Instant now);

    // --- Operation.
    const pcc::Settings& settings() const { return settings_; }
    void set_settings(const pcc::Settings& settings, Instant now);
    void set_line_rate(std::uint32_t device, Rate rate, Instant now);
    std::vector<CongestionFacts> facts() const;

private:
    struct Domain;
    struct Process;
    struct Point;
    struct Outgoing {
        wire::LowerTemplate lower;
        wire::MadBytes mad;
    };

    Domain* domain_of(std::uint32_t function) const { return domain_by_function_[function]; }
    bool send_probe(pcc::FlowId flow, Instant now);
    void answer_probe(std::uint32_t function, const wire::Frame& frame, wire::CcProbe probe,
                      Instant now);
    void elect(Domain& domain, Instant now);
    void set_state(Process& process, pcc::ProcessState state);
    void give_up(Domain& domain, pcc::ErrorReason reason, Instant now);
    Process* find(CongestionProcessId id) const;

    HostPort& host_;
    Functions& functions_;
    pcc::Settings settings_;
    std::vector<std::unique_ptr<Domain>> domains_;
    std::vector<Domain*> domain_by_function_;
    std::vector<std::unique_ptr<Point>> points_;  // by function
    std::vector<std::deque<Outgoing>> outboxes_;  // by function
    // Payload of frames on their way: nothing needs it for longer than a round.
    static constexpr std::size_t kMadsValid = 1024;
    std::vector<wire::MadBytes> mads_;
    std::size_t mad_index_ = 0;
};

}  // namespace rdmalab::card
