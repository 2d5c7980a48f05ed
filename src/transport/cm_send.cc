// The messages that a connection sends, the events that its user gets, and the frames that carry
// the messages.
#include <algorithm>

#include "transport/cm.h"

namespace rdmalab::transport {
namespace {

constexpr std::uint8_t kHopLimit = 64;
constexpr std::uint8_t kFailoverNotSupported = 1;
constexpr std::uint8_t kExtendedServiceXrc = 1;
constexpr std::uint16_t kPkey = 0xffff;

template <std::size_t N>
void put_private_data(wire::PrivateData<N>& field, std::span<const std::uint8_t> data,
                      std::size_t offset = 0) {
    std::copy_n(data.begin(), std::min(data.size(), N - offset), field.begin() + offset);
}

// Which message a REJ from this state is about.
wire::CmSubject subject_of(CmState state) {
    switch (state) {
        case CmState::kReqReceived:
        case CmState::kMraReqSent:
            return wire::CmSubject::kReq;
        case CmState::kRepReceived:
        case CmState::kMraRepSent:
            return wire::CmSubject::kRep;
        default:
            return wire::CmSubject::kOther;
    }
}

template <class Message>
Message message_of(const CmConnection& c) {
    Message m;
    m.transaction_id = c.transaction_id;
    m.local_comm_id = c.local_comm_id;
    if constexpr (requires { m.remote_comm_id; }) m.remote_comm_id = c.remote_comm_id;
    return m;
}

}  // namespace

// --- The way out

void Cm::send_once(const CmConnection& c, const wire::CmMessage& message) {
    Outgoing& outgoing = outbox_.emplace_back();
    outgoing.lower = c.lower;
    wire::emit_cm(message, outgoing.mad);
}

void Cm::send(CmConnection& c, const wire::CmMessage& message) {
    send_once(c, message);
    c.last_mad = outbox_.back().mad;
}

void Cm::resend(const CmConnection& c) {
    outbox_.push_back({c.lower, c.last_mad});
    ++counters_.retransmitted;
}

void Cm::answer(const Origin& origin, const wire::CmMessage& message) {
    wire::Path path;
    path.source_mac = config_.mac;
    path.destination_mac = origin.peer_mac;
    path.source = origin.local;
    path.destination = origin.peer;
    path.source_port = wire::source_port_for(0, wire::kGsiQpn, wire::kGsiQpn);
    Outgoing& outgoing = outbox_.emplace_back();
    outgoing.lower = wire::make_lower_template(path);
    wire::emit_cm(message, outgoing.mad);
}

bool Cm::poll_frame(wire::Frame& out) {
    if (outbox_.empty()) return false;
    static const wire::OpcodeInfo& info = *wire::find_opcode(
        wire::opcode_value(wire::Service::kUd, wire::PacketKind::kSend, wire::Position::kOnly));
    wire::MadBytes& mad = frames_[frame_index_++ % kFramesValid];
    mad = outbox_.front().mad;
    wire::start_roce(out, outbox_.front().lower, info);
    outbox_.pop_front();
    out.origin = 0;
    wire::header_at<wire::Bth>(out, out.bth_offset)->destination_qp = wire::kGsiQpn.value;
    auto* const deth = wire::header_at<wire::Deth>(out, out.bth_offset + sizeof(wire::Bth));
    deth->qkey = wire::kGsiQkey;
    deth->source_qp = wire::kGsiQpn.value;
    out.add_segment({kCardSpace, wire::kMadLength, reinterpret_cast<std::uint64_t>(mad.data())});
    wire::finish_roce(out);
    ++counters_.tx_mads;
    return true;
}

// --- Connections

void Cm::send_req(CmConnection& c, const CmConnect& request) {
    c.transaction_id = transaction_id_++;
    c.facts.service = request.service;
    wire::ReqMessage m = message_of<wire::ReqMessage>(c);
    m.service_id = request.service_id;
    m.ca_guid = config_.ca_guid;
    m.qpn = request.qp.qpn;
    m.starting_psn = c.facts.receive_psn;
    m.responder_resources = request.qp.responder_resources;
    m.initiator_depth = request.qp.initiator_depth;
    m.remote_response_timeout = config_.response_timeout;
    m.local_response_timeout = config_.response_timeout;
    m.max_cm_retries = config_.max_retries;
    m.service = request.service == CmQpService::kXrc  ? wire::CmService::kExtended
                : request.service == CmQpService::kUc ? wire::CmService::kUc
                                                      : wire::CmService::kRc;
    m.extended_service = request.service == CmQpService::kXrc ? kExtendedServiceXrc : 0;
    m.flow_control = request.qp.flow_control;
    m.srq = request.qp.srq;
    m.retry_count = request.qp.retry_count;
    m.rnr_retry_count = request.qp.rnr_retry_count;
    m.pkey = kPkey;
    m.path_mtu = config_.path_mtu;
    m.primary.local_gid = request.route.local;
    m.primary.remote_gid = request.route.peer;
    m.primary.packet_rate = config_.packet_rate;
    m.primary.traffic_class = request.route.traffic_class;
    m.primary.hop_limit = kHopLimit;
    m.primary.ack_timeout = c.facts.ack_timeout;
    m.ece = request.ece;
    wire::emit_ip_cm_header(request.ip, m.private_data);
    put_private_data(m.private_data, request.private_data, wire::kIpCmHeaderLength);
    send(c, m);
}

void Cm::send_rep(CmConnection& c, const CmAccept& accept) {
    c.local_qpn = accept.qp.qpn;
    c.facts.responder_resources = accept.qp.responder_resources;
    c.facts.initiator_depth = accept.qp.initiator_depth;
    wire::RepMessage m = message_of<wire::RepMessage>(c);
    if (c.facts.service == CmQpService::kXrc)
        m.eecn = accept.qp.qpn.value;
    else
        m.qpn = accept.qp.qpn;
    m.starting_psn = c.facts.receive_psn;
    m.responder_resources = accept.qp.responder_resources;
    m.initiator_depth = accept.qp.initiator_depth;
    m.failover_accepted = kFailoverNotSupported;
    m.flow_control = accept.qp.flow_control;
    m.srq = accept.qp.srq || c.facts.service == CmQpService::kXrc;
    m.rnr_retry_count = accept.qp.rnr_retry_count;
    m.ca_guid = config_.ca_guid;
    m.ece = accept.ece;
    put_private_data(m.private_data, accept.private_data);
    send(c, m);
}

void Cm::send_rtu(CmConnection& c) { send(c, message_of<wire::RtuMessage>(c)); }

void Cm::send_mra(CmConnection& c, CmState from) {
    wire::MraMessage m = message_of<wire::MraMessage>(c);
    m.subject = subject_of(from);
    m.service_timeout = config_.service_timeout;
    // The peer now waits longer before it repeats itself.
    c.linger = c.retry_interval * 2 + cm_time(config_.service_timeout);
    send_once(c, m);
}

void Cm::send_rej(CmConnection& c, CmState from, const CmReject& reject) {
    wire::RejMessage m = message_of<wire::RejMessage>(c);
    m.subject = subject_of(from);
    m.reason = reject.reason;
    put_private_data(m.private_data, reject.private_data);
    send(c, m);
}

void Cm::send_rej_timeout(const CmConnection& c, CmState from) {
    wire::RejMessage m = message_of<wire::RejMessage>(c);
    m.subject = subject_of(from);
    m.reason = static_cast<std::uint16_t>(wire::RejectReason::kTimeout);
    m.set_ca_guid(config_.ca_guid);
    send_once(c, m);
}

void Cm::send_rej_stale(const CmConnection& c) {
    wire::RejMessage m = message_of<wire::RejMessage>(c);
    m.subject = wire::CmSubject::kReq;
    m.reason = static_cast<std::uint16_t>(wire::RejectReason::kStaleConnection);
    send_once(c, m);
}

void Cm::send_dreq(CmConnection& c) {
    c.transaction_id = transaction_id_++;
    wire::DreqMessage m = message_of<wire::DreqMessage>(c);
    m.remote_qpn = c.facts.remote_qpn;
    send(c, m);
}

void Cm::send_drep(const CmConnection& c, const wire::DreqMessage& dreq) {
    wire::DrepMessage m = message_of<wire::DrepMessage>(c);
    m.transaction_id = dreq.transaction_id;
    send_once(c, m);
}

void Cm::send_apr(const CmConnection& c, const wire::LapMessage& lap) {
    wire::AprMessage m = message_of<wire::AprMessage>(c);
    m.transaction_id = lap.transaction_id;
    m.status = static_cast<std::uint8_t>(wire::AprStatus::kNotSupported);
    send_once(c, m);
}

// --- Service id resolution

void Cm::send_sidr_req(CmConnection& c, const CmServiceQuery& request) {
    c.transaction_id = transaction_id_++;
    wire::SidrReqMessage m;
    m.transaction_id = c.transaction_id;
    m.request_id = c.local_comm_id;
    m.pkey = kPkey;
    m.service_id = request.service_id;
    wire::emit_ip_cm_header(request.ip, m.private_data);
    put_private_data(m.private_data, request.private_data, wire::kIpCmHeaderLength);
    send(c, m);
}

// Neither an answer: the user is gone.
void Cm::send_sidr_rep(CmConnection& c, const CmAccept* accept, const CmReject* reject) {
    wire::SidrRepMessage m;
    m.transaction_id = c.transaction_id;
    m.request_id = c.remote_comm_id;
    m.service_id = c.service_id;
    m.status = static_cast<std::uint8_t>(accept != nullptr ? wire::SidrStatus::kValid
                                                           : wire::SidrStatus::kRejected);
    if (accept != nullptr) {
        m.qpn = accept->qp.qpn;
        m.qkey = accept->qkey;
        m.ece = accept->ece;
        put_private_data(m.private_data, accept->private_data);
    } else if (reject != nullptr) {
        put_private_data(m.private_data, reject->private_data);
    }
    send(c, m);
}

// --- Events

CmEvent& Cm::report(const CmConnection& c, CmEventKind kind, int status) {
    CmEvent& event = c.is_abandoned ? discarded_ : events_.emplace_back();
    event.kind = kind;
    event.connection = c.id;
    event.listener = c.listener;
    event.status = status;
    event.service_id = c.service_id;
    event.service = c.facts.service;
    event.route = c.facts.route;
    return event;
}

void Cm::report_reply(const CmConnection& c, const wire::RepMessage& m) {
    CmEvent& event = report(c, CmEventKind::kReply);
    event.qp = {c.facts.remote_qpn,
                m.initiator_depth,
                m.responder_resources,
                c.facts.retry_count,
                m.rnr_retry_count,
                m.flow_control,
                m.srq};
    event.qkey = m.qkey;
    event.ece = m.ece;
    event.private_data.assign(m.private_data.begin(), m.private_data.end());
}

void Cm::report_rejected(const CmConnection& c, const wire::RejMessage& m) {
    CmEvent& event = report(c, CmEventKind::kRejected, m.reason);
    event.private_data.assign(m.private_data.begin(), m.private_data.end());
}

void Cm::report_service_reply(const CmConnection& c, const wire::SidrRepMessage& m) {
    CmEvent& event = report(c, CmEventKind::kServiceReply, m.status);
    event.qp.qpn = m.qpn;
    event.qkey = m.qkey;
    event.ece = m.ece;
    event.private_data.assign(m.private_data.begin(), m.private_data.end());
}

}  // namespace rdmalab::transport
