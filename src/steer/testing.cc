#include "steer/testing.h"

#include "wire/headers.h"
#include "wire/icrc.h"

namespace rdmalab::steer::testing {

namespace {

constexpr std::size_t kFrameMax = 5000;
constexpr std::uint8_t kEct0 = 0x02;

wire::Path path_of(const Addresses& addresses, std::uint8_t tos) {
    wire::Path path;
    path.source_mac = *MacAddress::parse("02:00:00:00:00:01");
    path.destination_mac = *MacAddress::parse("02:00:00:00:00:02");
    path.source = Gid::from_ipv4(addresses.source);
    path.destination = Gid::from_ipv4(addresses.destination);
    path.traffic_class = tos;
    return path;
}

Bytes written(wire::Frame& frame, const Bytes& payload) {
    if (!payload.empty()) {
        frame.add_segment({kCardSpace, static_cast<std::uint32_t>(payload.size()),
                           reinterpret_cast<std::uint64_t>(payload.data())});
    }
    wire::finish_roce(frame);
    Bytes bytes(kFrameMax);
    bytes.resize(wire::write_frame(frame, payload, bytes));
    return bytes;
}

}  // namespace

Bytes cm_frame(const Addresses& addresses, const wire::CmMessage& message) {
    wire::Frame frame;
    const auto* info = wire::find_opcode(
        wire::opcode_value(wire::Service::kUd, wire::PacketKind::kSend, wire::Position::kOnly));
    wire::start_roce(frame, wire::make_lower_template(path_of(addresses, kEct0)), *info);
    auto* bth = wire::header_at<wire::Bth>(frame, frame.bth_offset);
    bth->destination_qp = wire::kGsiQpn.value;
    auto* deth = wire::header_at<wire::Deth>(frame, frame.bth_offset + sizeof(wire::Bth));
    deth->qkey = wire::kGsiQkey;
    deth->source_qp = wire::kGsiQpn.value;
    Bytes mad(wire::kMadLength);
    wire::emit_cm(message, std::span<std::byte, wire::kMadLength>(mad));
    return written(frame, mad);
}

wire::ReqMessage request(std::uint32_t comm_id, Qpn sender) {
    wire::ReqMessage message;
    message.transaction_id = comm_id;
    message.local_comm_id = comm_id;
    message.service_id = wire::ip_service_id(0x0106, 18515);
    message.qpn = sender;
    return message;
}

wire::RepMessage reply(std::uint32_t comm_id, std::uint32_t receiver_comm_id, Qpn receiver) {
    wire::RepMessage message;
    message.transaction_id = comm_id;
    message.local_comm_id = receiver_comm_id;
    message.remote_comm_id = comm_id;
    message.qpn = receiver;
    return message;
}

Bytes write_frame(const Addresses& addresses, Qpn destination, std::size_t payload,
                  std::uint8_t tos) {
    wire::Frame frame;
    const auto* info = wire::find_opcode(
        wire::opcode_value(wire::Service::kRc, wire::PacketKind::kWrite, wire::Position::kMiddle));
    wire::start_roce(frame, wire::make_lower_template(path_of(addresses, tos)), *info);
    wire::header_at<wire::Bth>(frame, frame.bth_offset)->destination_qp = destination.value;
    return written(frame, Bytes(payload, std::byte{0x5a}));
}

Bytes cnp_frame(const Addresses& addresses, Qpn destination) {
    wire::Frame frame;
    wire::emit_cnp(frame, wire::make_lower_template(path_of(addresses, kEct0)), destination);
    Bytes bytes(kFrameMax);
    bytes.resize(wire::write_frame(frame, Bytes(16), bytes));
    return bytes;
}

Bytes arp_frame() {
    Bytes bytes(60, std::byte{0});
    auto* ethernet = reinterpret_cast<wire::EthernetHeader*>(bytes.data());
    ethernet->destination = MacAddress::broadcast().bytes;
    ethernet->source = MacAddress::parse("02:00:00:00:00:01")->bytes;
    ethernet->type = wire::kEtherTypeArp;
    return bytes;
}

}  // namespace rdmalab::steer::testing
