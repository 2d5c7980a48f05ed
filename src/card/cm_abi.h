// The contract between the card's connection manager and its clients (librdmacm). It rides on the
// same socket and the same RequestHeader/ReplyHeader as ring_abi.h; the op numbers are CmOp.
//
// ## Session
// A process opens one connection to the card's SOCK_SEQPACKET socket and sends CmOp::kOpen as its
// first request. That turns the connection into a *CM session*: requests and replies, one
// outstanding. Closing it, or the end of the process, destroys all ids of the session on behalf of
// their owner: ports are free at once, and each peer gets the message of the standard for the state
// its connection was in (REJ before it was established, DREQ after). After fork the child opens a
// session of its own. Verbs objects are not part of a session: the client opens a context of the
// device that an id was bound to (`device` is DeviceInfo::index) and tells the card the QP number.
//
// ## Channels and events
// A channel is a pipe made by the card; the reply to kCreateChannel carries its read end (blocking;
// the client may set O_NONBLOCK). It delivers whole CmEventRecords in order, each written at once
// (a record is smaller than PIPE_BUF). A client that reads sizeof(CmEventRecord) bytes gets exactly
// one. What does not fit into the pipe waits in the card.
//
// The card counts the records sent for an id. `events_read` of kDestroyId says how many of them the
// client has read; if some are still unread the card takes them back out of the pipe. The reply's
// `events_reported` is the number of records that did reach the client, so that rdma_destroy_id(3)
// can wait for their acknowledgement. A CONNECT_REQUEST counts for the listening id. kMigrateId
// moves unread records to the new channel, and its reply has the same meaning.
//
// ## A new connection
// CONNECT_REQUEST carries the handle of a new id (`new_id`), already bound to its device, with its
// addresses. The client must call kAdopt as soon as it has read the record: it gives the id's
// cookie and its channel, and frees one place in the listener's backlog (a request that finds the
// backlog full is dropped; the peer repeats it). Events of an id that is not adopted yet wait until
// it is. A listener that is destroyed takes the ids with it whose CONNECT_REQUEST nobody has read.
//
// ## Order of calls, as with rdma_cm
// active:  kCreateId [kBind] kResolveAddr -> ADDR_RESOLVED; kResolveRoute -> ROUTE_RESOLVED;
//          kInitQpAttr(INIT); kConnect -> CONNECT_RESPONSE (always: the client's library moves the
//          QP with kInitQpAttr(INIT, RTR, RTS), calls kEstablish, and may then show ESTABLISHED)
// passive: kCreateId kBind kListen -> CONNECT_REQUEST; kAdopt; kInitQpAttr(INIT, RTR, RTS);
//          kAccept -> ESTABLISHED
// both:    kDisconnect -> DISCONNECTED, later TIMEWAIT_EXIT. The card answers a DREQ at once by
//          itself; kDisconnect of a connection that is not established succeeds and does nothing.
// UD:      kConnect -> ESTABLISHED with CmUdParam (or UNREACHABLE with the SIDR status); kAccept
//          answers the request and raises no event.
// An op in the wrong state answers EINVAL.
//
// ## Which device
// * A local address picks the device that has it among its GIDs. 127.0.0.0/8 and ::1 pick the
//   *loopback device*: the first device (by index) visible to the session that has an address of
//   that family (for ::1 the link-local one will do). This holds for bind and for the source. As a
//   destination they name this host: the loopback device is then sought among all devices of the
//   client's network namespace, so a client that restricts itself to another device crosses over.
// * A wildcard listener listens on all devices visible to the session.
// * Destination: the device that owns the address, anywhere on the card. Without a bound source the
//   source is the destination's own device if that is visible to the session (what Linux does with
//   an address of its own: true loopback, source address = destination address); else the first
//   visible device with an address of the family. A link-local destination is reached from the
//   link-local address; scope ids are ignored, since the addresses are unique within a card.
// * Visible are the devices of the process's network namespace (all of them without --netns),
//   further restricted by CmOpenRequest::devices. Ports are shared by all sessions of a namespace.
// * EADDRNOTAVAIL answers a local address that no visible device has; an ADDR_ERROR event with
//   -EHOSTUNREACH a destination that no device has. The text names the address, its owner and the
//   candidates.
#pragma once

#include "card/ring_abi.h"

namespace rdmalab::abi {

// Values of RequestHeader::op; kept apart from enum Op, whose switch statements need not know them.
enum class CmOp : std::uint32_t {
    kOpen = 64,       // CmOpenRequest -> CmOpenReply
    kCreateChannel,   // -> HandleReply and the read end of the pipe
    kDestroyChannel,  // HandleRequest; EBUSY while ids use it
    kCreateId,        // CmCreateIdRequest -> HandleReply
    kDestroyId,       // CmDestroyIdRequest -> CmEventsReply
    kAdopt,           // CmAdoptRequest
    kBind,            // CmBindRequest -> CmIdInfo
    kResolveAddr,     // CmResolveAddrRequest -> CmIdInfo; event ADDR_RESOLVED or ADDR_ERROR
    kResolveRoute,    // CmResolveRouteRequest; event ROUTE_RESOLVED or ROUTE_ERROR
    kListen,          // CmListenRequest -> CmIdInfo (an unbound id is bound to 0.0.0.0:ephemeral)
    kConnect,         // CmConnectRequest
    kAccept,          // CmConnectRequest
    kReject,          // CmRejectRequest
    kEstablish,       // HandleRequest: sends the RTU
    kDisconnect,      // HandleRequest
    kNotify,          // CmNotifyRequest
    kInitQpAttr,      // CmInitQpAttrRequest -> CmInitQpAttrReply
    kJoinMcast,       // CmJoinMcastRequest -> HandleReply; event MULTICAST_JOIN or MULTICAST_ERROR
    kLeaveMcast,      // CmLeaveMcastRequest -> CmEventsReply (MULTICAST_* records of this join)
    kMigrateId,       // CmMigrateRequest -> CmEventsReply
    kSetOption,       // CmSetOptionRequest
    kQuery,           // HandleRequest -> CmIdInfo
};
inline constexpr std::uint32_t kCmOpFirst = 64, kCmOpLast = 85;
constexpr bool is_cm_op(std::uint32_t op) { return op >= kCmOpFirst && op <= kCmOpLast; }

inline constexpr std::uint32_t kCmNone = 0xffff'ffff;  // no id, no device, no channel

// Values as in rdma/rdma_cma.h, so that the client passes them through.
inline constexpr std::uint16_t kPortSpaceIpoib = 0x0002, kPortSpaceTcp = 0x0106,
                               kPortSpaceUdp = 0x0111, kPortSpaceIb = 0x013f;
inline constexpr std::uint32_t kRdmaUdpQkey = 0x0123'4567;
enum class CmEventType : std::uint32_t {  // enum rdma_cm_event_type
    kAddrResolved,
    kAddrError,
    kRouteResolved,
    kRouteError,
    kConnectRequest,
    kConnectResponse,
    kConnectError,
    kUnreachable,
    kRejected,
    kEstablished,
    kDisconnected,
    kDeviceRemoval,
    kMulticastJoin,
    kMulticastError,
    kAddrChange,
    kTimewaitExit,
};

// Private data that an application may send, in bytes. What arrives has always the full length,
// padded with zeros, as on any InfiniBand or RoCE adapter.
inline constexpr std::size_t kCmConnectData = 56;     // REQ, behind the 36 bytes of the IP header
inline constexpr std::size_t kCmAcceptData = 196;     // REP
inline constexpr std::size_t kCmRejectData = 148;     // REJ
inline constexpr std::size_t kCmUdConnectData = 180;  // SIDR_REQ, behind the IP header
inline constexpr std::size_t kCmUdAcceptData = 136;   // SIDR_REP, for accept and reject
inline constexpr std::size_t kCmPrivateDataMax = 224;

inline constexpr std::uint16_t kCmRejectConsumer = 28;      // rdma_reject
inline constexpr std::uint16_t kCmRejectVendorOption = 35;  // rdma_reject_ece

// An IPv4 or IPv6 socket address. `family` is AF_INET (2) or AF_INET6 (10), 0 for none. The address
// is in network order; IPv4 as ::ffff:a.b.c.d (0.0.0.0 too). `port` is in host order.
struct CmAddress {
    std::uint16_t family;
    std::uint16_t port;
    std::uint32_t scope_id;
    std::uint8_t address[16];
};
static_assert(sizeof(CmAddress) == 24);

struct CmEce {
    std::uint32_t vendor_id;  // 24 bits on the wire
    std::uint32_t options;    // attr_mod
};

struct CmConnParam {
    std::uint32_t qp_num;
    std::uint32_t qkey;  // UD accept: 0 stands for kRdmaUdpQkey
    std::uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count,
        srq;
    // enum ibv_qp_type of the QP, 0: that of the id. An id of the TCP port space may get a UC QP.
    std::uint8_t qp_type = 0;
    std::uint8_t reserved = 0;
};
struct CmUdParam {
    std::uint32_t qp_num, qkey;
    AhAttributes ah;
};
struct CmPrivateData {
    std::uint32_t length;
    std::uint8_t bytes[kCmPrivateDataMax];
};

struct CmEventRecord {
    std::uint64_t cookie;     // of `id`
    std::uint64_t mc_cookie;  // MULTICAST_JOIN, MULTICAST_ERROR: of the join
    std::uint32_t id;         // CONNECT_REQUEST: the listening id
    std::uint32_t new_id;     // CONNECT_REQUEST; else kCmNone
    CmEventType type;
    std::int32_t status;    // 0; negative errno; REJECTED: reason; UD UNREACHABLE: SIDR status
    std::uint32_t device;   // of the id (CONNECT_REQUEST: the new id), kCmNone while unbound
    std::uint32_t qp_type;  // enum ibv_qp_type; CONNECT_REQUEST: as the peer asked
    CmAddress local, peer;  // likewise
    std::uint8_t local_gid[16], peer_gid[16];
    CmConnParam conn;  // CONNECT_REQUEST, CONNECT_RESPONSE, ESTABLISHED of a connection
    CmUdParam ud;      // ESTABLISHED of UD, MULTICAST_JOIN
    CmEce remote_ece;  // CONNECT_REQUEST, CONNECT_RESPONSE
    CmPrivateData private_data;
    char text[232];  // with an error that the card decided: what was wrong
};
static_assert(sizeof(CmEventRecord) == 640 && sizeof(CmEventRecord) <= 4096);

// ------------------------------------------------------------------------------------------------
// requests and replies

struct CmOpenRequest {
    std::uint64_t devices;  // bit i restricts the session to device i; 0: all that it may see
};
struct CmOpenReply {
    std::uint32_t session;
    std::uint32_t reserved;
    std::uint64_t devices;  // visible to this session
};

struct CmCreateIdRequest {
    std::uint64_t cookie;
    std::uint32_t channel;
    std::uint16_t port_space;
    std::uint8_t qp_type;  // enum ibv_qp_type: RC 2, UC 3, UD 4, XRC send 9, XRC recv 10
    std::uint8_t reserved;
};
struct CmDestroyIdRequest {
    std::uint32_t id;
    std::uint32_t events_read;
};
struct CmEventsReply {
    std::uint32_t events_reported;
    std::uint32_t reserved;
};
struct CmAdoptRequest {
    std::uint64_t cookie;
    std::uint32_t id, channel;
};

struct CmBindRequest {
    std::uint32_t id;
    std::uint32_t reserved;
    CmAddress address;
};
struct CmResolveAddrRequest {
    std::uint32_t id, timeout_ms;
    CmAddress source;  // family 0: none given
    CmAddress destination;
};
struct CmResolveRouteRequest {
    std::uint32_t id, timeout_ms;
};
struct CmListenRequest {
    std::uint32_t id;
    std::int32_t backlog;  // <= 0 or above 1024: 1024
};

// What rdma_query_* of the kernel tells, and the fields of the path record.
struct CmIdInfo {
    std::uint32_t id;
    std::uint32_t device;  // kCmNone: not bound to one
    CmAddress local, peer;
    std::uint8_t local_gid[16], peer_gid[16];
    std::uint16_t pkey;
    std::uint8_t port_num;          // 1 when bound to a device, else 0
    std::uint8_t gid_index;         // of local_gid
    std::uint8_t path_count;        // 1 once the route is resolved, else 0
    std::uint8_t mtu;               // enum ibv_mtu
    std::uint8_t packet_life_time;  // 4.096 us * 2^n
    std::uint8_t traffic_class;
    std::uint8_t hop_limit;
    std::uint8_t reserved[3];
    std::uint32_t flow_label;
    std::uint64_t node_guid;  // host order, 0 while unbound
};
static_assert(sizeof(CmIdInfo) == 112);

struct CmConnectRequest {
    std::uint32_t id;
    std::uint32_t reserved;
    CmConnParam conn;
    CmEce ece;
    CmPrivateData private_data;
};
struct CmRejectRequest {
    std::uint32_t id;
    std::uint16_t reason;  // kCmRejectConsumer or kCmRejectVendorOption
    std::uint16_t reserved;
    CmPrivateData private_data;
};
struct CmNotifyRequest {
    std::uint32_t id;
    std::uint32_t event;  // enum ibv_event_type: only IBV_EVENT_COMM_EST (4)
};
struct CmInitQpAttrRequest {
    std::uint32_t id;
    std::uint32_t state;        // enum ibv_qp_state: INIT 1, RTR 2, RTS 3
    std::uint32_t qp_type = 0;  // as in CmConnParam
    std::uint32_t reserved = 0;
};
struct CmInitQpAttrReply {
    std::uint32_t mask;  // enum ibv_qp_attr_mask
    QpAttributes attributes;
};
struct CmJoinMcastRequest {
    std::uint64_t cookie;
    std::uint32_t id;
    std::uint32_t join_flags;  // enum rdma_cm_mc_join_flags
    CmAddress address;
};
struct CmLeaveMcastRequest {
    std::uint32_t id, mcast;    // handle from kJoinMcast
    std::uint32_t events_read;  // MULTICAST_* records of this join
    std::uint32_t reserved;
};
struct CmMigrateRequest {
    std::uint32_t id, channel;
};
struct CmSetOptionRequest {
    std::uint32_t id;
    std::uint32_t level, name;  // as in rdma_set_option(3)
    std::uint32_t length;       // of the option as the application gave it
    std::uint32_t value;
};

}  // namespace rdmalab::abi
