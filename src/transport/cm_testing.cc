#include "transport/cm_testing.h"

#include "wire/icrc.h"

namespace rdmalab::transport::testing {
namespace {

MacAddress mac_of(std::size_t index) {
    return {{2, 0, 0, 0, 0, static_cast<std::uint8_t>(index + 1)}};
}

const char* name_of(CmEventKind kind) {
    switch (kind) {
        case CmEventKind::kRequest:
            return "Request";
        case CmEventKind::kReply:
            return "Reply";
        case CmEventKind::kEstablished:
            return "Established";
        case CmEventKind::kRejected:
            return "Rejected";
        case CmEventKind::kUnreachable:
            return "Unreachable";
        case CmEventKind::kDisconnected:
            return "Disconnected";
        case CmEventKind::kTimewaitExit:
            return "TimewaitExit";
        case CmEventKind::kServiceRequest:
            return "ServiceRequest";
        case CmEventKind::kServiceReply:
            return "ServiceReply";
    }
    return "?";
}

const char* message_name(const wire::CmMessage& message) {
    return std::visit([](const auto& m) { return wire::to_string(m.kAttribute); }, message);
}

}  // namespace

Gid client_gid() { return Gid::from_ipv4(0x0a00'0002); }
Gid server_gid() { return Gid::from_ipv4(0x0a00'0001); }

wire::MadBytes mad_of(const wire::Frame& frame) {
    wire::MadBytes mad{};
    std::memcpy(mad.data(), reinterpret_cast<const std::byte*>(frame.segments[0].address),
                std::min<std::size_t>(mad.size(), frame.segments[0].length));
    return mad;
}

std::vector<std::byte> bytes_of(const wire::Frame& frame) {
    std::vector<std::byte> bytes(wire::wire_length(frame));
    wire::write_frame(frame, mad_of(frame), bytes);
    return bytes;
}

wire::Frame gsi_frame(const Gid& source, const Gid& destination, const wire::MadBytes& mad) {
    wire::Path path;
    path.source = source;
    path.destination = destination;
    path.source_mac = mac_of(7);
    wire::Frame frame;
    wire::start_roce(frame, wire::make_lower_template(path), *wire::find_opcode(0x64));
    wire::header_at<wire::Bth>(frame, frame.bth_offset)->destination_qp = 1;
    auto* const deth = wire::header_at<wire::Deth>(frame, frame.bth_offset + sizeof(wire::Bth));
    deth->qkey = wire::kGsiQkey;
    deth->source_qp = 1;
    frame.add_segment({kCardSpace, wire::kMadLength, reinterpret_cast<std::uint64_t>(mad.data())});
    wire::finish_roce(frame);
    return frame;
}

CmConfig CmPair::config(std::size_t index, std::uint64_t seed) {
    CmConfig config;
    config.mac = mac_of(index);
    config.gids = {index == 0 ? client_gid() : server_gid()};
    config.ca_guid = 0x0200'00ff'fe00'0000 + index + 1;
    config.seed = seed * 2 + index;
    return config;
}

CmPair::CmPair(std::uint64_t seed, CmLink link)
    : link_(link),
      prng_(seed ^ 0x5eed),
      nodes_{Node{Cm(config(0, seed)), {}}, Node{Cm(config(1, seed)), {}}} {}

CmConnect CmPair::connect_request(Qpn qpn) const {
    CmConnect request;
    request.route = {client_gid(), server_gid(), mac_of(1)};
    request.service_id = kService;
    request.ip = {4, 50'000, client_gid(), server_gid()};
    request.qp.qpn = qpn;
    request.qp.responder_resources = 3;
    request.qp.initiator_depth = 2;
    request.qp.retry_count = 7;
    request.qp.rnr_retry_count = 6;
    return request;
}

CmServiceQuery CmPair::service_query() const {
    CmServiceQuery request;
    request.route = {client_gid(), server_gid(), mac_of(1)};
    request.service_id = kUdService;
    request.ip = {4, 50'000, client_gid(), server_gid()};
    return request;
}

void CmPair::listen() {
    server().listen(CmListenerId{1}, {.service_id = kService});
    server().listen(CmListenerId{2}, {.service_id = kUdService});
}

void CmPair::put(std::size_t from, const std::vector<std::byte>& bytes) {
    Instant due = now_ + link_.delay;
    if (link_.jitter.ns > 0)
        due = due + nanoseconds(static_cast<std::int64_t>(prng_.below(link_.jitter.ns)));
    in_flight_.emplace(due, InFlight{1 - from, bytes});
}

void CmPair::collect(std::size_t from) {
    Node& node = nodes_[from];
    for (wire::Frame frame; node.cm.poll_frame(frame);) {
        wire::CmMessage message;
        const wire::MadBytes mad = mad_of(frame);
        wire::parse_cm(mad, message);
        trace.push_back(std::string(from == 0 ? "c " : "s ") + message_name(message));
        if (drop && drop(from == 0, message)) continue;
        if (prng_.chance(link_.loss)) continue;
        const auto bytes = bytes_of(frame);
        put(from, bytes);
        if (prng_.chance(link_.duplicate)) put(from, bytes);
    }
    for (CmEvent event; node.cm.poll_event(event);) node.events.push_back(event);
}

void CmPair::deliver(const InFlight& in_flight) {
    wire::Frame frame;
    const auto address = reinterpret_cast<std::uint64_t>(in_flight.bytes.data());
    if (wire::parse_frame(in_flight.bytes, {kCardSpace, 0, address}, frame) !=
        wire::ParseError::kNone)
        return;
    nodes_[in_flight.to].cm.handle_frame(frame, now_);
}

void CmPair::run_for(Duration time) {
    const Instant end = now_ + time;
    while (true) {
        for (std::size_t i = 0; i < nodes_.size(); ++i) collect(i);
        Instant next = in_flight_.empty() ? Instant::never() : in_flight_.begin()->first;
        for (Node& node : nodes_) next = std::min(next, node.cm.next_deadline());
        if (next > end) break;
        now_ = std::max(now_, next);
        while (!in_flight_.empty() && in_flight_.begin()->first <= now_) {
            const InFlight frame = std::move(in_flight_.begin()->second);
            in_flight_.erase(in_flight_.begin());
            deliver(frame);
        }
        for (Node& node : nodes_) node.cm.handle_timeout(now_);
    }
    now_ = end;
}

std::vector<CmEvent> CmPair::take(std::size_t index) {
    collect(index);
    return std::exchange(nodes_[index].events, {});
}

std::vector<std::string> CmPair::names(const std::vector<CmEvent>& events) {
    std::vector<std::string> names;
    for (const CmEvent& event : events) {
        std::string name = name_of(event.kind);
        if (event.status != 0) name += "(" + std::to_string(event.status) + ")";
        names.push_back(name);
    }
    return names;
}

CmPair::Connected CmPair::establish(Qpn client_qpn, Qpn server_qpn) {
    Connected ids;
    ids.client = client().connect(connect_request(client_qpn), now_).value();
    run_for(milliseconds(1));
    ids.server = server_events().back().connection;
    CmAccept answer;
    answer.qp.qpn = server_qpn;
    server().accept(ids.server, answer, now_);
    run_for(milliseconds(1));
    client().establish(ids.client, now_);
    run_for(milliseconds(1));
    client_events();
    server_events();
    return ids;
}

}  // namespace rdmalab::transport::testing
