#include "card/cm_testing.h"

#include <algorithm>
#include <cerrno>

namespace rdmalab::card::testing {

std::vector<abi::CmEventRecord> FakeCmHost::withdraw_cm(CmSessionId session, std::uint32_t channel,
                                                        std::uint32_t id) {
    ++withdrawals;
    std::vector<abi::CmEventRecord> taken;
    auto& queue = queues[{session.value, channel}];
    std::deque<abi::CmEventRecord> kept;
    for (const abi::CmEventRecord& record : queue) {
        if (record.id == id)
            taken.push_back(record);
        else
            kept.push_back(record);
    }
    queue = std::move(kept);
    return taken;
}

abi::CmAddress cm_address(const std::string& text, std::uint16_t port) {
    CmEndpoint endpoint;
    const Gid gid = *Gid::parse(text);
    endpoint.family = gid.is_ipv4() ? kFamilyIpv4 : kFamilyIpv6;
    endpoint.port = port;
    endpoint.address = gid;
    return endpoint.to_abi();
}

CmClient::CmClient(Door door, FakeCmHost& host, std::uint32_t session)
    : door_(std::move(door)), host_(host), session_{session} {
    abi::CmOpenReply reply{};
    call(abi::CmOp::kOpen, abi::CmOpenRequest{0}, reply);
    visible_ = reply.devices;
    channel_ = create_channel();
}

std::uint32_t CmClient::create_channel() {
    const ControlReply reply = door_(session_, abi::CmOp::kCreateChannel, {});
    return reply.status == 0 ? load_bytes<abi::HandleReply>(reply.body.data()).handle : 0;
}

std::uint32_t CmClient::create_id(std::uint16_t port_space, std::uint8_t type) {
    abi::HandleReply reply{};
    call(abi::CmOp::kCreateId,
         abi::CmCreateIdRequest{next_cookie_++, channel_, port_space, type, 0}, reply);
    return reply.handle;
}

int CmClient::bind(std::uint32_t id, const std::string& address, std::uint16_t port) {
    return call(abi::CmOp::kBind, abi::CmBindRequest{id, 0, cm_address(address, port)});
}

std::uint32_t CmClient::listen(const std::string& address, std::uint16_t port, std::int32_t backlog,
                               std::uint16_t port_space, std::uint8_t type) {
    const std::uint32_t id = create_id(port_space, type);
    if (bind(id, address, port) != 0) return 0;
    return call(abi::CmOp::kListen, abi::CmListenRequest{id, backlog}) == 0 ? id : 0;
}

int CmClient::resolve(std::uint32_t id, const std::string& destination, std::uint16_t port,
                      const std::string& source) {
    abi::CmResolveAddrRequest request{};
    request.id = id;
    request.timeout_ms = 2'000;
    if (!source.empty()) request.source = cm_address(source);
    request.destination = cm_address(destination, port);
    if (const int status = call(abi::CmOp::kResolveAddr, request); status != 0) return status;
    const abi::CmEventRecord record = next();
    if (record.type != abi::CmEventType::kAddrResolved) return -record.status;
    const int status = call(abi::CmOp::kResolveRoute, abi::CmResolveRouteRequest{id, 2'000});
    return status != 0 || next().type == abi::CmEventType::kRouteResolved ? status : EIO;
}

int CmClient::connect(std::uint32_t id, std::uint32_t qpn) {
    abi::CmConnectRequest request{};
    request.id = id;
    request.conn.qp_num = qpn;
    request.conn.responder_resources = 1;
    request.conn.initiator_depth = 1;
    request.conn.retry_count = 7;
    return call(abi::CmOp::kConnect, request);
}

int CmClient::accept(std::uint32_t id, std::uint32_t qpn) {
    abi::CmConnectRequest request{};
    request.id = id;
    request.conn.qp_num = qpn;
    return call(abi::CmOp::kAccept, request);
}

int CmClient::adopt(std::uint32_t id, std::uint32_t channel) {
    return call(abi::CmOp::kAdopt,
                abi::CmAdoptRequest{next_cookie_++, id, channel == 0 ? channel_ : channel});
}

int CmClient::destroy(std::uint32_t id, std::uint32_t events_read) {
    return call(abi::CmOp::kDestroyId, abi::CmDestroyIdRequest{id, events_read});
}

abi::CmIdInfo CmClient::info(std::uint32_t id) {
    abi::CmIdInfo info{};
    call(abi::CmOp::kQuery, abi::HandleRequest{id}, info);
    return info;
}

abi::CmEventRecord CmClient::next(std::uint32_t channel) {
    auto& queue = host_.queues[{session_.value, channel == 0 ? channel_ : channel}];
    abi::CmEventRecord record{};
    record.type = abi::CmEventType::kDeviceRemoval;
    if (queue.empty()) return record;
    record = queue.front();
    queue.pop_front();
    return record;
}

std::size_t CmClient::pending(std::uint32_t channel) {
    return host_.queues[{session_.value, channel == 0 ? channel_ : channel}].size();
}

CmWorld::CmWorld(CardConfig given) : config(std::move(given)), service(config, host) {}

CmClient CmWorld::client(DeviceSet visible) {
    const auto door = [this, visible](CmSessionId session, abi::CmOp op, ByteView body) {
        return op == abi::CmOp::kOpen ? service.open_session(session, visible, body)
                                      : service.handle_request(session, op, body, now);
    };
    return CmClient(door, host, next_session_++);
}

bool CmWorld::move_frames() {
    bool any = false;
    for (std::uint32_t from = 0; from < config.functions.size(); ++from) {
        for (wire::Frame frame; service.poll_frame(from, frame);) {
            any = true;
            if (drop && drop(frame)) continue;
            const auto to = std::find_if(
                config.functions.begin(), config.functions.end(),
                [&](const FunctionConfig& f) { return f.mac == wire::destination_mac(frame); });
            if (to == config.functions.end()) continue;
            service.handle_frame(static_cast<std::uint32_t>(to - config.functions.begin()), frame,
                                 now);
        }
    }
    return any;
}

void CmWorld::run_for(Duration time) {
    const Instant end = now + time;
    while (true) {
        while (move_frames()) {
        }
        const Instant next = service.next_deadline();
        if (next > end) break;
        now = std::max(now, next);
        service.handle_timeout(now);
    }
    now = end;
}

CmWorld::Connected CmWorld::establish(CmClient& a, CmClient& b, const std::string& address,
                                      std::uint16_t port, std::uint32_t qpn) {
    Connected ids{};
    ids.active = a.create_id();
    a.resolve(ids.active, address, port);
    a.connect(ids.active, qpn);
    run_for(milliseconds(1));
    ids.passive = b.next().new_id;
    b.adopt(ids.passive);
    b.accept(ids.passive, qpn + 0x10'0000);
    run_for(milliseconds(1));
    a.next();
    a.establish(ids.active);
    run_for(milliseconds(1));
    b.next();
    return ids;
}

}  // namespace rdmalab::card::testing
