// What messages do. Each is matched to a connection: the answers and what follows by both
// communication ids, a request by the peer's id and GUID. What matches none gets the answer of the
// standard: a new connection or REJ for a REQ, REJ for a REP, DREP for a DREQ, APR for a LAP,
// silence for the rest.
#include <algorithm>
#include <cerrno>

#include "transport/cm.h"

namespace rdmalab::transport {
namespace {

using wire::RejectReason;

constexpr std::uint8_t kExtendedServiceXrc = 1;
constexpr std::uint8_t kMtuCodeMin = 1;
constexpr Duration kHoldTime = milliseconds(200);
constexpr std::size_t kHeldMax = 64;

// A frame to QP 1 that carries a management datagram: UD SEND Only from QP 1 with its key.
bool is_gsi(const wire::Frame& frame) {
    if (!wire::is_roce(frame) || frame.payload_length != wire::kMadLength) return false;
    const auto& bth = *wire::header_at<wire::Bth>(frame, frame.bth_offset);
    const wire::OpcodeInfo* const info = wire::find_opcode(bth.opcode);
    if (info == nullptr || info->service != wire::Service::kUd ||
        info->kind != wire::PacketKind::kSend || (info->extensions & wire::kHasImmDt) != 0)
        return false;
    const auto& deth = *wire::header_at<wire::Deth>(frame, frame.bth_offset + sizeof bth);
    return bth.destination_qp == wire::kGsiQpn.value && deth.qkey == wire::kGsiQkey &&
           deth.source_qp == wire::kGsiQpn.value;
}

// Datagrams of QP 1 are made by the card, so their bytes lie in its own memory.
bool gather(const wire::Frame& frame, wire::MadBytes& out) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < frame.segment_count; ++i) {
        const wire::PayloadSegment& segment = frame.segments[i];
        if (segment.space != kCardSpace || segment.length > out.size() - at) return false;
        std::memcpy(out.data() + at, reinterpret_cast<const std::byte*>(segment.address),
                    segment.length);
        at += segment.length;
    }
    return at == out.size();
}

CmQpService service_of(const wire::ReqMessage& m) {
    if (m.service == wire::CmService::kUc) return CmQpService::kUc;
    return m.service == wire::CmService::kExtended ? CmQpService::kXrc : CmQpService::kRc;
}

// The private data behind the IP header.
template <std::size_t N>
std::vector<std::uint8_t> user_data(const wire::PrivateData<N>& data) {
    return {data.begin() + wire::kIpCmHeaderLength, data.end()};
}

wire::RejMessage rejection(const wire::ReqMessage& m, RejectReason reason) {
    wire::RejMessage rej;
    rej.transaction_id = m.transaction_id;
    rej.remote_comm_id = m.local_comm_id;
    rej.subject = wire::CmSubject::kReq;
    rej.reason = static_cast<std::uint16_t>(reason);
    return rej;
}

}  // namespace

void Cm::handle_frame(const wire::Frame& frame, Instant now) {
    ++counters_.rx_mads;
    wire::MadBytes bytes;
    wire::CmMessage message;
    const bool is_mad = is_gsi(frame) && gather(frame, bytes);
    const wire::MadError error =
        is_mad ? wire::parse_cm(bytes, message) : wire::MadError::kBadLength;
    if (error != wire::MadError::kNone) ++counters_.malformed;
    if (error != wire::MadError::kNone && error != wire::MadError::kBadClassVersion) return;
    Origin origin;
    origin.local = wire::destination_gid(frame);
    origin.peer = wire::source_gid(frame);
    origin.peer_mac = wire::source_mac(frame);
    // A switch floods what has an unknown MAC; an answer in the name of another would do harm.
    if (std::find(config_.gids.begin(), config_.gids.end(), origin.local) == config_.gids.end()) {
        ++counters_.misdirected;
        return;
    }
    if (config_.find_mac) origin.peer_mac = config_.find_mac(origin.peer).value_or(origin.peer_mac);
    if (error == wire::MadError::kBadClassVersion) return refuse_version(bytes, origin);
    std::visit([&](const auto& m) { receive(m, origin, now); }, message);
}

// A request in another version of the protocol is refused in ours; all else is dropped.
void Cm::refuse_version(const wire::MadBytes& mad, const Origin& origin) {
    const wire::ForeignVersion foreign = wire::parse_foreign_version(mad);
    if (foreign.attribute_id == static_cast<std::uint16_t>(wire::CmAttribute::kReq)) {
        wire::ReqMessage request;
        request.transaction_id = foreign.transaction_id;
        request.local_comm_id = foreign.id;
        answer(origin, rejection(request, RejectReason::kInvalidClassVersion));
    } else if (foreign.attribute_id == static_cast<std::uint16_t>(wire::CmAttribute::kSidrReq)) {
        wire::SidrRepMessage reply;
        reply.transaction_id = foreign.transaction_id;
        reply.request_id = foreign.id;
        reply.status = static_cast<std::uint8_t>(wire::SidrStatus::kUnsupportedVersion);
        answer(origin, reply);
    }
}

void Cm::apply_message(CmConnection* c, CmInput input, const Occasion& occasion) {
    if (c == nullptr) {
        ++counters_.unmatched;
        return;
    }
    const CmStep step = cm_step(c->state, input);
    if (step.action == CmAction::kIgnore) ++counters_.out_of_state;
    if (step.action == CmAction::kResend || step.action == CmAction::kSendMra)
        ++counters_.duplicates;
    apply(*c, input, occasion);
}

CmConnection* Cm::find_pair(std::uint32_t ours, std::uint32_t theirs, const Origin& origin) {
    CmConnection* const c = table_.find_local(ours);
    if (c == nullptr || c->state == CmState::kIdle || c->remote_comm_id != theirs) return nullptr;
    return c->facts.route.peer == origin.peer ? c : nullptr;
}

// --- REQ

// Why a REQ that is new cannot become a connection.
std::optional<RejectReason> Cm::check_req(const wire::ReqMessage& m, const Origin& origin) const {
    if (m.service == wire::CmService::kRd ||
        (m.service == wire::CmService::kExtended && m.extended_service != kExtendedServiceXrc))
        return RejectReason::kInvalidTransportService;
    if (m.primary.remote_gid != origin.local) return RejectReason::kPrimaryGid;
    if (m.path_mtu < kMtuCodeMin || m.path_mtu > config_.path_mtu) return RejectReason::kInvalidMtu;
    return std::nullopt;
}

// The peer's QP cannot have two connections. If it asks for a second one it has lost the first:
// a request that nobody has accepted makes room, an established connection ends and the new request
// is refused (IBTA vol. 1, 12.9.8.3.1). True: the request may go on.
bool Cm::clear_stale(const wire::ReqMessage& m, Instant now) {
    if (m.qpn.value == 0) return true;
    CmConnection* const old = table_.find_peer(CmPeerKey::qpn(m.qpn, m.ca_guid));
    if (old == nullptr) return true;
    const bool is_waiting =
        old->state == CmState::kReqReceived || old->state == CmState::kMraReqSent;
    wire::RejMessage rej;
    rej.reason = static_cast<std::uint16_t>(RejectReason::kStaleConnection);
    if (is_waiting)
        apply(*old, CmInput::kRej, {.now = now, .rej = &rej});
    else
        apply(*old, CmInput::kDisconnect, {.now = now});
    return is_waiting;
}

void Cm::receive(const wire::ReqMessage& m, const Origin& origin, Instant now) {
    if (CmConnection* const c = table_.find_peer(CmPeerKey::comm_id(m.local_comm_id, m.ca_guid))) {
        apply_message(c, CmInput::kReq, {.now = now});
        return;
    }
    receive_new(m, origin, now, true);
}

void Cm::receive_new(const wire::ReqMessage& m, const Origin& origin, Instant now, bool may_hold) {
    const auto refuse = [&](RejectReason reason) {
        ++counters_.unmatched;
        answer(origin, rejection(m, reason));
    };
    if (const auto reason = check_req(m, origin)) return refuse(*reason);
    const auto ip = wire::parse_ip_cm_header(m.private_data);
    if (!ip) return refuse(RejectReason::kUnsupportedRequest);
    const Listener* const listener = find_listener(m.service_id, *ip);
    if (listener == nullptr) {
        if (may_hold && hold(CmPeerKey::comm_id(m.local_comm_id, m.ca_guid), m, origin, now))
            return;
        return refuse(RejectReason::kInvalidServiceId);
    }
    const CmListenerId id = listener->id;
    if (!clear_stale(m, now)) return refuse(RejectReason::kStaleConnection);
    take_request(m, *ip, id, origin);
}

// Programs that agree to meet may race: the one connects before the other listens (perftest -R
// sleeps a second on both sides and hopes). On a busy machine the order is a matter of luck, so a
// request for an unknown service waits a little before it is refused; that is shorter than the peer
// takes to repeat it.
bool Cm::hold(const CmPeerKey& key, const Request& request, const Origin& origin, Instant now) {
    const bool is_held = std::any_of(held_.begin(), held_.end(),
                                     [&](const HeldRequest& held) { return held.key == key; });
    if (is_held) return true;
    if (held_.size() >= kHeldMax) return false;
    held_.push_back({key, request, origin, now + kHoldTime});
    return true;
}

void Cm::release_held(Instant now) {
    while (!held_.empty() && held_.front().deadline <= now) {
        const HeldRequest held = held_.front();
        held_.pop_front();
        if (table_.find_peer(held.key)) continue;  // it came twice
        std::visit([&](const auto& m) { receive_new(m, held.origin, now, false); }, held.request);
    }
}

void Cm::take_request(const wire::ReqMessage& m, const wire::IpCmHeader& ip, CmListenerId listener,
                      const Origin& origin) {
    CmRoute route = origin;
    route.traffic_class = m.primary.traffic_class;
    CmConnection* const c = new_connection(route);
    if (c == nullptr) {
        answer(origin, rejection(m, RejectReason::kNoResources));
        return;
    }
    c->state = CmState::kReqReceived;
    c->listener = listener;
    c->remote_comm_id = m.local_comm_id;
    c->remote_ca_guid = m.ca_guid;
    c->transaction_id = m.transaction_id;
    c->service_id = m.service_id;
    c->facts.is_connected = true;
    c->facts.service = service_of(m);
    c->facts.remote_qpn = m.qpn;
    c->facts.send_psn = m.starting_psn;
    c->facts.path_mtu = m.path_mtu;
    c->facts.responder_resources = m.initiator_depth;
    c->facts.initiator_depth = m.responder_resources;
    c->facts.ack_timeout = m.primary.ack_timeout;
    c->facts.retry_count = m.retry_count;
    c->facts.rnr_retry_count = m.rnr_retry_count;
    // First how long the peer repeats its REQ, then how long we repeat our REP.
    set_retries(*c, m.remote_response_timeout, m.max_cm_retries);
    const Duration linger = c->linger;
    set_retries(*c, m.local_response_timeout, m.max_cm_retries);
    c->linger = linger;
    table_.link(CmPeerKey::comm_id(m.local_comm_id, m.ca_guid), *c);
    if (m.qpn.value != 0) table_.link(CmPeerKey::qpn(m.qpn, m.ca_guid), *c);

    CmEvent& event = report(*c, CmEventKind::kRequest);
    event.ip = ip;
    event.qp = {m.qpn,         m.initiator_depth, m.responder_resources,
                m.retry_count, m.rnr_retry_count, m.flow_control,
                m.srq};
    event.qkey = m.qkey;
    event.ece = m.ece;
    event.private_data = user_data(m.private_data);
}

// --- Answers and the rest of a connection's life

void Cm::receive(const wire::MraMessage& m, const Origin& origin, Instant now) {
    CmConnection* const c = table_.find_local(m.remote_comm_id);
    const bool is_match = c != nullptr && c->facts.route.peer == origin.peer &&
                          (c->remote_comm_id == 0 || c->remote_comm_id == m.local_comm_id);
    const CmInput input =
        m.subject == wire::CmSubject::kReq ? CmInput::kMraOfReq : CmInput::kMraOfRep;
    if (m.subject == wire::CmSubject::kOther) return;
    apply_message(is_match ? c : nullptr, input, {.now = now, .mra = &m});
}

void Cm::receive(const wire::RepMessage& m, const Origin& origin, Instant now) {
    CmConnection* const c = table_.find_local(m.remote_comm_id);
    const bool is_match = c != nullptr && c->is_active && c->state != CmState::kIdle &&
                          c->facts.route.peer == origin.peer &&
                          (c->remote_comm_id == 0 || c->remote_comm_id == m.local_comm_id);
    if (is_match) return apply_message(c, CmInput::kRep, {.now = now, .rep = &m});
    ++counters_.unmatched;
    wire::RejMessage rej;
    rej.transaction_id = m.transaction_id;
    rej.local_comm_id = m.remote_comm_id;
    rej.remote_comm_id = m.local_comm_id;
    rej.subject = wire::CmSubject::kRep;
    rej.reason = static_cast<std::uint16_t>(RejectReason::kInvalidCommId);
    answer(origin, rej);
}

void Cm::take_rep(CmConnection& c, const wire::RepMessage& m) {
    c.remote_comm_id = m.local_comm_id;
    c.remote_ca_guid = m.ca_guid;
    c.facts.is_connected = true;
    // An XRC target has no send queue; its number stands where EE contexts stood.
    c.facts.remote_qpn = c.facts.service == CmQpService::kXrc ? Qpn{m.eecn} : m.qpn;
    c.facts.send_psn = m.starting_psn;
    c.facts.responder_resources = m.initiator_depth;
    c.facts.initiator_depth = m.responder_resources;
    c.facts.rnr_retry_count = m.rnr_retry_count;
    const auto delayed = static_cast<std::uint8_t>(std::min(m.target_ack_delay + 1, 31));
    if (m.target_ack_delay != 0) c.facts.ack_timeout = std::max(c.facts.ack_timeout, delayed);
}

void Cm::receive(const wire::RtuMessage& m, const Origin& origin, Instant now) {
    CmConnection* const c = find_pair(m.remote_comm_id, m.local_comm_id, origin);
    apply_message(c, CmInput::kRtu, {.now = now});
}

// A peer that gives up before it has got an answer does not know our communication id; it is then
// found by its own and its GUID.
CmConnection* Cm::find_rejected(const wire::RejMessage& m, const Origin& origin) {
    if (CmConnection* const c = table_.find_local(m.remote_comm_id)) {
        const bool is_match = c->remote_comm_id == 0 || c->remote_comm_id == m.local_comm_id;
        return is_match && c->facts.route.peer == origin.peer ? c : nullptr;
    }
    const auto guid = m.ca_guid();
    if (m.reason != static_cast<std::uint16_t>(RejectReason::kTimeout) || !guid) return nullptr;
    CmConnection* const c = table_.find_peer(CmPeerKey::comm_id(m.local_comm_id, *guid));
    return c != nullptr && c->facts.route.peer == origin.peer ? c : nullptr;
}

void Cm::receive(const wire::RejMessage& m, const Origin& origin, Instant now) {
    apply_message(find_rejected(m, origin), CmInput::kRej, {.now = now, .rej = &m});
}

void Cm::receive(const wire::DreqMessage& m, const Origin& origin, Instant now) {
    CmConnection* const c = find_pair(m.remote_comm_id, m.local_comm_id, origin);
    if (c != nullptr && c->local_qpn != m.remote_qpn) {
        ++counters_.out_of_state;
        return;
    }
    if (c != nullptr) return apply_message(c, CmInput::kDreq, {.now = now, .dreq = &m});
    ++counters_.unmatched;
    wire::DrepMessage drep;
    drep.transaction_id = m.transaction_id;
    drep.local_comm_id = m.remote_comm_id;
    drep.remote_comm_id = m.local_comm_id;
    answer(origin, drep);
}

void Cm::receive(const wire::DrepMessage& m, const Origin& origin, Instant now) {
    CmConnection* const c = find_pair(m.remote_comm_id, m.local_comm_id, origin);
    apply_message(c, CmInput::kDrep, {.now = now});
}

// The card has one path to a peer. The answer says so, at the first asking and at each repetition,
// so that the peer does not wait.
void Cm::receive(const wire::LapMessage& m, const Origin& origin, Instant now) {
    CmConnection* const c = find_pair(m.remote_comm_id, m.local_comm_id, origin);
    if (c != nullptr && c->local_qpn != m.remote_qpn) {
        ++counters_.out_of_state;
        return;
    }
    if (c != nullptr) return apply_message(c, CmInput::kLap, {.now = now, .lap = &m});
    ++counters_.unmatched;
    wire::AprMessage apr;
    apr.transaction_id = m.transaction_id;
    apr.local_comm_id = m.remote_comm_id;
    apr.remote_comm_id = m.local_comm_id;
    apr.status = static_cast<std::uint8_t>(wire::AprStatus::kInvalidCommId);
    answer(origin, apr);
}

// We have asked for no path.
void Cm::receive(const wire::AprMessage& m, const Origin& origin, Instant) {
    const bool is_ours = find_pair(m.remote_comm_id, m.local_comm_id, origin) != nullptr;
    ++(is_ours ? counters_.out_of_state : counters_.unmatched);
}

// --- Service id resolution

void Cm::receive(const wire::SidrReqMessage& m, const Origin& origin, Instant now) {
    if (CmConnection* const c = table_.find_peer(CmPeerKey::sidr(m.request_id, origin.peer))) {
        apply_message(c, CmInput::kSidrReq, {.now = now});
        return;
    }
    receive_new(m, origin, now, true);
}

void Cm::receive_new(const wire::SidrReqMessage& m, const Origin& origin, Instant now,
                     bool may_hold) {
    const auto refuse = [&](wire::SidrStatus status) {
        ++counters_.unmatched;
        wire::SidrRepMessage reply;
        reply.transaction_id = m.transaction_id;
        reply.request_id = m.request_id;
        reply.service_id = m.service_id;
        reply.status = static_cast<std::uint8_t>(status);
        answer(origin, reply);
    };
    const auto ip = wire::parse_ip_cm_header(m.private_data);
    const Listener* const listener = ip ? find_listener(m.service_id, *ip) : nullptr;
    if (listener == nullptr) {
        if (may_hold && hold(CmPeerKey::sidr(m.request_id, origin.peer), m, origin, now)) return;
        return refuse(wire::SidrStatus::kUnsupportedService);
    }
    take_service_request(m, *ip, listener->id, origin);
}

void Cm::take_service_request(const wire::SidrReqMessage& m, const wire::IpCmHeader& ip,
                              CmListenerId listener, const Origin& origin) {
    CmConnection* const c = new_connection(origin);
    if (c == nullptr) return;  // the peer asks again
    c->state = CmState::kSidrReqReceived;
    c->listener = listener;
    c->remote_comm_id = m.request_id;
    c->transaction_id = m.transaction_id;
    c->service_id = m.service_id;
    table_.link(CmPeerKey::sidr(m.request_id, origin.peer), *c);
    CmEvent& event = report(*c, CmEventKind::kServiceRequest);
    event.ip = ip;
    event.private_data = user_data(m.private_data);
}

void Cm::receive(const wire::SidrRepMessage& m, const Origin& origin, Instant now) {
    CmConnection* const c = table_.find_local(m.request_id);
    const bool is_match =
        c != nullptr && c->state == CmState::kSidrReqSent && c->facts.route.peer == origin.peer;
    apply_message(is_match ? c : nullptr, CmInput::kSidrRep, {.now = now, .sidr_rep = &m});
}

}  // namespace rdmalab::transport
