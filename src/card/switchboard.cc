#include "card/switchboard.h"

#include <algorithm>
#include <cerrno>

#include "flow/commands.h"
#include "wire/headers.h"
#include "wire/icrc.h"

namespace rdmalab::card {

namespace {

// FNV-1a: a direction's seed must not depend on the order of cables in the configuration.
std::uint64_t seed_for(std::uint64_t card_seed, const std::string& cable, bool a_to_b) {
    std::uint64_t hash = 0xcbf2'9ce4'8422'2325;
    for (const char c : cable + (a_to_b ? ">" : "<")) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3;
    }
    return hash ^ card_seed;
}

}  // namespace

Switchboard::Switchboard(const CardConfig& config, HostPort& host, transport::MemoryPort& memory,
                         FrameSink& sink, std::vector<transport::CopyFault>& faults)
    : host_(host), memory_(memory), sink_(sink), faults_(faults) {
    const auto domain_of = [this](const std::string& pf) {
        const auto found = std::find_if(domains_.begin(), domains_.end(),
                                        [&](const Domain& domain) { return domain.pf == pf; });
        const auto index = found - domains_.begin();
        if (found == domains_.end()) domains_.emplace_back().pf = pf;
        return static_cast<std::uint32_t>(index);
    };
    for (std::uint32_t i = 0; i < config.ports.size(); ++i) {
        End& end = ports_.emplace_back();
        end.domain = domain_of(config.ports[i].pf_device);
        end.vport = add_end(end.domain, {true, i});
        domains_[end.domain].eswitch.add_wire(end.vport);
        if (config.ports[i].uplink.empty()) continue;
        end.uplink = std::make_unique<UplinkQueue>(memory, config.ports[i].may_burst);
        uplinks_.push_back(i);
    }
    for (std::uint32_t i = 0; i < config.functions.size(); ++i) {
        End& end = vports_.emplace_back();
        end.domain = domain_of(config.functions[i].pf_device);
        end.vport = add_end(end.domain, {false, i});
        domains_[end.domain].eswitch.add_vport(end.vport, config.functions[i].mac);
    }
    for (const CableConfig& cable : config.cables) join(config, cable);
}

VportId Switchboard::add_end(std::uint32_t domain, TapPoint point) {
    std::vector<TapPoint>& ends = domains_[domain].ends;
    ends.push_back(point);
    return {static_cast<std::uint16_t>(ends.size() - 1)};
}

void Switchboard::join(const CardConfig& config, const CableConfig& cable) {
    const auto port_named = [&](const std::string& name) {
        const auto found = std::find_if(config.ports.begin(), config.ports.end(),
                                        [&](const PortConfig& port) { return port.name == name; });
        return static_cast<std::uint32_t>(found - config.ports.begin());
    };
    const auto direction = [&](bool a_to_b) {
        CableDirection made(seed_for(config.seed, cable.name, a_to_b), config.force_computed_icrc,
                            buffers_, memory_, faults_);
        made.set_impairments(a_to_b ? cable.a_to_b : cable.b_to_a);
        return made;
    };
    const std::uint32_t a = port_named(cable.port_a), b = port_named(cable.port_b);
    cables_.push_back(
        std::make_unique<Cable>(Cable{cable.name, direction(true), direction(false)}));
    Cable& joined = *cables_.back();
    if (b == ports_.size()) {  // it ends in an interface
        ports_[a].outgoing = &joined.a_to_b;
        ports_[a].incoming = &joined.b_to_a;
        return;
    }
    ports_[a].outgoing = ports_[b].incoming = &joined.a_to_b;
    ports_[b].outgoing = ports_[a].incoming = &joined.b_to_a;
    ports_[a].far_port = b;
    ports_[b].far_port = a;
}

void Switchboard::handle_frame(std::uint32_t function, wire::Frame& frame, Instant now) {
    End& vport = vports_[function];
    if (!sink_.departs(function, frame, now)) return;
    if (vport.tapped) host_.captured({false, function}, frame, false);
    // The e-switch sends nothing back to where it came from, but an adapter gives a copy to those
    // of its own QPs that are members of the group (IBTA vol. 1, 10.5.2).
    if (wire::is_roce(frame) && wire::destination_mac(frame).is_multicast()) {
        wire::Frame own = frame;
        sink_.deliver(function, own, now);
    }
    forward(vport, frame, now, 0);
}

// The bytes are the caller's, and his again when this returns. Only an engine reads payload later
// than that: what is meant for one is copied.
bool Switchboard::handle_bytes(std::uint32_t function, ByteView bytes, Instant now) {
    const auto place = [](ByteView all) {
        return wire::PayloadSegment{kCardSpace, static_cast<std::uint32_t>(all.size()),
                                    reinterpret_cast<std::uintptr_t>(all.data())};
    };
    wire::Frame frame;
    if (wire::parse_frame(bytes, place(bytes), frame) != wire::ParseError::kNone) return false;
    if (wire::is_roce(frame) || sink_.keeps_payload()) {
        FrameBuffers::Buffer copy = buffers_.take();
        copy->assign(bytes.begin(), bytes.end());
        wire::parse_frame(*copy, place(*copy), frame);
        buffers_.retire(std::move(copy));
    }
    handle_frame(function, frame, now);
    return true;
}

// Through the domain's e-switch. The last target gets the frame itself, the others copies.
void Switchboard::forward(End& from, wire::Frame& frame, Instant now, int hops) {
    Domain& domain = domains_[from.domain];
    if (domain.eswitch.pipeline() != nullptr) return forward_by_pipes(from, frame, now, hops);
    flow::OutputList outputs;
    if (hops < kHopsMax) domain.eswitch.process(from.vport, frame, outputs);
    if (outputs.empty()) {
        ++from.counters.dropped;
        return;
    }
    for (std::size_t i = 0; i + 1 < outputs.size(); ++i) {
        wire::Frame copy = frame;
        send(domain.ends[outputs[i].value], copy, now, hops);
    }
    send(domain.ends[outputs.back().value], frame, now, hops);
}

// Takes what leaves the pipes of a domain.
class Switchboard::PipeSink final : public flow::PacketSink {
public:
    PipeSink(Switchboard& board, Domain& domain, Instant now, int hops)
        : board_(board), domain_(domain), now_(now), hops_(hops) {}
    void to_port(flow::PortId port, wire::Frame& frame) override {
        board_.send(domain_.ends[port.value], frame, now_, hops_);
    }
    void to_queue(std::uint16_t queue, flow::PortId ingress, const wire::Frame& frame) override {
        board_.copy_to_queue(domain_, queue, ingress, frame);
    }

private:
    Switchboard& board_;
    Domain& domain_;
    Instant now_;
    int hops_;
};

void Switchboard::forward_by_pipes(End& from, wire::Frame& frame, Instant now, int hops) {
    Domain& domain = domains_[from.domain];
    PipeSink sink(*this, domain, now, hops);
    if (hops >= kHopsMax || !domain.eswitch.process(from.vport, frame, sink)) {
        ++from.counters.dropped;
    }
}

// The whole frame as bytes, for the program that owns the domain.
void Switchboard::copy_to_queue(Domain& domain, std::uint16_t queue, VportId ingress,
                                const wire::Frame& frame) {
    const std::size_t length = wire::wire_length(frame);
    if (length > flow::kFrameLengthMax || !read_payload(frame, memory_, scratch_, faults_)) return;
    const ByteSpan place = domain.eswitch.pipeline()->captured().push(queue, ingress, length);
    if (!place.empty()) wire::write_frame(frame, scratch_, place);
}

void Switchboard::send(TapPoint to, wire::Frame& frame, Instant now, int hops) {
    if (to.is_port) return transmit(to.index, frame, now, hops);
    End& vport = vports_[to.index];
    if (vport.tapped) host_.captured(to, frame, true);
    sink_.deliver(to.index, frame, now);
}

void Switchboard::transmit(std::uint32_t port, wire::Frame& frame, Instant now, int hops) {
    End& end = ports_[port];
    if (end.uplink != nullptr) return transmit_by_uplink(port, frame, now);
    if (end.outgoing == nullptr) {
        ++end.counters.dropped;
        return;
    }
    const std::size_t length = wire::wire_length(frame);
    ++end.counters.tx_frames;
    end.counters.tx_bytes += length;
    if (end.tapped) host_.captured({true, port}, frame, false);
    if (end.outgoing->is_direct()) {
        end.outgoing->count_direct(length);
        receive(end.far_port, frame, now, hops + 1);
        return;
    }
    end.outgoing->handle_frame(frame, now);
    // What the cable does not delay arrives at once, as it does when nothing is to be done to it.
    drain(end.far_port, now, hops + 1, 8);
}

// --- Uplinks

void Switchboard::transmit_by_uplink(std::uint32_t port, const wire::Frame& frame, Instant now) {
    End& end = ports_[port];
    const std::size_t length = wire::wire_length(frame);
    ++end.counters.tx_frames;
    end.counters.tx_bytes += length;
    if (end.tapped) host_.captured({true, port}, frame, false);
    if (end.outgoing->is_direct()) {
        end.outgoing->count_direct(length);
        queue_for_uplink(end, frame);
    } else {
        end.outgoing->handle_frame(frame, now);
        drain_to_uplink(end, now, 8);
    }
}

void Switchboard::queue_for_uplink(End& end, const wire::Frame& frame) {
    must_send_ = true;
    if (!end.is_up || !end.uplink->add(frame, faults_)) ++end.counters.dropped;
}

std::size_t Switchboard::drain_to_uplink(End& end, Instant now, std::size_t budget) {
    wire::Frame frame;
    std::size_t count = 0;
    while (count < budget && end.outgoing->poll_frame(now, frame, end.counters.dropped)) {
        ++count;
        queue_for_uplink(end, frame);
    }
    return count;
}

void Switchboard::send_uplinks() {
    must_send_ = false;
    for (const std::uint32_t port : uplinks_) {
        UplinkQueue& queue = *ports_[port].uplink;
        if (queue.is_empty()) continue;
        const bool was_blocked = queue.is_blocked();
        queue.seal(faults_);
        if (!was_blocked) send_uplink(port);
    }
}

void Switchboard::send_uplink(std::uint32_t port) {
    UplinkQueue& queue = *ports_[port].uplink;
    queue.pop(host_.send_by_uplink(port, queue.bursts()));
}

void Switchboard::resume_uplink(std::uint32_t port) {
    if (ports_[port].uplink->is_blocked()) send_uplink(port);
}

void Switchboard::handle_uplink(std::uint32_t port, ByteView bytes, std::uint32_t segment_length,
                                Instant now) {
    const wire::PayloadSegment place{kCardSpace, static_cast<std::uint32_t>(bytes.size()),
                                     reinterpret_cast<std::uintptr_t>(bytes.data())};
    PortCounters& counters = ports_[port].counters;
    wire::Frame frame;
    if (segment_length == 0) {
        if (wire::parse_frame(bytes, place, frame) == wire::ParseError::kNone)
            receive_from_uplink(port, frame, now);
        else
            ++counters.malformed;
        return;
    }
    for (std::uint32_t index = 0;; ++index) {
        const auto error = wire::parse_burst(bytes, segment_length, index, place, frame);
        if (!error) return;
        if (*error == wire::ParseError::kNone)
            receive_from_uplink(port, frame, now);
        else
            ++counters.malformed;
    }
}

void Switchboard::receive_from_uplink(std::uint32_t port, wire::Frame& frame, Instant now) {
    End& end = ports_[port];
    if (end.incoming->is_direct()) {
        end.incoming->count_direct(wire::wire_length(frame));
        receive(port, frame, now, 0);
    } else {
        end.incoming->handle_frame(frame, now);
        drain(port, now, 0, 8);
    }
}

const Switchboard::End* Switchboard::uplink_of(std::uint32_t function) const {
    for (const std::uint32_t port : uplinks_)
        if (ports_[port].domain == vports_[function].domain) return &ports_[port];
    return nullptr;
}

bool Switchboard::is_up(std::uint32_t function) const {
    const End* const end = uplink_of(function);
    return end == nullptr || end->is_up;
}

bool Switchboard::is_blocked(std::uint32_t function) const {
    if (uplinks_.empty()) return false;
    const End* const end = uplink_of(function);
    return end != nullptr && end->uplink->is_blocked();
}

void Switchboard::receive(std::uint32_t port, wire::Frame& frame, Instant now, int hops) {
    End& end = ports_[port];
    ++end.counters.rx_frames;
    end.counters.rx_bytes += wire::wire_length(frame);
    if (end.tapped) host_.captured({true, port}, frame, true);
    forward(end, frame, now, hops);
}

std::size_t Switchboard::drain(std::uint32_t port, Instant now, int hops, std::size_t budget) {
    End& end = ports_[port];
    wire::Frame frame;
    std::size_t count = 0;
    while (count < budget && end.incoming->poll_frame(now, frame, end.counters.dropped)) {
        ++count;
        receive(port, frame, now, hops);
    }
    return count;
}

std::size_t Switchboard::deliver_due(Instant now, std::size_t budget) {
    std::size_t count = 0;
    for (std::uint32_t port = 0; port < ports_.size() && count < budget; ++port) {
        if (ports_[port].incoming == nullptr) continue;
        if (ports_[port].incoming->next_deadline() > now) continue;
        count += drain(port, now, 0, budget - count);
    }
    for (const std::uint32_t port : uplinks_) {
        if (ports_[port].outgoing->next_deadline() > now || count >= budget) continue;
        count += drain_to_uplink(ports_[port], now, budget - count);
    }
    return count;
}

Instant Switchboard::next_deadline() const {
    Instant deadline = Instant::never();
    for (const auto& cable : cables_) {
        deadline =
            std::min({deadline, cable->a_to_b.next_deadline(), cable->b_to_a.next_deadline()});
    }
    return deadline;
}

Status Switchboard::set_impairments(const std::string& name, std::optional<bool> a_to_b,
                                    const Impairments& impairments) {
    for (const auto& cable : cables_) {
        if (cable->name != name) continue;
        if (a_to_b.value_or(true)) cable->a_to_b.set_impairments(impairments);
        if (!a_to_b.value_or(false)) cable->b_to_a.set_impairments(impairments);
        return {};
    }
    return Error{ENOENT, "no cable named \"" + name + "\""};
}

void Switchboard::set_tap(TapPoint point, bool on) {
    (point.is_port ? ports_ : vports_)[point.index].tapped = on;
}

PortCounters Switchboard::vport_counters(std::uint32_t function) const {
    const End& vport = vports_[function];
    const flow::PortCounters& counters = domains_[vport.domain].eswitch.counters(vport.vport);
    return {.tx_frames = counters.ingress_frames,
            .tx_bytes = counters.ingress_bytes,
            .rx_frames = counters.egress_frames,
            .rx_bytes = counters.egress_bytes,
            .dropped = counters.dropped};
}

Rate Switchboard::rate_of(std::uint32_t function) const {
    const auto port = std::find_if(ports_.begin(), ports_.end(), [&](const End& end) {
        return end.domain == vports_[function].domain && end.outgoing != nullptr;
    });
    return port == ports_.end() ? Rate{} : port->outgoing->impairments().rate;
}

}  // namespace rdmalab::card
