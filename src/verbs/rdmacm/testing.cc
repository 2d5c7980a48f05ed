#include "verbs/rdmacm/testing.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "verbs/rdmacm/id.h"
#include "verbs/rdmacm/marshal.h"

namespace rdmalab::rdmacm::testing {

namespace {

template <class T>
std::vector<std::byte> bytes_of(const T& value) {
    std::vector<std::byte> out(sizeof value);
    memcpy(out.data(), &value, sizeof value);
    return out;
}

template <class T>
T body_as(ByteView body) {
    T out{};
    memcpy(static_cast<void*>(&out), body.data(), std::min(body.size(), sizeof out));
    return out;
}

constexpr std::uint8_t kLocalGid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
constexpr std::uint8_t kPeerGid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2};

abi::CmInitQpAttrReply attributes_for(std::uint32_t state) {
    abi::CmInitQpAttrReply out{};
    out.attributes.state = state;
    out.mask = IBV_QP_STATE;
    if (state == IBV_QPS_RTR) {
        out.mask |= IBV_QP_DEST_QPN | IBV_QP_MAX_DEST_RD_ATOMIC;
        out.attributes.destination_qpn = 0x77;
        out.attributes.responder_resources = 3;
    }
    if (state == IBV_QPS_RTS) {
        out.mask |= IBV_QP_MAX_QP_RD_ATOMIC;
        out.attributes.reads_outstanding = 4;
    }
    return out;
}

}  // namespace

FakeCm::FakeCm() {
    char folder[] = "/tmp/rdmalab-fake-cm-XXXXXX";
    if (mkdtemp(folder) == nullptr) abort();
    path_ = std::string(folder) + "/card.sock";
    setenv("RDMALAB_SOCKET", path_.c_str(), 1);
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    path_.copy(name.sun_path, sizeof name.sun_path - 1);
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) abort();
    if (listen(listener_, 16) != 0) abort();
    accepting_ = std::thread([this] { accept_clients(); });
}

FakeCm::~FakeCm() {
    die();
    rmdir(path_.substr(0, path_.rfind('/')).c_str());
}

void FakeCm::die() {
    if (listener_ < 0) return;
    shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    close(listener_);
    listener_ = -1;
    unlink(path_.c_str());
    {
        std::lock_guard guard(mutex_);
        for (int fd : connections_) shutdown(fd, SHUT_RDWR);
    }
    for (std::thread& thread : serving_) thread.join();
    for (auto& [handle, channel] : channels_) {
        close(channel.reader);
        close(channel.writer);
    }
    channels_.clear();
}

void FakeCm::accept_clients() {
    for (;;) {
        int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) return;
        std::lock_guard guard(mutex_);
        connections_.push_back(fd);
        serving_.emplace_back([this, fd] { serve(fd); });
    }
}

void FakeCm::serve(int fd) {
    std::vector<std::byte> buffer(abi::kMessageMax);
    for (;;) {
        ssize_t n = recv(fd, buffer.data(), buffer.size(), 0);
        if (n < static_cast<ssize_t>(sizeof(abi::RequestHeader))) break;
        auto header = body_as<abi::RequestHeader>(buffer);
        auto op = static_cast<abi::CmOp>(header.op);
        Reply reply = answer(op, ByteView(buffer).subspan(sizeof header, header.length));
        abi::ReplyHeader out{abi::kMagic, reply.status,
                             static_cast<std::uint32_t>(reply.body.size()), 0};
        iovec parts[2] = {{&out, sizeof out}, {reply.body.data(), reply.body.size()}};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = 2;
        if (reply.fd >= 0) {
            message.msg_control = control;
            message.msg_controllen = sizeof control;
            cmsghdr* c = CMSG_FIRSTHDR(&message);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(c), &reply.fd, sizeof reply.fd);
        }
        sendmsg(fd, &message, MSG_NOSIGNAL);
    }
    std::lock_guard guard(mutex_);
    std::erase(connections_, fd);
    close(fd);
}

FakeCm::Reply FakeCm::create_channel() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) abort();
    std::uint32_t handle = next_handle_++;
    channels_[handle] = {.reader = ends[0], .writer = ends[1]};
    return {.body = bytes_of(abi::HandleReply{handle}), .fd = ends[0]};
}

void FakeCm::bind(Id& id, const abi::CmAddress& local) {
    id.info.local = local;
    if (local.port == 0) id.info.local.port = 50'000;
    if (is_wildcard(local)) return;
    id.info.device = 0;
    id.info.port_num = 1;
    id.info.pkey = 0xffff;
    id.info.mtu = IBV_MTU_4096;
    memcpy(id.info.local_gid, kLocalGid, sizeof kLocalGid);
}

// Events of a group are counted on their own.
std::uint32_t& FakeCm::counter(Id& id, std::uint64_t mc_cookie) {
    for (auto& [number, join] : joins_) {
        if (mc_cookie != 0 && join.cookie == mc_cookie) return join.sent;
    }
    return id.sent;
}

// What the client has not read of an id (or of one of its groups) goes.
FakeCm::Reply FakeCm::take_back(std::uint32_t handle, std::uint64_t mc_cookie) {
    Id& id = ids_[handle];
    Channel& channel = channels_[id.channel];
    int flags = fcntl(channel.reader, F_GETFL);
    fcntl(channel.reader, F_SETFL, flags | O_NONBLOCK);
    std::vector<abi::CmEventRecord> kept;
    abi::CmEventRecord record;
    std::uint32_t taken = 0;
    while (read(channel.reader, &record, sizeof record) == sizeof record) {
        bool is_gone = record.id == handle && record.mc_cookie == mc_cookie;
        if (is_gone) {
            ++taken;
        } else {
            kept.push_back(record);
        }
    }
    fcntl(channel.reader, F_SETFL, flags);
    for (const abi::CmEventRecord& r : kept) put(handle, r);
    std::uint32_t reported = counter(id, mc_cookie) -= taken;
    return {.body = bytes_of(abi::CmEventsReply{.events_reported = reported, .reserved = 0})};
}

FakeCm::Reply FakeCm::answer(abi::CmOp op, ByteView body) {
    std::lock_guard guard(mutex_);
    ++counts_[op];
    last_[op].assign(body.begin(), body.end());
    if (auto refusal = refusals_.find(op); refusal != refusals_.end()) {
        auto [status, text] = refusal->second;
        refusals_.erase(refusal);
        auto* data = reinterpret_cast<const std::byte*>(text.data());
        return {.status = status, .body = {data, data + text.size()}};
    }
    switch (op) {
        case abi::CmOp::kOpen:
            ++session_count_;
            return {.body = bytes_of(abi::CmOpenReply{session_count_, 0, 3})};
        case abi::CmOp::kCreateChannel:
            return create_channel();
        case abi::CmOp::kInitQpAttr:
            return {.body =
                        bytes_of(attributes_for(body_as<abi::CmInitQpAttrRequest>(body).state))};
        case abi::CmOp::kJoinMcast:
            joins_[next_handle_] = {.cookie = body_as<abi::CmJoinMcastRequest>(body).cookie};
            return {.body = bytes_of(abi::HandleReply{next_handle_++})};
        case abi::CmOp::kLeaveMcast: {
            auto request = body_as<abi::CmLeaveMcastRequest>(body);
            return take_back(request.id, joins_[request.mcast].cookie);
        }
        default:
            return answer_about_id(op, body);
    }
}

FakeCm::Reply FakeCm::answer_about_id(abi::CmOp op, ByteView body) {
    auto id = [&]() -> Id& { return ids_[body_as<std::uint32_t>(body)]; };
    switch (op) {
        case abi::CmOp::kCreateId: {
            auto request = body_as<abi::CmCreateIdRequest>(body);
            std::uint32_t handle = next_handle_++;
            ids_[handle].cookie = request.cookie;
            ids_[handle].channel = request.channel;
            ids_[handle].info.id = handle;
            ids_[handle].info.device = abi::kCmNone;
            return {.body = bytes_of(abi::HandleReply{handle})};
        }
        case abi::CmOp::kAdopt: {
            auto request = body_as<abi::CmAdoptRequest>(body);
            ids_[request.id].cookie = request.cookie;
            ids_[request.id].channel = request.channel;
            return {};
        }
        case abi::CmOp::kBind:
            bind(ids_[body_as<abi::CmBindRequest>(body).id],
                 body_as<abi::CmBindRequest>(body).address);
            return {.body = bytes_of(ids_[body_as<abi::CmBindRequest>(body).id].info)};
        case abi::CmOp::kResolveAddr: {
            auto request = body_as<abi::CmResolveAddrRequest>(body);
            Id& resolved = ids_[request.id];
            abi::CmAddress local = request.destination;
            memcpy(local.address, kLocalGid, sizeof kLocalGid);
            local.port = 0;
            bind(resolved, local);
            resolved.info.peer = request.destination;
            memcpy(resolved.info.peer_gid, kPeerGid, sizeof kPeerGid);
            abi::CmEventRecord record{};
            record.type = abi::CmEventType::kAddrResolved;
            put(request.id, record);
            return {.body = bytes_of(resolved.info)};
        }
        case abi::CmOp::kResolveRoute: {
            auto request = body_as<abi::CmResolveRouteRequest>(body);
            ids_[request.id].info.path_count = 1;
            abi::CmEventRecord record{};
            record.type = abi::CmEventType::kRouteResolved;
            put(request.id, record);
            return {};
        }
        case abi::CmOp::kListen:
        case abi::CmOp::kQuery:
            return {.body = bytes_of(id().info)};
        case abi::CmOp::kDestroyId:
            return take_back(body_as<std::uint32_t>(body), 0);
        case abi::CmOp::kMigrateId: {
            auto request = body_as<abi::CmMigrateRequest>(body);
            Reply reply = take_back(request.id, 0);
            ids_[request.id].channel = request.channel;
            return reply;
        }
        default:
            return {};
    }
}

void FakeCm::put(std::uint32_t handle, abi::CmEventRecord record) {
    Id& id = ids_[handle];
    if (record.cookie == 0) {
        record.cookie = id.cookie;
        record.id = handle;
        record.device = id.info.device;
        record.local = id.info.local;
        record.peer = id.info.peer;
        ++counter(id, record.mc_cookie);
    }
    if (write(channels_[id.channel].writer, &record, sizeof record) != sizeof record) abort();
}

void FakeCm::raise(std::uint32_t id, abi::CmEventType type, int status,
                   const std::function<void(abi::CmEventRecord&)>& fill) {
    std::lock_guard guard(mutex_);
    abi::CmEventRecord record{};
    record.type = type;
    record.status = status;
    record.new_id = abi::kCmNone;
    if (fill) fill(record);
    put(id, record);
}

std::uint32_t FakeCm::raise_request(std::uint32_t listener, abi::CmEventRecord record) {
    std::lock_guard guard(mutex_);
    std::uint32_t handle = next_handle_++;
    Id& id = ids_[handle];
    abi::CmAddress local{};
    local.family = AF_INET;
    memcpy(local.address, kLocalGid, sizeof kLocalGid);
    bind(id, local);
    id.info.id = handle;
    id.info.path_count = 1;
    record.type = abi::CmEventType::kConnectRequest;
    record.new_id = handle;
    if (record.qp_type == 0) record.qp_type = IBV_QPT_RC;
    put(listener, record);
    return handle;
}

void FakeCm::refuse(abi::CmOp op, int status, const std::string& text) {
    std::lock_guard guard(mutex_);
    refusals_[op] = {status, text};
}

std::uint32_t FakeCm::requests(abi::CmOp op) {
    std::lock_guard guard(mutex_);
    return counts_[op];
}

std::uint32_t FakeCm::sessions() {
    std::lock_guard guard(mutex_);
    return session_count_;
}

void RdmaCmTest::SetUp() {
    channel_ = rdma_create_event_channel();
    ASSERT_NE(channel_, nullptr);
    setenv("RDMALAB_SOCKET", card_.path().c_str(), 1);  // for libibverbs
}

void RdmaCmTest::TearDown() {
    if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
}

rdma_cm_id* RdmaCmTest::make_id(rdma_port_space space, rdma_event_channel* channel) {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(channel != nullptr ? channel : channel_, &id, this, space), 0);
    return id;
}

rdma_cm_id* RdmaCmTest::make_resolved_id(rdma_port_space space) {
    rdma_cm_id* id = make_id(space);
    sockaddr_storage peer = address("10.0.0.2", 7471);
    EXPECT_EQ(rdma_resolve_addr(id, nullptr, as_sockaddr(peer), 1000), 0);
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(rdma_resolve_route(id, 1000), 0);
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
}

void RdmaCmTest::make_qp(rdma_cm_id* id, ibv_qp_type type) {
    ibv_qp_init_attr init{};
    init.qp_type = type;
    init.cap = {.max_send_wr = 8,
                .max_recv_wr = 8,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    ASSERT_EQ(rdma_create_qp(id, nullptr, &init), 0) << strerror(errno);
}

std::uint32_t RdmaCmTest::handle_of(rdma_cm_id* id) { return id_of(id).handle; }

rdma_cm_event* RdmaCmTest::next_event() {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel_, &event), 0) << strerror(errno);
    return event;
}

rdma_cm_event RdmaCmTest::expect(rdma_cm_event_type type) {
    rdma_cm_event* event = next_event();
    if (event == nullptr) return {};
    rdma_cm_event copy = *event;
    EXPECT_EQ(copy.event, type) << rdma_event_str(copy.event);
    EXPECT_EQ(rdma_ack_cm_event(event), 0);
    return copy;
}

abi::QpAttributes RdmaCmTest::attributes_of(ibv_qp* qp) {
    return card_.context().qp_attributes[qp->qp_num];
}
std::uint32_t RdmaCmTest::state_of(ibv_qp* qp) { return attributes_of(qp).state; }

sockaddr_storage address(const char* text, std::uint16_t port) {
    sockaddr_storage out{};
    addrinfo hints{}, *found = nullptr;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    if (getaddrinfo(text, std::to_string(port).c_str(), &hints, &found) != 0) abort();
    memcpy(&out, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return out;
}

}  // namespace rdmalab::rdmacm::testing
