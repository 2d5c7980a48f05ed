// Which path a sender's QP is the probe of, learnt from the connection management packets that
// pass.
//
// A REQ goes from a sender to the receiver's address and carries the sender's QPN: the address
// names the path. A REP comes back with the receiver's QPN and repeats the REQ's communication id:
// with it the pair is known, and the notifications that the receiver sends to this QP can be
// counted. DREQ and DREP end a connection. REQ and REP are repeated when an answer is late; a
// repetition says nothing new.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "wire/mad.h"

namespace rdmalab::steer {

inline constexpr std::size_t kCmConnectionMax = 256;

// A connection management packet as it was seen: addresses of the IP header, and the message.
struct CmPacket {
    std::uint32_t source_ip = 0, destination_ip = 0;
    wire::CmMessage message;
};
// Nothing when the frame is something else: not UD to QP 1 over IPv4, another class of MAD, broken.
std::optional<CmPacket> parse_cm_packet(ByteView frame);

struct CmConnection {
    std::uint32_t sender_ip = 0, receiver_ip = 0;
    std::uint32_t comm_id = 0;  // the sender's
    Qpn sender;
    std::uint32_t path = 0;
    std::optional<Qpn> receiver{};  // once a REP was seen
    std::uint32_t receiver_comm_id = 0;
};

// What a packet has changed.
struct CmChange {
    enum class Kind : std::uint8_t { kNothing, kGrouped, kMapped, kEnded };
    Kind kind = Kind::kNothing;
    CmConnection connection;
};

class CmTable {
public:
    // `receiver_ips[k]` is the address of path k's probe receiver, host byte order.
    explicit CmTable(std::vector<std::uint32_t> receiver_ips)
        : receiver_ips_(std::move(receiver_ips)) {}

    CmChange handle(const CmPacket& packet);
    // Learns a QP from a packet that came back to it from `receiver_ip`: of releases that cannot
    // tell CM packets apart, and of connections that were there before the program.
    CmChange learn_from_feedback(Qpn sender, std::uint32_t sender_ip, std::uint32_t receiver_ip);

    std::optional<std::uint32_t> path_of(Qpn sender) const;
    std::optional<std::uint32_t> path_of_receiver(std::uint32_t ip) const;
    const std::vector<CmConnection>& connections() const { return connections_; }

private:
    CmChange handle_request(const CmPacket& packet, const wire::ReqMessage& request);
    CmChange handle_reply(const CmPacket& packet, const wire::RepMessage& reply);
    CmChange handle_end(std::uint32_t local_comm_id, std::uint32_t remote_comm_id);
    CmChange add(CmConnection connection);

    std::vector<std::uint32_t> receiver_ips_;
    std::vector<CmConnection> connections_;  // in the order they were seen
};

}  // namespace rdmalab::steer
