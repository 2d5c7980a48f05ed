#include "card/cm_service.h"

#include <cerrno>

#include "base/limits.h"
#include "card/cm_reply.h"
#include "card/verbs_values.h"

namespace rdmalab::card {
namespace {

constexpr std::size_t kChannelMax = 65'536;  // of a session

// The node GUID of a function is the interface identifier of its link-local address.
std::uint64_t guid_of(const MacAddress& mac) {
    const Gid gid = Gid::link_local(mac);
    return load_bytes<Be64>(reinterpret_cast<const std::byte*>(gid.bytes.data()) + 8);
}

bool is_connected_type(std::uint8_t qp_type) {
    return qp_type == kIbvQptRc || qp_type == kIbvQptUc || qp_type == kIbvQptXrcSend ||
           qp_type == kIbvQptXrcRecv;
}

// Which QPs a port space may have (rdma_create_id(3)).
bool is_valid_type(std::uint16_t port_space, std::uint8_t qp_type) {
    switch (port_space) {
        case abi::kPortSpaceTcp:
            return is_connected_type(qp_type);
        case abi::kPortSpaceUdp:
        case abi::kPortSpaceIpoib:
            return qp_type == kIbvQptUd;
        case abi::kPortSpaceIb:
            return is_connected_type(qp_type) || qp_type == kIbvQptUd;
        default:
            return false;
    }
}

}  // namespace

CmService::CmService(const CardConfig& config, CmHostPort& host)
    : host_(host), directory_(config, host), ports_(config.seed ^ 0x706f'7274) {
    for (std::uint32_t i = 0; i < config.functions.size(); ++i) {
        transport::CmConfig cm;
        cm.mac = config.functions[i].mac;
        cm.gids = directory_.gids(i);
        cm.find_mac = [this](const Gid& gid) { return directory_.mac_of(gid); };
        cm.ca_guid = guid_of(cm.mac);
        cm.path_mtu = static_cast<std::uint8_t>(mtu_to_verbs(config.port_mtu));
        cm.seed = (config.seed ^ 0x636d) * 0x9e37'79b9'7f4a'7c15 + i;
        cms_.push_back(std::make_unique<transport::Cm>(cm));
        guids_.push_back(cm.ca_guid);
    }
    connections_.resize(cms_.size());
}

// --- Sessions

ControlReply CmService::open_session(CmSessionId id, DeviceSet visible, ByteView body) {
    if (body.size() != sizeof(abi::CmOpenRequest))
        return cm_failure(EINVAL, "the request has the wrong length");
    if (sessions_.contains(id)) return cm_failure(EINVAL, "the session is open already");
    const auto request = load_bytes<abi::CmOpenRequest>(body.data());
    auto session = std::make_unique<CmSession>();
    session->id = id;
    session->host = visible & directory_.all();
    session->visible = session->host;
    if (request.devices != 0) session->visible &= request.devices;
    const abi::CmOpenReply reply{id.value, 0, session->visible};
    sessions_.emplace(id, std::move(session));
    return cm_success(reply);
}

void CmService::close_session(CmSessionId session, Instant now) {
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) return;
    now_ = now;
    while (!found->second->ids.empty()) remove_id(*find_any(*found->second->ids.begin()));
    sessions_.erase(found);
}

template <class Request>
ControlReply CmService::call(CmSession& session, ByteView body,
                             ControlReply (CmService::*method)(CmSession&, const Request&)) {
    if (body.size() != sizeof(Request))
        return cm_failure(EINVAL, "the request has " + std::to_string(body.size()) +
                                      " bytes, expected " + std::to_string(sizeof(Request)));
    return (this->*method)(session, load_bytes<Request>(body.data()));
}

ControlReply CmService::handle_request(CmSessionId id, abi::CmOp op, ByteView body, Instant now) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return cm_failure(EINVAL, "no session is open");
    CmSession& session = *found->second;
    now_ = now;
    switch (op) {
        case abi::CmOp::kOpen:
            return cm_failure(EINVAL, "the session is open already");
        case abi::CmOp::kCreateChannel:
            return body.empty() ? create_channel(session)
                                : cm_failure(EINVAL, "the request has a body, expected none");
        case abi::CmOp::kDestroyChannel:
            return call(session, body, &CmService::destroy_channel);
        case abi::CmOp::kCreateId:
            return call(session, body, &CmService::create_id);
        case abi::CmOp::kDestroyId:
            return call(session, body, &CmService::destroy_id);
        case abi::CmOp::kAdopt:
            return call(session, body, &CmService::adopt);
        case abi::CmOp::kBind:
            return call(session, body, &CmService::bind);
        case abi::CmOp::kResolveAddr:
            return call(session, body, &CmService::resolve_addr);
        case abi::CmOp::kResolveRoute:
            return call(session, body, &CmService::resolve_route);
        case abi::CmOp::kListen:
            return call(session, body, &CmService::listen);
        case abi::CmOp::kConnect:
            return call(session, body, &CmService::connect);
        case abi::CmOp::kAccept:
            return call(session, body, &CmService::accept);
        case abi::CmOp::kReject:
            return call(session, body, &CmService::reject);
        case abi::CmOp::kEstablish:
            return call(session, body, &CmService::establish);
        case abi::CmOp::kDisconnect:
            return call(session, body, &CmService::disconnect);
        case abi::CmOp::kNotify:
            return call(session, body, &CmService::notify);
        case abi::CmOp::kInitQpAttr:
            return call(session, body, &CmService::init_qp_attr);
        case abi::CmOp::kJoinMcast:
            return call(session, body, &CmService::join_multicast);
        case abi::CmOp::kLeaveMcast:
            return call(session, body, &CmService::leave_multicast);
        case abi::CmOp::kMigrateId:
            return call(session, body, &CmService::migrate_id);
        case abi::CmOp::kSetOption:
            return call(session, body, &CmService::set_option);
        case abi::CmOp::kQuery:
            return call(session, body, &CmService::query);
    }
    return cm_failure(EOPNOTSUPP, "unknown operation of a CM session");
}

// --- Channels

ControlReply CmService::create_channel(CmSession& session) {
    if (session.channels.size() >= kChannelMax) return cm_failure(ENOMEM, "too many channels");
    while (session.next_channel == abi::kCmNone || session.channels.contains(session.next_channel))
        ++session.next_channel;
    session.channels.emplace(session.next_channel, 0);
    return cm_success(abi::HandleReply{session.next_channel++});
}

ControlReply CmService::destroy_channel(CmSession& session, const abi::HandleRequest& request) {
    const auto channel = session.channels.find(request.handle);
    if (channel == session.channels.end()) return cm_failure(EINVAL);
    if (channel->second != 0) return cm_failure(EBUSY, "ids use the channel");
    session.channels.erase(channel);
    return {};
}

bool CmService::use_channel(CmSession& session, std::uint32_t channel) {
    const auto found = session.channels.find(channel);
    if (found == session.channels.end()) return false;
    ++found->second;
    return true;
}

void CmService::leave_channel(CmSession& session, std::uint32_t channel) {
    --session.channels.at(channel);
}

// --- Ids

CmId* CmService::find_any(std::uint32_t handle) {
    const auto found = ids_.find(handle);
    return found == ids_.end() ? nullptr : found->second.get();
}

CmId* CmService::find(const CmSession& session, std::uint32_t handle) {
    CmId* const id = find_any(handle);
    return id != nullptr && id->session == &session ? id : nullptr;
}

// The channel is one of the session's.
CmId* CmService::new_id(CmSession& session, std::uint32_t channel) {
    if (ids_.size() >= limits::kCmIdMax) return nullptr;
    while (next_handle_ == abi::kCmNone || ids_.contains(next_handle_)) ++next_handle_;
    auto id = std::make_unique<CmId>();
    id->handle = next_handle_++;
    id->session = &session;
    id->channel = channel;
    use_channel(session, channel);
    session.ids.insert(id->handle);
    return ids_.emplace(id->handle, std::move(id)).first->second.get();
}

ControlReply CmService::create_id(CmSession& session, const abi::CmCreateIdRequest& request) {
    if (!session.channels.contains(request.channel)) return cm_failure(EINVAL, "no such channel");
    if (!is_valid_type(request.port_space, request.qp_type))
        return cm_failure(EINVAL, "port space " + std::to_string(request.port_space) +
                                      " does not go with QP type " +
                                      std::to_string(request.qp_type));
    CmId* const id = new_id(session, request.channel);
    if (id == nullptr) return cm_failure(ENOMEM, "too many ids");
    id->cookie = request.cookie;
    id->claim.port_space = request.port_space;
    id->qp_type = request.qp_type;
    return cm_success(abi::HandleReply{id->handle});
}

// Ends what the id has begun; its peer is told.
void CmService::remove_id(CmId& id) {
    stop_listening(id);
    for (const std::uint32_t waiting : id.waiting) find_any(waiting)->listener = abi::kCmNone;
    if (CmId* const listener = find_any(id.listener)) listener->waiting.erase(id.handle);
    detach(id);
    ports_.release(id.claim);
    leave_channel(*id.session, id.channel);
    id.session->ids.erase(id.handle);
    ids_.erase(id.handle);
}

ControlReply CmService::destroy_id(CmSession& session, const abi::CmDestroyIdRequest& request) {
    CmId* const id = find(session, request.id);
    if (id == nullptr) return cm_failure(EINVAL);
    std::uint32_t reported = id->events_sent;
    if (request.events_read < id->events_sent || !id->multicasts.empty()) {
        const auto withdrawn = host_.withdraw_cm(session.id, id->channel, id->handle);
        for (const abi::CmEventRecord& record : withdrawn)
            if (record.mc_cookie == 0 && reported > 0) --reported;
        withdraw_waiting(*id, withdrawn);
    }
    remove_id(*id);
    return cm_success(abi::CmEventsReply{reported, 0});
}

// New connections that their client has not read about go with the listener.
void CmService::withdraw_waiting(CmId& listener, const std::vector<abi::CmEventRecord>& withdrawn) {
    for (const abi::CmEventRecord& record : withdrawn)
        if (listener.waiting.contains(record.new_id)) remove_id(*find_any(record.new_id));
}

ControlReply CmService::adopt(CmSession& session, const abi::CmAdoptRequest& request) {
    CmId* const id = find(session, request.id);
    if (id == nullptr) return cm_failure(EINVAL);
    CmId* const listener = find_any(id->listener);
    if (id->is_adopted || !use_channel(session, request.channel)) return cm_failure(EINVAL);
    leave_channel(session, id->channel);
    if (listener != nullptr) listener->waiting.erase(id->handle);
    id->listener = abi::kCmNone;
    id->is_adopted = true;
    id->cookie = request.cookie;
    id->channel = request.channel;
    for (abi::CmEventRecord& record : std::exchange(id->held, {})) {
        record.cookie = id->cookie;
        send(*id, record);
    }
    return {};
}

ControlReply CmService::migrate_id(CmSession& session, const abi::CmMigrateRequest& request) {
    CmId* const id = find(session, request.id);
    if (id == nullptr || !use_channel(session, request.channel)) return cm_failure(EINVAL);
    std::uint32_t reported = id->events_sent;
    for (const abi::CmEventRecord& record :
         host_.withdraw_cm(session.id, id->channel, id->handle)) {
        host_.notify_cm(session.id, request.channel, record);
        if (record.mc_cookie == 0 && reported > 0) --reported;
    }
    leave_channel(session, id->channel);
    id->channel = request.channel;
    return cm_success(abi::CmEventsReply{reported, 0});
}

ControlReply CmService::query(CmSession& session, const abi::HandleRequest& request) {
    const CmId* const id = find(session, request.handle);
    if (id == nullptr) return cm_failure(EINVAL);
    return cm_success(info_of(*id));
}

// --- The wire

void CmService::handle_frame(std::uint32_t function, const wire::Frame& frame, Instant now) {
    now_ = now;
    cms_[function]->handle_frame(frame, now);
    drain(function);
}

bool CmService::poll_frame(std::uint32_t function, wire::Frame& out) {
    return cms_[function]->poll_frame(out);
}

void CmService::handle_timeout(Instant now) {
    now_ = now;
    for (std::uint32_t i = 0; i < cms_.size(); ++i) {
        if (cms_[i]->next_deadline() > now) continue;
        cms_[i]->handle_timeout(now);
        drain(i);
    }
}

Instant CmService::next_deadline() const {
    Instant deadline = Instant::never();
    for (const auto& cm : cms_) deadline = std::min(deadline, cm->next_deadline());
    return deadline;
}

CmService::Counts CmService::counts() const {
    Counts counts{sessions_.size(), ids_.size(), ports_.claimed_count(), 0};
    for (const auto& cm : cms_) counts.connections += cm->counts().connections;
    return counts;
}

}  // namespace rdmalab::card
