#include "flow/eswitch.h"

#include <cassert>
#include <utility>

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

Pipeline& EswitchDomain::take_over(std::vector<PortInfo> ports, const PipelineOptions& options) {
    assert(!pipeline_);
    pipeline_ = std::make_unique<Pipeline>(std::move(ports), options);
    return *pipeline_;
}

bool EswitchDomain::process(VportId ingress, wire::Frame& frame, PacketSink& sink) {
    // Counts what leaves by ports on its way to the sink.
    class Counting final : public PacketSink {
    public:
        Counting(std::vector<Port>& ports, std::size_t bytes, PacketSink& sink)
            : ports_(ports), bytes_(bytes), sink_(sink) {}
        void to_port(PortId port, wire::Frame& out) override {
            PortCounters& to = ports_[port.value].counters;
            ++to.egress_frames;
            to.egress_bytes += bytes_;
            sink_.to_port(port, out);
        }
        void to_queue(std::uint16_t queue, PortId from, const wire::Frame& out) override {
            sink_.to_queue(queue, from, out);
        }

    private:
        std::vector<Port>& ports_;
        std::size_t bytes_;
        PacketSink& sink_;
    };

    assert(pipeline_ && ingress.value < ports_.size() && ports_[ingress.value].exists);
    const std::size_t bytes = wire::wire_length(frame);
    PortCounters& from = ports_[ingress.value].counters;
    ++from.ingress_frames;
    from.ingress_bytes += bytes;
    Counting counting(ports_, bytes, sink);
    const bool has_left = pipeline_->process(ingress, frame, counting);
    if (!has_left) ++from.dropped;
    return has_left;
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
