// How frames get from one function of the card to another: the function's e-switch domain, its
// port, the cable, the port and the domain at the other end. Taps and counters hang on the ends.
//
// A frame whose way has no impaired cable is handed on by reference, down to the receiving engine,
// within the call of `handle_frame`.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "card/cable.h"
#include "card/card.h"
#include "card/uplink.h"
#include "flow/eswitch.h"

namespace rdmalab::card {

// Takes frames that have reached a function.
class FrameSink {
public:
    virtual ~FrameSink() = default;
    virtual void deliver(std::uint32_t function, wire::Frame& frame, Instant now) = 0;
    // A function sends a frame, which is not in the switch yet. False: it does not leave.
    virtual bool departs(std::uint32_t, const wire::Frame&, Instant) { return true; }
    // Payload of frames that are not RoCEv2 may be read later than when they are handed over.
    virtual bool keeps_payload() const { return false; }
};

class Switchboard {
public:
    // `faults` collects payloads that a cable could not read.
    Switchboard(const CardConfig& config, HostPort& host, transport::MemoryPort& memory,
                FrameSink& sink, std::vector<transport::CopyFault>& faults);

    // A function emits a frame.
    void handle_frame(std::uint32_t function, wire::Frame& frame, Instant now);
    // A function emits a frame that is bytes: false when these do not parse.
    bool handle_bytes(std::uint32_t function, ByteView bytes, Instant now);
    // Delivers at most `budget` frames that have come to the end of their cable; returns how many.
    std::size_t deliver_due(Instant now, std::size_t budget);
    Instant next_deadline() const;
    // --- Uplinks. What has come in by one: a frame, or a burst. The bytes must stay until the next
    // memory flush. What leaves is queued until `send_uplinks`, behind that flush.
    void handle_uplink(std::uint32_t port, ByteView bytes, std::uint32_t segment_length,
                       Instant now);
    bool must_send() const { return must_send_; }
    void send_uplinks();
    // The host takes frames of the port again.
    void resume_uplink(std::uint32_t port);
    void set_uplink_state(std::uint32_t port, bool is_up) { ports_[port].is_up = is_up; }
    void forbid_bursts(std::uint32_t port) { ports_[port].uplink->forbid_bursts(); }
    // Of the function's domain: false when its uplink is down, or does not take frames right now.
    bool is_up(std::uint32_t function) const;
    bool is_blocked(std::uint32_t function) const;

    // After the memory flush: payload that frames brought along is no longer referred to.
    void reclaim() { buffers_.reclaim(); }
    bool must_reclaim() const { return buffers_.any_retired(); }

    // --- Switch domains, one per PF. Domains are numbered from 0 in the order of their first ports
    // and functions.
    std::size_t domain_count() const { return domains_.size(); }
    const std::string& pf_of(std::uint32_t domain) const { return domains_[domain].pf; }
    const flow::Pipeline* pipeline(std::uint32_t domain) const {
        return domains_[domain].eswitch.pipeline();
    }
    flow::Pipeline* pipeline(std::uint32_t domain) { return domains_[domain].eswitch.pipeline(); }
    // The domain has no owner yet.
    flow::Pipeline& take_over(std::uint32_t domain, std::vector<flow::PortInfo> ports,
                              const flow::PipelineOptions& options) {
        return domains_[domain].eswitch.take_over(std::move(ports), options);
    }
    void release(std::uint32_t domain) { domains_[domain].eswitch.release(); }
    // By PortId: what is behind each port of the domain.
    const std::vector<TapPoint>& ends(std::uint32_t domain) const { return domains_[domain].ends; }

    Status set_impairments(const std::string& cable, std::optional<bool> a_to_b,
                           const Impairments& impairments);
    void set_tap(TapPoint point, bool on);
    // Of the cable behind the first port of the function's domain; 0: none, or not limited.
    Rate rate_of(std::uint32_t function) const;

    const PortCounters& port_counters(std::uint32_t port) const { return ports_[port].counters; }
    PortCounters vport_counters(std::uint32_t function) const;
    const CableDirection& direction(std::uint32_t cable, bool a_to_b) const {
        return a_to_b ? cables_[cable]->a_to_b : cables_[cable]->b_to_a;
    }

private:
    // Cables may join the ports of a card to a ring: a frame that goes round and round is dropped.
    static constexpr int kHopsMax = 8;

    struct Cable {
        std::string name;
        CableDirection a_to_b, b_to_a;
    };
    // One end of a domain: the port to a cable, or the vport of a function.
    struct End {
        std::uint32_t domain = 0;
        VportId vport;
        bool tapped = false;
        // Of a port only. The e-switch counts what passes a vport.
        PortCounters counters;
        CableDirection* outgoing = nullptr;  // nullptr: no cable
        CableDirection* incoming = nullptr;
        std::uint32_t far_port = 0;
        std::unique_ptr<UplinkQueue> uplink;  // the cable ends in an interface
        bool is_up = true;
    };
    struct Domain {
        std::string pf;
        flow::EswitchDomain eswitch;
        std::vector<TapPoint> ends;  // by VportId
    };

    class PipeSink;

    VportId add_end(std::uint32_t domain, TapPoint point);
    void join(const CardConfig& config, const CableConfig& cable);
    void forward(End& from, wire::Frame& frame, Instant now, int hops);
    void forward_by_pipes(End& from, wire::Frame& frame, Instant now, int hops);
    void copy_to_queue(Domain& domain, std::uint16_t queue, VportId ingress,
                       const wire::Frame& frame);
    void send(TapPoint to, wire::Frame& frame, Instant now, int hops);
    void transmit(std::uint32_t port, wire::Frame& frame, Instant now, int hops);
    void transmit_by_uplink(std::uint32_t port, const wire::Frame& frame, Instant now);
    void receive_from_uplink(std::uint32_t port, wire::Frame& frame, Instant now);
    void send_uplink(std::uint32_t port);
    const End* uplink_of(std::uint32_t function) const;
    void receive(std::uint32_t port, wire::Frame& frame, Instant now, int hops);
    void queue_for_uplink(End& end, const wire::Frame& frame);
    std::size_t drain_to_uplink(End& end, Instant now, std::size_t budget);
    std::size_t drain(std::uint32_t port, Instant now, int hops, std::size_t budget);

    HostPort& host_;
    transport::MemoryPort& memory_;
    FrameSink& sink_;
    std::vector<transport::CopyFault>& faults_;
    FrameBuffers buffers_;
    std::vector<std::byte> scratch_;  // of copy_to_queue
    std::vector<Domain> domains_;
    std::vector<End> ports_;   // as in CardConfig::ports
    std::vector<End> vports_;  // as in CardConfig::functions
    std::vector<std::unique_ptr<Cable>> cables_;
    std::vector<std::uint32_t> uplinks_;  // ports that are
    bool must_send_ = false;
};

}  // namespace rdmalab::card
