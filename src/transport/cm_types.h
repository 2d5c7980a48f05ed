// The vocabulary of the connection manager: what its user asks for and what it gets back.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/ids.h"
#include "base/limits.h"
#include "base/units.h"
#include "wire/mad.h"

namespace rdmalab::transport {

using CmConnId = StrongId<struct CmConnIdTag>;          // one connection of one Cm
using CmListenerId = StrongId<struct CmListenerIdTag>;  // chosen by the user of the Cm

// Times of the standard: 4.096 us * 2^exponent.
constexpr Duration cm_time(std::uint8_t exponent) {
    return nanoseconds(std::int64_t{4096} << exponent);
}

struct CmConfig {
    MacAddress mac;
    std::vector<Gid> gids;  // what is sent to others is not for us
    // The MAC of a neighbour. Where it is known it is preferred to the source MAC of a frame, which
    // no CRC of the packet covers.
    std::function<std::optional<MacAddress>(const Gid&)> find_mac = nullptr;
    std::uint64_t ca_guid = 0;
    std::uint8_t path_mtu = 5;      // code of the port's MTU: 1..5 for 256..4096
    std::uint8_t packet_rate = 16;  // code of the port's rate (16: 100 Gb/s)
    std::uint64_t seed = 1;         // communication ids, transaction ids, PSNs
    // Exponents of cm_time. A card answers within a round, so half a second tells loss from
    // slowness of the program behind it, which an MRA announces.
    std::uint8_t response_timeout = 17;  // 0.54 s
    std::uint8_t service_timeout = 22;   // 17 s: what an MRA asks for
    std::uint8_t packet_life_time = 13;  // 34 ms; a QP's ACK timeout is one more: 67 ms
    std::uint8_t max_retries = 15;
    std::uint32_t connection_max = limits::kCmConnectionMax;
};

// Connection services of a REQ.
enum class CmQpService : std::uint8_t { kRc, kUc, kXrc };

struct CmQpParameters {
    Qpn qpn;
    std::uint8_t responder_resources = 0, initiator_depth = 0;
    std::uint8_t retry_count = 0, rnr_retry_count = 0;  // 0..7
    bool flow_control = false, srq = false;
};

// Where a message goes. The destination MAC was resolved by the user.
struct CmRoute {
    Gid local, peer;  // GIDs: they stand in the IP header
    MacAddress peer_mac;
    std::uint8_t traffic_class = 0;
};

struct CmConnect {
    CmRoute route;
    std::uint64_t service_id = 0;
    wire::IpCmHeader ip;  // addresses as the application knows them
    CmQpService service = CmQpService::kRc;
    CmQpParameters qp;
    std::uint8_t ack_timeout = 0;  // exponent; 0: one more than the packet life time
    wire::Ece ece;
    std::span<const std::uint8_t> private_data;  // at most 56 bytes
};

// Asks for the QP that serves a service (SIDR).
struct CmServiceQuery {
    CmRoute route;
    std::uint64_t service_id = 0;
    wire::IpCmHeader ip;
    std::span<const std::uint8_t> private_data;  // at most 180 bytes
};

struct CmAccept {
    CmQpParameters qp;
    std::uint32_t qkey = 0;  // answer to a service query
    wire::Ece ece;
    std::span<const std::uint8_t> private_data;  // at most 196 bytes; service query: 136
};

struct CmReject {
    std::uint16_t reason = static_cast<std::uint16_t>(wire::RejectReason::kConsumer);
    std::span<const std::uint8_t> private_data;  // at most 148 bytes; service query: 136
};

// A listener gets requests for its service id whose destination address fits. An exact address goes
// before a wildcard.
struct CmListen {
    std::uint64_t service_id = 0;
    std::optional<Gid> address =
        std::nullopt;  // of the application (127.0.0.1, say); none: wildcard
    bool takes_ipv4 = true, takes_ipv6 = true;
};

enum class CmEventKind : std::uint8_t {
    kRequest,         // a REQ for a listener: `connection` is new
    kReply,           // REP: QP numbers and parameters are known, establish() comes next
    kEstablished,     // RTU, or notify_established()
    kRejected,        // `status` is the reason
    kUnreachable,     // retries are used up (status -ETIMEDOUT)
    kDisconnected,    // DREQ or DREP, or the peer is gone
    kTimewaitExit,    // nothing of the connection can be under way any more
    kServiceRequest,  // a SIDR_REQ for a listener
    kServiceReply,    // `status` is a SidrStatus; with 0 `qp.qpn` and `qkey` hold
};

struct CmEvent {
    CmEventKind kind{};
    CmConnId connection;
    CmListenerId listener;  // kRequest, kServiceRequest
    int status = 0;
    // kRequest, kServiceRequest:
    std::uint64_t service_id = 0;
    wire::IpCmHeader ip;
    CmRoute route;
    CmQpService service = CmQpService::kRc;
    // kRequest, kReply: as the receiver has to use them (the peer's initiator depth is
    // responder_resources here)
    CmQpParameters qp;
    std::uint32_t qkey = 0;
    wire::Ece ece;
    std::vector<std::uint8_t> private_data;  // full length of the message's field
};

// What the QP of a connection needs for its state changes.
struct CmQpFacts {
    bool is_connected = false;  // remote values are known
    CmQpService service = CmQpService::kRc;
    CmRoute route;
    Qpn remote_qpn;
    Psn receive_psn, send_psn;
    std::uint8_t path_mtu = 0;  // code
    std::uint8_t responder_resources = 0, initiator_depth = 0;
    std::uint8_t ack_timeout = 0, retry_count = 0, rnr_retry_count = 0;
};

struct CmCounters {
    std::uint64_t tx_mads = 0, rx_mads = 0, retransmitted = 0, duplicates = 0;
    std::uint64_t misdirected = 0;   // to a GID that is not ours
    std::uint64_t malformed = 0;     // not a MAD of QP 1, or not one of communication management
    std::uint64_t unmatched = 0;     // for no connection of ours
    std::uint64_t out_of_state = 0;  // for one that does not expect it
};

}  // namespace rdmalab::transport
