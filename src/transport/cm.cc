// How an input becomes a change: look the step up, take the state with its timer, carry the action
// out. Calls of the user and timers come through here; messages through cm_receive.cc.
#include "transport/cm.h"

#include <algorithm>
#include <cerrno>

namespace rdmalab::transport {
namespace {

constexpr std::size_t kReqUserData =
    sizeof(wire::ReqMessage::private_data) - wire::kIpCmHeaderLength;
constexpr std::size_t kSidrReqUserData =
    sizeof(wire::SidrReqMessage::private_data) - wire::kIpCmHeaderLength;
constexpr std::size_t kRepUserData = sizeof(wire::RepMessage::private_data);
constexpr std::size_t kRejUserData = sizeof(wire::RejMessage::private_data);
constexpr std::size_t kSidrRepUserData = sizeof(wire::SidrRepMessage::private_data);

// What a peer may ask for is kept within reason: a zero would make us flood it, a maximum would
// keep a connection for hours.
constexpr std::uint8_t kResponseTimeoutMin = 12, kResponseTimeoutMax = 21;  // 17 ms .. 8.6 s
constexpr std::uint8_t kServiceTimeoutMax = 24;                             // 69 s

bool is_sidr(CmState state) {
    return state == CmState::kSidrReqSent || state == CmState::kSidrReqReceived ||
           state == CmState::kSidrAnswered;
}

}  // namespace

Cm::Cm(const CmConfig& config)
    : config_(config),
      prng_(config.seed),
      transaction_id_(prng_.next()),
      table_(config.connection_max, static_cast<std::uint32_t>(prng_.next())) {}

// --- Services

int Cm::listen(CmListenerId listener, const CmListen& spec) {
    std::vector<Listener>& listeners = services_[spec.service_id];
    for (const Listener& other : listeners) {
        const bool shares_family = (other.spec.takes_ipv4 && spec.takes_ipv4) ||
                                   (other.spec.takes_ipv6 && spec.takes_ipv6);
        if (other.spec.address == spec.address && (spec.address || shares_family))
            return EADDRINUSE;
    }
    listeners.push_back({listener, spec});
    listener_services_[listener] = spec.service_id;
    return 0;
}

void Cm::unlisten(CmListenerId listener) {
    const auto service = listener_services_.find(listener);
    if (service == listener_services_.end()) return;
    const auto listeners = services_.find(service->second);
    std::erase_if(listeners->second, [listener](const Listener& l) { return l.id == listener; });
    if (listeners->second.empty()) services_.erase(listeners);
    listener_services_.erase(service);
}

const Cm::Listener* Cm::find_listener(std::uint64_t service_id, const wire::IpCmHeader& ip) const {
    const auto service = services_.find(service_id);
    if (service == services_.end()) return nullptr;
    const Listener* wildcard = nullptr;
    for (const Listener& listener : service->second) {
        if (listener.spec.address == ip.destination) return &listener;
        const bool fits = ip.ip_version == 4 ? listener.spec.takes_ipv4 : listener.spec.takes_ipv6;
        if (!listener.spec.address && fits) wildcard = &listener;
    }
    return wildcard;
}

// --- Calls

CmConnection* Cm::new_connection(const CmRoute& route) {
    CmConnection* const c = table_.create();
    if (c == nullptr) return nullptr;
    c->facts.route = route;
    wire::Path path;
    path.source_mac = config_.mac;
    path.destination_mac = route.peer_mac;
    path.source = route.local;
    path.destination = route.peer;
    path.traffic_class = route.traffic_class;
    path.source_port = wire::source_port_for(0, Qpn{c->local_comm_id | 1}, wire::kGsiQpn);
    c->lower = wire::make_lower_template(path);
    c->facts.receive_psn = Psn(static_cast<std::uint32_t>(prng_.next()));
    set_retries(*c, config_.response_timeout, config_.max_retries);
    return c;
}

void Cm::set_retries(CmConnection& c, std::uint8_t response_timeout, std::uint8_t retries) {
    response_timeout = std::clamp(response_timeout, kResponseTimeoutMin, kResponseTimeoutMax);
    c.retry_interval = cm_time(response_timeout) + cm_time(config_.packet_life_time) * 2;
    c.retries_max = retries;
    c.linger = c.retry_interval * 2;
}

Result<CmConnId> Cm::connect(const CmConnect& request, Instant now) {
    if (request.private_data.size() > kReqUserData)
        return Error{EINVAL, "private data of a connect request is at most 56 bytes"};
    CmConnection* const c = new_connection(request.route);
    if (c == nullptr) return Error{ENOMEM, "too many connections"};
    c->is_active = true;
    c->service_id = request.service_id;
    c->local_qpn = request.qp.qpn;
    c->facts.path_mtu = config_.path_mtu;
    c->facts.responder_resources = request.qp.responder_resources;
    c->facts.initiator_depth = request.qp.initiator_depth;
    c->facts.retry_count = request.qp.retry_count;
    c->facts.rnr_retry_count = request.qp.rnr_retry_count;
    c->facts.ack_timeout = request.ack_timeout != 0
                               ? request.ack_timeout
                               : static_cast<std::uint8_t>(config_.packet_life_time + 1);
    c->state = CmState::kReqSent;
    enter_state(*c, now);
    send_req(*c, request);
    return c->id;
}

Result<CmConnId> Cm::query_service(const CmServiceQuery& request, Instant now) {
    if (request.private_data.size() > kSidrReqUserData)
        return Error{EINVAL, "private data of a service query is at most 180 bytes"};
    CmConnection* const c = new_connection(request.route);
    if (c == nullptr) return Error{ENOMEM, "too many connections"};
    c->is_active = true;
    c->service_id = request.service_id;
    c->state = CmState::kSidrReqSent;
    enter_state(*c, now);
    send_sidr_req(*c, request);
    return c->id;
}

int Cm::accept(CmConnId id, const CmAccept& answer, Instant now) {
    const CmConnection* const c = table_.find(id);
    if (c == nullptr) return EINVAL;
    if (answer.private_data.size() > (is_sidr(c->state) ? kSidrRepUserData : kRepUserData))
        return EINVAL;
    return apply_call(id, CmInput::kAccept, {.now = now, .accept = &answer});
}

int Cm::reject(CmConnId id, const CmReject& answer, Instant now) {
    const CmConnection* const c = table_.find(id);
    if (c == nullptr) return EINVAL;
    if (answer.private_data.size() > (is_sidr(c->state) ? kSidrRepUserData : kRejUserData))
        return EINVAL;
    return apply_call(id, CmInput::kReject, {.now = now, .reject = &answer});
}

int Cm::establish(CmConnId id, Instant now) {
    return apply_call(id, CmInput::kEstablish, {.now = now});
}
int Cm::disconnect(CmConnId id, Instant now) {
    return apply_call(id, CmInput::kDisconnect, {.now = now});
}
int Cm::notify_established(CmConnId id, Instant now) {
    return apply_call(id, CmInput::kNotify, {.now = now});
}

int Cm::apply_call(CmConnId id, CmInput input, const Occasion& occasion) {
    CmConnection* const c = table_.find(id);
    if (c == nullptr || c->is_abandoned) return EINVAL;
    if (cm_step(c->state, input).action == CmAction::kRefuse) return EINVAL;
    apply(*c, input, occasion);
    return 0;
}

void Cm::release(CmConnId id, Instant now) {
    CmConnection* const c = table_.find(id);
    if (c == nullptr || c->is_abandoned) return;
    c->is_abandoned = true;
    apply(*c, CmInput::kRelease, {.now = now});
}

void Cm::forget(CmConnId id, Instant now) {
    CmConnection* const c = table_.find(id);
    if (c == nullptr || c->is_abandoned) return;
    if (c->state != CmState::kReqReceived && c->state != CmState::kSidrReqReceived) return;
    c->is_abandoned = true;
    c->state = CmState::kIdle;
    enter_state(*c, now);
    finish(*c);
}

// --- Steps

void Cm::apply(CmConnection& c, CmInput input, const Occasion& occasion) {
    const CmState from = c.state;
    const CmStep step = cm_step(from, input);
    c.state = step.next;
    if (step.next != from) enter_state(c, occasion.now);
    perform(c, step.action, from, occasion);
    if (c.state == CmState::kIdle) finish(c);
}

// The timer of the state. After an MRA it is the one that kExtend sets.
void Cm::enter_state(CmConnection& c, Instant now) {
    switch (c.state) {
        case CmState::kReqSent:
        case CmState::kRepSent:
        case CmState::kDreqSent:
        case CmState::kSidrReqSent:
            c.retries_left = c.retries_max;
            table_.set_deadline(c, now + c.retry_interval);
            return;
        case CmState::kMraReqReceived:
        case CmState::kMraRepReceived:
            return;
        case CmState::kTimewait:
            // The QP may be used again from here on; the communication id not before the end.
            table_.unlink(CmPeerKey::qpn(c.facts.remote_qpn, c.remote_ca_guid), c);
            table_.set_deadline(c, now + c.linger);
            return;
        case CmState::kRejected:
        case CmState::kSidrAnswered:
            table_.unlink(CmPeerKey::qpn(c.facts.remote_qpn, c.remote_ca_guid), c);
            table_.set_deadline(c, now + c.linger);
            return;
        case CmState::kEstablished:
            // Both sides have what they asked for: nobody repeats a REQ or REP any more.
            c.linger = cm_time(config_.packet_life_time) * 2;
            [[fallthrough]];
        case CmState::kIdle:
        case CmState::kRepReceived:
        case CmState::kMraRepSent:
        case CmState::kReqReceived:
        case CmState::kMraReqSent:
        case CmState::kSidrReqReceived:
            table_.set_deadline(c, Instant::never());
            return;
    }
}

void Cm::perform(CmConnection& c, CmAction action, CmState from, const Occasion& occasion) {
    switch (action) {
        case CmAction::kIgnore:
        case CmAction::kRefuse:
            return;
        case CmAction::kResend:
            return resend(c);
        case CmAction::kSendRep:
            return send_rep(c, *occasion.accept);
        case CmAction::kSendRtu:
            return send_rtu(c);
        case CmAction::kSendMra:
            return send_mra(c, from);
        case CmAction::kSendRej:
            return send_rej(c, from, *occasion.reject);
        case CmAction::kSendRejTimeout:
            return send_rej_timeout(c, from);
        case CmAction::kSendRejConsumer:
            return send_rej(c, from, {});
        case CmAction::kSendRejStale:
            return send_rej_stale(c);
        case CmAction::kSendDreq:
            return send_dreq(c);
        case CmAction::kAnswerDreq:
            return send_drep(c, *occasion.dreq);
        case CmAction::kAnswerLap:
            return send_apr(c, *occasion.lap);
        case CmAction::kSendSidrRep:
            return send_sidr_rep(c, occasion.accept, occasion.reject);
        case CmAction::kSendSidrReject:
            return send_sidr_rep(c, nullptr, nullptr);
        case CmAction::kExtend:
            return extend(c, *occasion.mra, occasion.now);
        case CmAction::kTakeRep:
            take_rep(c, *occasion.rep);
            return report_reply(c, *occasion.rep);
        case CmAction::kReportEstablished:
            report(c, CmEventKind::kEstablished);
            return;
        case CmAction::kReportRejected:
            return report_rejected(c, *occasion.rej);
        case CmAction::kReportUnreachable:
            send_rej_timeout(c, from);
            [[fallthrough]];
        case CmAction::kReportServiceUnreachable:
            report(c, CmEventKind::kUnreachable, -ETIMEDOUT);
            return;
        case CmAction::kReportServiceReply:
            return report_service_reply(c, *occasion.sidr_rep);
        case CmAction::kTakeDreq:
            send_drep(c, *occasion.dreq);
            [[fallthrough]];
        case CmAction::kReportDisconnected:
            report(c, CmEventKind::kDisconnected);
            return;
        case CmAction::kReportTimewaitExit:
            report(c, CmEventKind::kTimewaitExit);
            return;
    }
}

void Cm::extend(CmConnection& c, const wire::MraMessage& mra, Instant now) {
    const auto timeout = std::min(mra.service_timeout, kServiceTimeoutMax);
    table_.set_deadline(c, now + cm_time(timeout) + c.retry_interval);
}

// The connection is over: the peer's messages do not find it any more.
void Cm::finish(CmConnection& c) {
    table_.unlink(CmPeerKey::comm_id(c.remote_comm_id, c.remote_ca_guid), c);
    table_.unlink(CmPeerKey::sidr(c.remote_comm_id, c.facts.route.peer), c);
    table_.unlink(CmPeerKey::qpn(c.facts.remote_qpn, c.remote_ca_guid), c);
    if (c.is_abandoned) table_.free(c);
}

// --- Time and facts

Instant Cm::next_deadline() const {
    const Instant held = held_.empty() ? Instant::never() : held_.front().deadline;
    return std::min(table_.next_deadline(), held);
}

void Cm::handle_timeout(Instant now) {
    release_held(now);
    while (CmConnection* const c = table_.next_due(now)) {
        if (c->retries_left > 0) {
            --c->retries_left;
            table_.set_deadline(*c, now + c->retry_interval);
            apply(*c, CmInput::kTimeout, {.now = now});
        } else {
            table_.set_deadline(*c, Instant::never());
            apply(*c, CmInput::kGaveUp, {.now = now});
        }
    }
}

const CmQpFacts* Cm::facts(CmConnId id) const {
    const CmConnection* const c = table_.find(id);
    return c == nullptr ? nullptr : &c->facts;
}

std::optional<CmState> Cm::state(CmConnId id) const {
    const CmConnection* const c = table_.find(id);
    if (c == nullptr) return std::nullopt;
    return c->state;
}

Cm::Counts Cm::counts() const {
    return {table_.size(), table_.key_count(), table_.timer_count(), listener_services_.size()};
}

bool Cm::poll_event(CmEvent& out) {
    if (events_.empty()) return false;
    out = std::move(events_.front());
    events_.pop_front();
    return true;
}

}  // namespace rdmalab::transport
