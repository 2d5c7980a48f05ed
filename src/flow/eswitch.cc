#include "flow/eswitch.h"

#include <cassert>

#include "wire/headers.h"

namespace rdmalab::flow {

EswitchDomain::Port& EswitchDomain::add_port(VportId port) {
    assert(port.value < kPortMax);
    if (port.value >= ports_.size()) ports_.resize(port.value + std::size_t{1});
    assert(!ports_[port.value].exists);
    ports_[port.value].exists = true;
    return ports_[port.value];
}

void EswitchDomain::add_wire(VportId port) {
    add_port(port).is_wire = true;
    if (!wire_) wire_ = port;
}

void EswitchDomain::add_vport(VportId port, const MacAddress& mac) {
    assert(!mac.is_multicast());
    add_port(port);
    table_.add(mac, port);
}

void EswitchDomain::process(VportId ingress, const wire::Frame& frame, OutputList& out) {
    assert(ingress.value < ports_.size() && ports_[ingress.value].exists);
    out.clear();
    forward_by_mac(ingress, frame, out);
    count(ingress, frame, out);
}

void EswitchDomain::forward_by_mac(VportId ingress, const wire::Frame& frame,
                                   OutputList& out) const {
    const MacAddress destination{wire::header_at<wire::EthernetHeader>(frame, 0)->destination};
    if (destination.is_multicast()) return flood(ingress, out);
    if (const VportId* port = table_.find(destination)) return out.add(*port);
    if (wire_ && !ports_[ingress.value].is_wire) out.add(*wire_);
}

void EswitchDomain::flood(VportId ingress, OutputList& out) const {
    for (std::size_t i = 0; i < ports_.size(); ++i) {
        const VportId port{static_cast<std::uint16_t>(i)};
        if (ports_[i].exists && port != ingress) out.add(port);
    }
}

void EswitchDomain::count(VportId ingress, const wire::Frame& frame, const OutputList& out) {
    const std::size_t bytes = wire::wire_length(frame);
    PortCounters& from = ports_[ingress.value].counters;
    ++from.ingress_frames;
    from.ingress_bytes += bytes;
    if (out.empty()) ++from.dropped;
    for (std::size_t i = 0; i < out.size(); ++i) {
        PortCounters& to = ports_[out[i].value].counters;
        ++to.egress_frames;
        to.egress_bytes += bytes;
    }
}

}  // namespace rdmalab::flow
