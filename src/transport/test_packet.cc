#include "transport/test_packet.h"

#include <algorithm>

namespace rdmalab::transport {

Packet::Packet(const Bench& bench, const Host& to, Qpn destination, wire::Service service,
               wire::PacketKind kind, wire::Position position, bool immediate, bool invalidate) {
    const Host& from = &to == &bench.a ? bench.b : bench.a;
    wire::Path path;
    path.source_mac = from.mac;
    path.destination_mac = to.mac;
    path.source = from.gid;
    path.destination = to.gid;
    path.traffic_class = wire::kEcnEct0;
    const std::uint8_t opcode =
        kind == wire::PacketKind::kCnp
            ? wire::kOpcodeCnp
            : wire::opcode_value(service, kind, position, immediate, invalidate);
    wire::start_roce(frame_, wire::make_lower_template(path), *wire::find_opcode(opcode));
    wire::header_at<wire::Bth>(frame_, frame_.bth_offset)->destination_qp = destination.value;
    wire::finish_roce(frame_);
}

Packet& Packet::psn(std::uint32_t value) {
    wire::header_at<wire::Bth>(frame_, frame_.bth_offset)->psn = value & Psn::kMask;
    return *this;
}

Packet& Packet::asking_ack() {
    wire::header_at<wire::Bth>(frame_, frame_.bth_offset)->ack_request = 0x80;
    return *this;
}

Packet& Packet::reth(std::uint64_t address, Rkey rkey, std::uint32_t length) {
    *extension<wire::Reth>() = {address, rkey.value, length};
    return *this;
}

Packet& Packet::atomic(std::uint64_t address, Rkey rkey, std::uint64_t swap_or_add,
                       std::uint64_t compare) {
    *extension<wire::AtomicEth>() = {address, rkey.value, swap_or_add, compare};
    return *this;
}

Packet& Packet::aeth(std::uint8_t syndrome) {
    extension<wire::Aeth>()->syndrome = syndrome;
    return *this;
}

Packet& Packet::deth(std::uint32_t qkey, Qpn source) {
    extension<wire::Deth>()->qkey = qkey;
    extension<wire::Deth>()->source_qp = source.value;
    return *this;
}

Packet& Packet::xrceth(SrqId srq) {
    extension<wire::Xrceth>()->srq = srq.value;
    xrceth_length_ = sizeof(wire::Xrceth);
    return *this;
}

Packet& Packet::invalidating(Rkey rkey) {
    extension<wire::Ieth>()->rkey = rkey.value;
    return *this;
}

Packet& Packet::payload(const Host::Region& region, std::size_t offset, std::uint32_t length) {
    frame_.add_segment({Host::kSpace, length, region.address(offset)});
    wire::finish_roce(frame_);
    return *this;
}

Packet& Packet::pkey(std::uint16_t value) {
    wire::header_at<wire::Bth>(frame_, frame_.bth_offset)->pkey = value;
    return *this;
}

Packet& Packet::marked() {
    wire::set_ecn(frame_, wire::kEcnCe);
    return *this;
}

wire::Frame Packet::frame() const { return frame_; }

Seen look_at(const wire::Frame& frame, Instant now) {
    const auto& bth = *wire::header_at<wire::Bth>(frame, frame.bth_offset);
    const wire::OpcodeInfo& info = *wire::find_opcode(bth.opcode);
    const std::size_t behind = frame.bth_offset + sizeof(wire::Bth);
    Seen seen;
    seen.name = info.name;
    seen.psn = bth.psn;
    seen.destination = Qpn{bth.destination_qp};
    seen.asks_ack = bth.wants_ack();
    seen.is_solicited = bth.solicited();
    seen.payload = frame.payload_length;
    seen.traffic_class = wire::traffic_class(frame);
    seen.source_port = wire::header_at<wire::UdpHeader>(frame, frame.l4_offset)->source_port;
    seen.at = now;
    if ((info.extensions & wire::kHasAeth) != 0) {
        seen.syndrome = wire::header_at<wire::Aeth>(frame, behind)->syndrome;
        seen.msn = wire::header_at<wire::Aeth>(frame, behind)->msn;
    }
    if (info.kind == wire::PacketKind::kReadRequest)
        seen.read_length = wire::header_at<wire::Reth>(frame, behind)->length;
    return seen;
}

Wiretap::Wiretap(Bench& bench, bool passes) {
    bench.fate = [this, &bench, passes](const wire::Frame& frame) {
        seen_.push_back(look_at(frame, bench.now));
        Fate fate;
        fate.is_lost = !passes;
        return fate;
    };
}

std::vector<std::string> Wiretap::names() const {
    std::vector<std::string> names;
    for (const Seen& seen : seen_) names.push_back(seen.name);
    return names;
}

std::size_t Wiretap::count(std::string_view name) const {
    return static_cast<std::size_t>(
        std::count_if(seen_.begin(), seen_.end(), [&](const Seen& s) { return s.name == name; }));
}

}  // namespace rdmalab::transport
