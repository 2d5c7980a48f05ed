// From the Cms to the clients: new connections get an id of their listener's session, everything
// else goes to the id that owns the connection.
#include <algorithm>
#include <cstring>

#include "card/cm_service.h"
#include "card/verbs_values.h"

namespace rdmalab::card {
namespace {

using transport::CmEvent;
using transport::CmEventKind;
using transport::CmQpService;

constexpr std::uint8_t kHopLimit = 64;
constexpr std::size_t kHeldMax = 16;  // events of one id: more do not happen before an answer

std::uint8_t qp_type_of(const CmEvent& event) {
    if (event.kind == CmEventKind::kServiceRequest) return kIbvQptUd;
    switch (event.service) {
        case CmQpService::kRc:
            return kIbvQptRc;
        case CmQpService::kUc:
            return kIbvQptUc;
        case CmQpService::kXrc:
            return kIbvQptXrcRecv;
    }
    return 0;
}

CmEndpoint endpoint_of(const wire::IpCmHeader& ip, const Gid& address, std::uint16_t port) {
    CmEndpoint endpoint;
    endpoint.family = ip.ip_version == 4 ? kFamilyIpv4 : kFamilyIpv6;
    endpoint.port = port;
    endpoint.address = address;
    return endpoint;
}

void put_connection(abi::CmEventRecord& record, const CmEvent& event) {
    record.conn.qp_num = event.qp.qpn.value;
    record.conn.qkey = event.qkey;
    record.conn.responder_resources = event.qp.responder_resources;
    record.conn.initiator_depth = event.qp.initiator_depth;
    record.conn.flow_control = event.qp.flow_control ? 1 : 0;
    record.conn.retry_count = event.qp.retry_count;
    record.conn.rnr_retry_count = event.qp.rnr_retry_count;
    record.conn.srq = event.qp.srq ? 1 : 0;
    record.remote_ece = {event.ece.vendor_id, event.ece.options};
}

void put_private_data(abi::CmEventRecord& record, const std::vector<std::uint8_t>& data) {
    record.private_data.length =
        static_cast<std::uint32_t>(std::min(data.size(), sizeof record.private_data.bytes));
    std::copy_n(data.begin(), record.private_data.length, record.private_data.bytes);
}

abi::CmEventType type_of(const CmEvent& event) {
    switch (event.kind) {
        case CmEventKind::kRequest:
        case CmEventKind::kServiceRequest:
            return abi::CmEventType::kConnectRequest;
        case CmEventKind::kReply:
            return abi::CmEventType::kConnectResponse;
        case CmEventKind::kEstablished:
            return abi::CmEventType::kEstablished;
        case CmEventKind::kRejected:
            return abi::CmEventType::kRejected;
        case CmEventKind::kUnreachable:
            return abi::CmEventType::kUnreachable;
        case CmEventKind::kDisconnected:
            return abi::CmEventType::kDisconnected;
        case CmEventKind::kTimewaitExit:
            return abi::CmEventType::kTimewaitExit;
        case CmEventKind::kServiceReply:
            return event.status == 0 ? abi::CmEventType::kEstablished
                                     : abi::CmEventType::kUnreachable;
    }
    return abi::CmEventType::kConnectError;
}

}  // namespace

void CmService::drain(std::uint32_t function) {
    for (CmEvent event; cms_[function]->poll_event(event);) handle_event(function, event);
}

void CmService::handle_event(std::uint32_t function, const CmEvent& event) {
    if (event.kind == CmEventKind::kRequest || event.kind == CmEventKind::kServiceRequest)
        return handle_new_connection(function, event);
    const auto found = connections_[function].find(event.connection);
    if (found == connections_[function].end()) return;
    CmId& id = *found->second;
    abi::CmEventRecord record = record_of(id, type_of(event));
    record.status = event.status;
    if (event.kind == CmEventKind::kReply) put_connection(record, event);
    if (event.kind == CmEventKind::kServiceReply && event.status == 0) {
        record.ud.qp_num = event.qp.qpn.value;
        record.ud.qkey = event.qkey;
        record.ud.ah = address_of(id, id.peer_gid, id.place->gid_index);
    }
    put_private_data(record, event.private_data);
    send(id, record);
}

// The new id is its listener's until the client adopts it. With a full backlog the request is
// dropped, as Linux does: the peer asks again, and there may be a place then.
void CmService::handle_new_connection(std::uint32_t function, const CmEvent& event) {
    CmId* const listener = find_any(event.listener.value);
    const auto place = directory_.place_of(function, event.route.local);
    if (listener == nullptr || !place) return cms_[function]->release(event.connection, now_);
    CmId* id = nullptr;
    if (listener->waiting.size() < listener->backlog)
        id = new_id(*listener->session, listener->channel);
    if (id == nullptr) return cms_[function]->forget(event.connection, now_);
    id->is_adopted = false;
    id->listener = listener->handle;
    listener->waiting.insert(id->handle);
    id->claim.port_space = listener->claim.port_space;
    id->claim.address = endpoint_of(event.ip, event.ip.destination, listener->claim.address.port);
    id->peer = endpoint_of(event.ip, event.ip.source, event.ip.source_port);
    id->place = place;
    id->peer_gid = event.route.peer;
    id->peer_mac = event.route.peer_mac;
    id->qp_type = qp_type_of(event);
    id->traffic_class = event.route.traffic_class;
    id->state = CmIdState::kRequested;
    attach(*id, event.connection);

    abi::CmEventRecord record = record_of(*id, abi::CmEventType::kConnectRequest);
    record.id = listener->handle;
    record.cookie = listener->cookie;
    record.new_id = id->handle;
    put_connection(record, event);
    put_private_data(record, event.private_data);
    send(*listener, record);
}

// --- Records

abi::CmEventRecord CmService::record_of(const CmId& id, abi::CmEventType type) const {
    abi::CmEventRecord record{};
    record.cookie = id.cookie;
    record.id = id.handle;
    record.new_id = abi::kCmNone;
    record.type = type;
    record.device = id.place ? id.place->device : abi::kCmNone;
    record.qp_type = id.qp_type;
    record.local = id.claim.address.to_abi();
    record.peer = id.peer.to_abi();
    if (id.place)
        std::memcpy(record.local_gid, id.place->gid.bytes.data(), sizeof record.local_gid);
    std::memcpy(record.peer_gid, id.peer_gid.bytes.data(), sizeof record.peer_gid);
    return record;
}

void CmService::send_event(CmId& id, abi::CmEventType type, int status, const std::string& text) {
    abi::CmEventRecord record = record_of(id, type);
    record.status = status;
    std::memcpy(record.text, text.data(), std::min(text.size(), sizeof record.text - 1));
    send(id, record);
}

void CmService::send(CmId& id, const abi::CmEventRecord& record) {
    if (!id.is_adopted) {
        if (id.held.size() < kHeldMax) id.held.push_back(record);
        return;
    }
    ++id.events_sent;
    host_.notify_cm(id.session->id, id.channel, record);
}

abi::AhAttributes CmService::address_of(const CmId& id, const Gid& peer,
                                        std::uint8_t gid_index) const {
    abi::AhAttributes ah{};
    std::memcpy(ah.dgid, peer.bytes.data(), sizeof ah.dgid);
    ah.sgid_index = gid_index;
    ah.hop_limit = kHopLimit;
    ah.traffic_class = id.traffic_class;
    ah.is_global = 1;
    ah.port = 1;
    return ah;
}

abi::CmIdInfo CmService::info_of(const CmId& id) const {
    abi::CmIdInfo info{};
    info.id = id.handle;
    info.device = abi::kCmNone;
    info.local = id.claim.address.to_abi();
    info.peer = id.peer.to_abi();
    std::memcpy(info.peer_gid, id.peer_gid.bytes.data(), sizeof info.peer_gid);
    info.traffic_class = id.traffic_class;
    info.path_count = id.state == CmIdState::kRouteResolved || id.connection ? 1 : 0;
    if (!id.place) return info;
    const transport::CmConfig& config = cms_[id.place->device]->config();
    info.device = id.place->device;
    std::memcpy(info.local_gid, id.place->gid.bytes.data(), sizeof info.local_gid);
    info.gid_index = id.place->gid_index;
    info.pkey = 0xffff;
    info.port_num = 1;
    info.mtu = config.path_mtu;
    info.packet_life_time = id.ack_timeout != 0 ? static_cast<std::uint8_t>(id.ack_timeout - 1)
                                                : config.packet_life_time;
    info.hop_limit = kHopLimit;
    info.node_guid = guids_[id.place->device];
    return info;
}

}  // namespace rdmalab::card
