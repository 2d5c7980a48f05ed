// The embedded switch of one PF: an e-switch domain. Its ports are the wire (the uplink to a
// physical port) and the vports of the functions (PF, VFs, SFs).
//
// Forwarding is the default one: by the configured MAC addresses.
//   unicast to a known MAC     -> that vport, also when it is the sender's own (hairpin)
//   unicast to an unknown MAC  -> from a vport: the wire; from the wire: dropped
//   multicast and broadcast    -> every port but the one it came from
//
// The domain owns ports and counters; ForwardingTable only answers where a MAC is. While a program
// owns the domain (take_over), its pipes decide instead, and a domain without pipes drops
// everything.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/address.h"
#include "base/ids.h"
#include "flow/forwarding_table.h"
#include "flow/output_list.h"
#include "flow/pipeline.h"
#include "wire/frame.h"

namespace rdmalab::flow {

// Seen from the e-switch port: ingress is what came into the switch.
struct PortCounters {
    std::uint64_t ingress_frames = 0, ingress_bytes = 0;
    std::uint64_t egress_frames = 0, egress_bytes = 0;
    std::uint64_t dropped = 0;  // came in here and found no way out
};

class EswitchDomain {
public:
    // Set-up. The caller numbers the ports, each once, in any order; at most kPortMax of them. With
    // several wires the first one takes unicast to unknown MACs.
    void add_wire(VportId port);
    void add_vport(VportId port, const MacAddress& mac);

    // A program owns the domain from now on; nobody does yet.
    Pipeline& take_over(std::vector<PortInfo> ports, const PipelineOptions& options);
    // Its pipes vanish, the default forwarding returns. Not from within a sink.
    void release() { pipeline_.reset(); }
    Pipeline* pipeline() { return pipeline_.get(); }  // nullptr: the domain has no owner
    const Pipeline* pipeline() const { return pipeline_.get(); }
    // Of a domain with an owner: the packet goes through the pipes. False: nothing of it has left.
    bool process(VportId ingress, wire::Frame& frame, PacketSink& sink);

    // Of a domain without an owner.
    // Where `frame`, which came in at `ingress`, goes: `out` is replaced. Allocates nothing.
    void process(VportId ingress, const wire::Frame& frame, OutputList& out);

    const PortCounters& counters(VportId port) const { return ports_[port.value].counters; }

private:
    struct Port {
        bool exists = false;
        bool is_wire = false;
        PortCounters counters;
    };

    Port& add_port(VportId port);
    void forward_by_mac(VportId ingress, const wire::Frame& frame, OutputList& out) const;
    void flood(VportId ingress, OutputList& out) const;
    void count(VportId ingress, const wire::Frame& frame, const OutputList& out);

    std::vector<Port> ports_;  // by VportId
    std::optional<VportId> wire_;
    ForwardingTable table_;
    std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace rdmalab::flow
