#include "steer/cm_table.h"

#include <algorithm>

#include "wire/headers.h"

namespace rdmalab::steer {

std::optional<CmPacket> parse_cm_packet(ByteView bytes) {
    wire::Frame frame;
    const wire::PayloadSegment where{kCardSpace, 0, reinterpret_cast<std::uint64_t>(bytes.data())};
    if (wire::parse_frame(bytes, where, frame) != wire::ParseError::kNone) return std::nullopt;
    if (!wire::is_roce(frame) || !wire::destination_gid(frame).is_ipv4()) return std::nullopt;
    const auto* bth = wire::header_at<wire::Bth>(frame, frame.bth_offset);
    if (Qpn{bth->destination_qp} != wire::kGsiQpn || frame.segment_count != 1) return std::nullopt;
    const std::size_t offset = frame.segments[0].address - where.address;
    CmPacket packet;
    packet.source_ip = wire::source_gid(frame).ipv4();
    packet.destination_ip = wire::destination_gid(frame).ipv4();
    const ByteView mad = bytes.subspan(offset, frame.payload_length);
    if (wire::parse_cm(mad, packet.message) != wire::MadError::kNone) return std::nullopt;
    return packet;
}

CmChange CmTable::handle(const CmPacket& packet) {
    if (const auto* request = std::get_if<wire::ReqMessage>(&packet.message)) {
        return handle_request(packet, *request);
    }
    if (const auto* reply = std::get_if<wire::RepMessage>(&packet.message)) {
        return handle_reply(packet, *reply);
    }
    if (const auto* end = std::get_if<wire::DreqMessage>(&packet.message)) {
        return handle_end(end->local_comm_id, end->remote_comm_id);
    }
    if (const auto* end = std::get_if<wire::DrepMessage>(&packet.message)) {
        return handle_end(end->local_comm_id, end->remote_comm_id);
    }
    return {};
}

CmChange CmTable::handle_request(const CmPacket& packet, const wire::ReqMessage& request) {
    const std::optional<std::uint32_t> path = path_of_receiver(packet.destination_ip);
    if (!path) return {};
    for (const CmConnection& known : connections_) {
        if (known.sender == request.qpn && known.comm_id == request.local_comm_id &&
            known.receiver_ip == packet.destination_ip) {
            return {};
        }
    }
    return add({.sender_ip = packet.source_ip,
                .receiver_ip = packet.destination_ip,
                .comm_id = request.local_comm_id,
                .sender = request.qpn,
                .path = *path});
}

CmChange CmTable::handle_reply(const CmPacket& packet, const wire::RepMessage& reply) {
    for (CmConnection& known : connections_) {
        if (known.comm_id != reply.remote_comm_id || known.sender_ip != packet.destination_ip ||
            known.receiver_ip != packet.source_ip) {
            continue;
        }
        if (known.receiver == reply.qpn) return {};
        known.receiver = reply.qpn;
        known.receiver_comm_id = reply.local_comm_id;
        return {CmChange::Kind::kMapped, known};
    }
    return {};
}

CmChange CmTable::handle_end(std::uint32_t local_comm_id, std::uint32_t remote_comm_id) {
    auto found = std::ranges::find_if(connections_, [&](const CmConnection& known) {
        if (!known.receiver) return false;
        const bool by_sender =
            known.comm_id == local_comm_id && known.receiver_comm_id == remote_comm_id;
        const bool by_receiver =
            known.comm_id == remote_comm_id && known.receiver_comm_id == local_comm_id;
        return by_sender || by_receiver;
    });
    if (found == connections_.end()) return {};
    CmChange change{CmChange::Kind::kEnded, *found};
    connections_.erase(found);
    return change;
}

CmChange CmTable::learn_from_feedback(Qpn sender, std::uint32_t sender_ip,
                                      std::uint32_t receiver_ip) {
    const std::optional<std::uint32_t> path = path_of_receiver(receiver_ip);
    if (!path || sender == wire::kGsiQpn || path_of(sender) == path) return {};
    return add(
        {.sender_ip = sender_ip, .receiver_ip = receiver_ip, .sender = sender, .path = *path});
}

CmChange CmTable::add(CmConnection connection) {
    // A QPN that is used again belongs to its new connection only.
    std::erase_if(connections_, [&](const CmConnection& known) {
        return known.sender == connection.sender && known.sender_ip == connection.sender_ip;
    });
    if (connections_.size() == kCmConnectionMax) connections_.erase(connections_.begin());
    connections_.push_back(connection);
    return {CmChange::Kind::kGrouped, connection};
}

std::optional<std::uint32_t> CmTable::path_of(Qpn sender) const {
    for (auto known = connections_.rbegin(); known != connections_.rend(); ++known) {
        if (known->sender == sender) return known->path;
    }
    return std::nullopt;
}

std::optional<std::uint32_t> CmTable::path_of_receiver(std::uint32_t ip) const {
    auto found = std::ranges::find(receiver_ips_, ip);
    if (found == receiver_ips_.end()) return std::nullopt;
    return static_cast<std::uint32_t>(found - receiver_ips_.begin());
}

}  // namespace rdmalab::steer
