// What an id does with a connection, and what its QP needs for it.
#include <algorithm>
#include <cerrno>

#include "base/limits.h"
#include "card/cm_reply.h"
#include "card/cm_service.h"
#include "card/verbs_values.h"

namespace rdmalab::card {
namespace {

using transport::CmAccept;
using transport::CmConnect;
using transport::CmQpService;
using transport::CmReject;
using transport::CmServiceQuery;

constexpr std::uint8_t kRetryMax = 7;
constexpr std::uint32_t kQpnMax = 0xff'ffff;
constexpr std::uint32_t kStateInit = 1, kStateRtr = 2, kStateRts = 3;  // enum ibv_qp_state
// Code of an RNR NAK timer of 20 ms. Linux gives code 0, 655 ms, which on a card without any wire
// between would be the longest wait by far. But a peer with few retries must outlast a receiver
// that is not scheduled for a while: rdma-core's tests post a receive after the send that it is
// for, and give 5 retries.
constexpr std::uint8_t kMinRnrTimer = 22;

CmQpService service_of(std::uint32_t qp_type) {
    if (qp_type == kIbvQptUc) return CmQpService::kUc;
    return qp_type == kIbvQptRc ? CmQpService::kRc : CmQpService::kXrc;
}

transport::CmQpParameters parameters_of(const abi::CmConnParam& conn) {
    transport::CmQpParameters qp;
    qp.qpn = Qpn{conn.qp_num};
    qp.responder_resources = conn.responder_resources;
    qp.initiator_depth = conn.initiator_depth;
    qp.retry_count = std::min(conn.retry_count, kRetryMax);
    qp.rnr_retry_count = std::min(conn.rnr_retry_count, kRetryMax);
    qp.flow_control = conn.flow_control != 0;
    qp.srq = conn.srq != 0;
    return qp;
}

bool is_valid(const abi::CmConnectRequest& request) {
    return request.private_data.length <= sizeof request.private_data.bytes &&
           request.conn.qp_num <= kQpnMax;
}

std::span<const std::uint8_t> data_of(const abi::CmPrivateData& data) {
    return {data.bytes, data.length};
}

wire::Ece ece_of(const abi::CmEce& ece) { return {ece.vendor_id & 0xff'ffff, ece.options}; }

wire::IpCmHeader header_of(const CmId& id) {
    const bool is_ipv4 = id.peer.address.is_ipv4();
    return {static_cast<std::uint8_t>(is_ipv4 ? 4 : 6), id.claim.address.port,
            id.claim.address.address, id.peer.address};
}

transport::CmRoute route_of(const CmId& id) {
    return {id.place->gid, id.peer_gid, id.peer_mac, id.traffic_class};
}

}  // namespace

// --- Connections

void CmService::attach(CmId& id, transport::CmConnId connection) {
    id.connection = connection;
    connections_[id.place->device].emplace(connection, &id);
}

void CmService::detach(CmId& id) {
    if (!id.connection) return;
    connections_[id.place->device].erase(*id.connection);
    cm_of(id).release(*id.connection, now_);
    id.connection.reset();
}

Result<transport::CmConnId> CmService::start_connection(CmId& id,
                                                        const abi::CmConnectRequest& request) {
    const std::uint64_t service = wire::ip_service_id(id.claim.port_space, id.peer.port);
    if (id.is_datagram()) {
        CmServiceQuery query;
        query.route = route_of(id);
        query.service_id = service;
        query.ip = header_of(id);
        query.private_data = data_of(request.private_data);
        return cm_of(id).query_service(query, now_);
    }
    CmConnect connect;
    connect.route = route_of(id);
    connect.service_id = service;
    connect.ip = header_of(id);
    connect.service = service_of(request.conn.qp_type != 0 ? request.conn.qp_type : id.qp_type);
    connect.qp = parameters_of(request.conn);
    connect.ack_timeout = id.ack_timeout;
    connect.ece = ece_of(request.ece);
    connect.private_data = data_of(request.private_data);
    return cm_of(id).connect(connect, now_);
}

ControlReply CmService::connect(CmSession& session, const abi::CmConnectRequest& request) {
    CmId* const id = find(session, request.id);
    if (id == nullptr || id->state != CmIdState::kRouteResolved || !is_valid(request))
        return cm_failure(EINVAL);
    if (id->peer.address.is_multicast())
        return cm_failure(EINVAL, "nobody can be connected at a multicast address");
    const auto connection = start_connection(*id, request);
    if (!connection) return cm_failure(connection.error());
    attach(*id, *connection);
    id->state = CmIdState::kConnecting;
    return {};
}

ControlReply CmService::accept(CmSession& session, const abi::CmConnectRequest& request) {
    CmId* const id = find(session, request.id);
    if (id == nullptr || id->state != CmIdState::kRequested || !is_valid(request))
        return cm_failure(EINVAL);
    CmAccept answer;
    answer.qp = parameters_of(request.conn);
    answer.qkey = request.conn.qkey != 0 ? request.conn.qkey : abi::kRdmaUdpQkey;
    answer.ece = ece_of(request.ece);
    answer.private_data = data_of(request.private_data);
    const int status = cm_of(*id).accept(*id->connection, answer, now_);
    if (status != 0) return cm_status(status);
    id->state = CmIdState::kConnecting;
    return {};
}

ControlReply CmService::reject(CmSession& session, const abi::CmRejectRequest& request) {
    CmId* const id = find(session, request.id);
    if (id == nullptr || !id->connection ||
        request.private_data.length > sizeof request.private_data.bytes)
        return cm_failure(EINVAL);
    if (request.reason != abi::kCmRejectConsumer && request.reason != abi::kCmRejectVendorOption)
        return cm_failure(EINVAL, "unknown reason of a reject");
    CmReject answer;
    answer.reason = request.reason;
    answer.private_data = data_of(request.private_data);
    return cm_status(cm_of(*id).reject(*id->connection, answer, now_));
}

ControlReply CmService::establish(CmSession& session, const abi::HandleRequest& request) {
    CmId* const id = find(session, request.handle);
    if (id == nullptr || !id->connection) return cm_failure(EINVAL);
    return cm_status(cm_of(*id).establish(*id->connection, now_));
}

ControlReply CmService::disconnect(CmSession& session, const abi::HandleRequest& request) {
    CmId* const id = find(session, request.handle);
    if (id == nullptr || !id->connection) return cm_failure(EINVAL);
    return cm_status(cm_of(*id).disconnect(*id->connection, now_));
}

ControlReply CmService::notify(CmSession& session, const abi::CmNotifyRequest& request) {
    CmId* const id = find(session, request.id);
    if (id == nullptr || !id->connection || request.event != kIbvEventCommEst)
        return cm_failure(EINVAL);
    const int status = cm_of(*id).notify_established(*id->connection, now_);
    drain(id->place->device);
    return cm_status(status);
}

// --- QP attributes

namespace {

using transport::kQpAccessFlags;
using transport::kQpAv;
using transport::kQpDestQpn;
using transport::kQpMaxDestRdAtomic;
using transport::kQpMaxQpRdAtomic;
using transport::kQpMinRnrTimer;
using transport::kQpPathMtu;
using transport::kQpPkeyIndex;
using transport::kQpPort;
using transport::kQpQkey;
using transport::kQpRetryCnt;
using transport::kQpRnrRetry;
using transport::kQpRqPsn;
using transport::kQpSqPsn;
using transport::kQpState;
using transport::kQpTimeout;

void set_init(abi::CmInitQpAttrReply& reply, const transport::CmQpFacts* facts, bool datagram) {
    reply.mask = kQpState | kQpPkeyIndex | kQpPort | (datagram ? kQpQkey : kQpAccessFlags);
    reply.attributes.port = 1;
    if (datagram) {
        reply.attributes.qkey = abi::kRdmaUdpQkey;
    } else if (facts != nullptr) {
        reply.attributes.access = transport::kAccessRemoteWrite;
        if (facts->responder_resources != 0)
            reply.attributes.access |=
                transport::kAccessRemoteRead | transport::kAccessRemoteAtomic;
    }
}

// A QP of unreliable datagrams needs no more than a first PSN.
void set_datagram(abi::CmInitQpAttrReply& reply, std::uint32_t state) {
    reply.mask = kQpState | (state == kStateRts ? kQpSqPsn : 0u);
}

void set_rtr(abi::CmInitQpAttrReply& reply, const transport::CmQpFacts& facts, std::uint32_t type) {
    reply.mask = kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn;
    reply.attributes.path_mtu = facts.path_mtu;
    reply.attributes.destination_qpn = facts.remote_qpn.value;
    reply.attributes.rq_psn = facts.receive_psn.value();
    if (type != kIbvQptRc && type != kIbvQptXrcRecv) return;
    reply.mask |= kQpMaxDestRdAtomic | kQpMinRnrTimer;
    reply.attributes.responder_resources = static_cast<std::uint8_t>(
        std::min<std::uint32_t>(facts.responder_resources, limits::kReadsMax));
    reply.attributes.min_rnr_timer = kMinRnrTimer;
}

void set_rts(abi::CmInitQpAttrReply& reply, const transport::CmQpFacts& facts, std::uint32_t type) {
    reply.mask = kQpState | kQpSqPsn;
    reply.attributes.sq_psn = facts.send_psn.value();
    if (type == kIbvQptUc) return;
    reply.mask |= kQpTimeout;
    reply.attributes.timeout = facts.ack_timeout;
    if (type == kIbvQptXrcRecv) return;
    reply.mask |= kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic;
    reply.attributes.retry_count = facts.retry_count;
    reply.attributes.rnr_retry = facts.rnr_retry_count;
    reply.attributes.reads_outstanding = static_cast<std::uint8_t>(
        std::min<std::uint32_t>(facts.initiator_depth, limits::kReadsMax));
}

}  // namespace

ControlReply CmService::init_qp_attr(CmSession& session, const abi::CmInitQpAttrRequest& request) {
    const CmId* const id = find(session, request.id);
    if (id == nullptr || !id->place || request.state < kStateInit || request.state > kStateRts)
        return cm_failure(EINVAL);
    const std::uint32_t type = request.qp_type != 0 ? request.qp_type : id->qp_type;
    const bool datagram = type == kIbvQptUd;
    const transport::CmQpFacts* const facts =
        id->connection ? cm_of(*id).facts(*id->connection) : nullptr;
    abi::CmInitQpAttrReply reply{};
    reply.attributes.state = request.state;
    if (request.state == kStateInit) {
        set_init(reply, facts, datagram);
        return cm_success(reply);
    }
    if (datagram) {
        set_datagram(reply, request.state);
        return cm_success(reply);
    }
    if (facts == nullptr || !facts->is_connected) return cm_failure(EINVAL);
    if (request.state == kStateRtr)
        set_rtr(reply, *facts, type);
    else
        set_rts(reply, *facts, type);
    if ((reply.mask & kQpAv) != 0) {
        reply.attributes.ah = address_of(*id, facts->route.peer, id->place->gid_index);
        reply.attributes.ah.traffic_class = facts->route.traffic_class;
    }
    return cm_success(reply);
}

}  // namespace rdmalab::card
