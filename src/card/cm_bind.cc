// What an id is before it has a connection: bound to an address and a port, resolved to a peer,
// listening, a member of multicast groups; and its options.
#include <algorithm>
#include <cerrno>

#include "card/cm_reply.h"
#include "card/cm_service.h"
#include "card/verbs_values.h"

namespace rdmalab::card {
namespace {

constexpr std::uint32_t kBacklogMax = 1'024;
constexpr std::size_t kMulticastMax = 256;  // groups of one id
constexpr std::uint32_t kMulticastQpn = 0xff'ffff;

// rdma_set_option(3)
constexpr std::uint32_t kLevelId = 0;
constexpr std::uint32_t kOptionTos = 0, kOptionReuseAddr = 1, kOptionAfOnly = 2,
                        kOptionAckTimeout = 3;
constexpr std::uint32_t kAckTimeoutMax = 31;

bool is_unbound(const CmId& id) {
    return id.state == CmIdState::kIdle || id.state == CmIdState::kBound;
}

}  // namespace

// --- Addresses

// Takes an address and a port; a wildcard leaves the device open. On failure the id is as it was.
Error CmService::bind_to(CmId& id, const CmEndpoint& local) {
    std::optional<CmDirectory::Place> place;
    if (!local.is_wildcard()) {
        const auto found = directory_.find_local(id.session->visible, local);
        if (!found) return found.error();
        place = *found;
    }
    const CmEndpoint before = id.claim.address;
    id.claim.address = local;
    id.claim.devices = place ? DeviceSet{1} << place->device : id.session->visible;
    // As of Linux: an IPv4 socket has only its family, an IPv6 one both unless it is told.
    id.claim.family_only = local.family == kFamilyIpv4 || id.family_only.value_or(false);
    if (const int status = ports_.claim(id.claim); status != 0) {
        id.claim.address = before;
        return {status, status == EADDRINUSE ? "port " + std::to_string(local.port) + " of " +
                                                   local.to_string() + " is in use"
                                             : "all ephemeral ports are in use"};
    }
    id.place = place;
    id.state = CmIdState::kBound;
    return {};
}

ControlReply CmService::bind(CmSession& session, const abi::CmBindRequest& request) {
    CmId* const id = find(session, request.id);
    if (id == nullptr || id->state != CmIdState::kIdle) return cm_failure(EINVAL);
    const auto local = CmEndpoint::from_abi(request.address);
    if (!local || !local->is_given()) return cm_failure(EAFNOSUPPORT, "expected IPv4 or IPv6");
    if (const Error error = bind_to(*id, *local); error.code != 0) return cm_failure(error);
    return cm_success(info_of(*id));
}

// The card knows its own devices, the host those beyond an uplink, perhaps only after a while: then
// the id is bound and no more, and the host repeats the request. What is wrong with the source is
// told at once, what is wrong with the destination by an event.
ControlReply CmService::resolve_addr(CmSession& session, const abi::CmResolveAddrRequest& request) {
    CmId* const id = find(session, request.id);
    if (id == nullptr || !is_unbound(*id)) return cm_failure(EINVAL);
    const auto source = CmEndpoint::from_abi(request.source);
    const auto destination = CmEndpoint::from_abi(request.destination);
    if (!source || !destination || !destination->is_given())
        return cm_failure(EAFNOSUPPORT, "expected IPv4 or IPv6");
    if (id->state == CmIdState::kIdle) {
        const CmEndpoint local =
            source->is_given() ? *source : CmEndpoint::wildcard(destination->family, 0);
        if (const Error error = bind_to(*id, local); error.code != 0) return cm_failure(error);
    } else if (source->is_given() && !source->is_wildcard() &&
               source->address != id->claim.address.address) {
        return cm_failure(EINVAL, "the id is bound to " + id->claim.address.to_string() +
                                      ", not to " + source->to_string());
    }
    id->peer = *destination;
    const auto way = directory_.find_way(session.visible, id->place, *destination, session.host);
    if (!way && way.error().code == kAwaitsNeighbour) return cm_failure(kAwaitsNeighbour);
    if (!way) {
        send_event(*id, abi::CmEventType::kAddrError, -way.error().code, way.error().text);
        return cm_success(info_of(*id));
    }
    if (!id->place) {
        // The port was claimed for all addresses; the id now has one.
        id->claim.address.address =
            destination->is_loopback() ? destination->address : way->source.gid;
        id->claim.address.family = destination->family;
        id->claim.devices = DeviceSet{1} << way->source.device;
    }
    if (destination->is_wildcard()) id->peer.address = way->peer;
    id->place = way->source;
    id->peer_gid = way->peer;
    id->peer_mac = way->peer_mac;
    id->state = CmIdState::kAddrResolved;
    send_event(*id, abi::CmEventType::kAddrResolved);
    return cm_success(info_of(*id));
}

ControlReply CmService::resolve_route(CmSession& session,
                                      const abi::CmResolveRouteRequest& request) {
    CmId* const id = find(session, request.id);
    if (id == nullptr || id->state != CmIdState::kAddrResolved) return cm_failure(EINVAL);
    id->state = CmIdState::kRouteResolved;
    send_event(*id, abi::CmEventType::kRouteResolved);
    return {};
}

// --- Listening

ControlReply CmService::listen(CmSession& session, const abi::CmListenRequest& request) {
    CmId* const id = find(session, request.id);
    if (id == nullptr || !is_unbound(*id)) return cm_failure(EINVAL);
    if (id->state == CmIdState::kIdle) {
        const Error error = bind_to(*id, CmEndpoint::wildcard(kFamilyIpv4, 0));
        if (error.code != 0) return cm_failure(error);
    }
    if (!ports_.is_exclusive(id->claim))
        return cm_failure(EADDRINUSE, "port " + std::to_string(id->claim.address.port) +
                                          " is shared, and a listener needs it alone");
    if (const int status = start_listening(*id); status != 0) return cm_failure(status);
    const auto backlog = static_cast<std::uint32_t>(std::max(request.backlog, 0));
    id->backlog = backlog == 0 ? kBacklogMax : std::min(backlog, kBacklogMax);
    id->state = CmIdState::kListening;
    return cm_success(info_of(*id));
}

int CmService::start_listening(CmId& id) {
    transport::CmListen spec;
    spec.service_id = wire::ip_service_id(id.claim.port_space, id.claim.address.port);
    if (!id.claim.address.is_wildcard()) spec.address = id.claim.address.address;
    spec.takes_ipv4 = id.claim.address.family == kFamilyIpv4 || !id.claim.family_only;
    spec.takes_ipv6 = id.claim.address.family == kFamilyIpv6;
    for (std::uint32_t device = 0; device < cms_.size(); ++device) {
        if ((id.claim.devices >> device & 1) == 0) continue;
        const int status = cms_[device]->listen(transport::CmListenerId{id.handle}, spec);
        if (status != 0) {
            stop_listening(id);
            return status;
        }
        id.listens_on |= DeviceSet{1} << device;
    }
    return 0;
}

void CmService::stop_listening(CmId& id) {
    for (std::uint32_t device = 0; device < cms_.size(); ++device)
        if ((id.listens_on >> device & 1) != 0)
            cms_[device]->unlisten(transport::CmListenerId{id.handle});
    id.listens_on = 0;
}

// --- Options

ControlReply CmService::set_option(CmSession& session, const abi::CmSetOptionRequest& request) {
    CmId* const id = find(session, request.id);
    if (id == nullptr) return cm_failure(EINVAL);
    if (request.level != kLevelId) return cm_failure(ENOSYS, "unknown level of an option");
    const auto has_length = [&](std::size_t length) { return request.length == length; };
    switch (request.name) {
        case kOptionTos:
            if (!has_length(sizeof(std::uint8_t)) || request.value > 0xff)
                return cm_failure(EINVAL);
            // The ECN bits are the card's.
            id->traffic_class = static_cast<std::uint8_t>(request.value & 0xfc);
            return {};
        case kOptionReuseAddr:
            if (!has_length(sizeof(int)) || id->state == CmIdState::kListening)
                return cm_failure(EINVAL);
            id->claim.allows_reuse = request.value != 0;
            return {};
        case kOptionAfOnly:
            if (!has_length(sizeof(int)) || !is_unbound(*id)) return cm_failure(EINVAL);
            id->family_only = request.value != 0;
            if (id->claim.address.family == kFamilyIpv6) id->claim.family_only = *id->family_only;
            return {};
        case kOptionAckTimeout:
            if (!has_length(sizeof(std::uint8_t)) || request.value > kAckTimeoutMax ||
                id->is_datagram())
                return cm_failure(EINVAL);
            id->ack_timeout = static_cast<std::uint8_t>(request.value);
            return {};
        default:
            return cm_failure(ENOSYS, "unknown option");
    }
}

// --- Multicast

// The card's switch floods multicast; joining tells the address, attaching the QP is the client's.
ControlReply CmService::join_multicast(CmSession& session, const abi::CmJoinMcastRequest& request) {
    CmId* const id = find(session, request.id);
    const auto group = CmEndpoint::from_abi(request.address);
    if (id == nullptr || !group || !id->place || !id->is_datagram() || request.cookie == 0)
        return cm_failure(EINVAL);
    if (!group->address.is_multicast())
        return cm_failure(EINVAL, group->to_string() + " is no multicast address");
    const auto place = directory_.source_for(id->place->device, group->address);
    if (!place) return cm_failure(EADDRNOTAVAIL, "the device has no address of that family");
    if (id->multicasts.size() >= kMulticastMax) return cm_failure(ENOMEM, "too many groups");
    const std::uint32_t handle = id->multicasts.empty() ? 1 : id->multicasts.rbegin()->first + 1;
    CmMulticast& multicast = id->multicasts[handle];
    multicast.cookie = request.cookie;
    abi::CmEventRecord record = record_of(*id, abi::CmEventType::kMulticastJoin);
    record.mc_cookie = multicast.cookie;
    record.ud.qp_num = kMulticastQpn;
    record.ud.qkey = abi::kRdmaUdpQkey;
    record.ud.ah = address_of(*id, group->address, place->gid_index);
    ++multicast.events_sent;
    host_.notify_cm(session.id, id->channel, record);
    return cm_success(abi::HandleReply{handle});
}

ControlReply CmService::leave_multicast(CmSession& session,
                                        const abi::CmLeaveMcastRequest& request) {
    CmId* const id = find(session, request.id);
    if (id == nullptr) return cm_failure(EINVAL);
    const auto multicast = id->multicasts.find(request.mcast);
    if (multicast == id->multicasts.end()) return cm_failure(EINVAL);
    std::uint32_t reported = multicast->second.events_sent;
    if (request.events_read < reported) {
        for (const abi::CmEventRecord& record :
             host_.withdraw_cm(session.id, id->channel, id->handle)) {
            if (record.mc_cookie == multicast->second.cookie && reported > 0)
                --reported;
            else
                host_.notify_cm(session.id, id->channel, record);
        }
    }
    id->multicasts.erase(multicast);
    return cm_success(abi::CmEventsReply{reported, 0});
}

}  // namespace rdmalab::card
