#include "card/host/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/limits.h"
#include "card/host/capture.h"
#include "card/host/clock.h"
#include "card/verbs_values.h"

namespace rdmalab::card::host {
namespace {

// Attachments, and as many more for programs that only look.
constexpr char kInUse[] =
    "this connection has opened a device, a CM session, a switch domain or congestion control "
    "already";
constexpr std::size_t kConnectionMax = 2 * limits::kContextMax;

template <class T>
bool load_body(ByteView body, T& out) {
    if (body.size() != sizeof(T)) return false;
    out = load_bytes<T>(body.data());
    return true;
}

template <class T>
std::vector<std::byte> to_bytes(const T& value) {
    std::vector<std::byte> bytes(sizeof value);
    store_bytes(bytes.data(), value);
    return bytes;
}

ControlReply failure(int code, std::string text) { return {code, std::move(text), {}}; }

ControlReply wrong_length(std::size_t expected, std::size_t found) {
    return failure(EINVAL, fmt::format("the body of the request: expected {} bytes, found {}",
                                       expected, found));
}

bool is_context_op(abi::Op op) {
    return op == abi::Op::kQueryPort || op == abi::Op::kQueryGids ||
           (op >= abi::Op::kAllocPd && op <= abi::Op::kCreateHashQp);
}

// Rounds that settle() grants a card whose traffic never ends.
constexpr int kSettleRoundsMax = 16;

// Requests whose outcome depends on work that the client has posted or seen completed before.
bool must_settle(abi::Op op) {
    return op == abi::Op::kResizeCq || op == abi::Op::kModifyQp || op == abi::Op::kDestroyQp ||
           op == abi::Op::kReregMr || op == abi::Op::kFreeDm;
}

// Raw packets are for those who may send any (packet(7)), and rules take packets from others.
bool needs_raw_packets(abi::Op op, ByteView body) {
    abi::CreateQpRequest request{};
    if (op == abi::Op::kCreateQp)
        return load_body(body, request) && request.type == kIbvQptRawPacket;
    return op == abi::Op::kCreateFlow || op == abi::Op::kCreateHashQp;
}

// What is wrong with the framing of a request; code 0 when nothing is.
Error check_framing(const abi::RequestHeader& header, std::size_t length, bool truncated) {
    if (length < sizeof header) {
        return {EBADMSG, fmt::format("a request: expected at least {} bytes, found {}",
                                     sizeof header, length)};
    }
    if (header.magic != abi::kMagic) {
        return {EBADMSG, fmt::format("the magic number of a request: expected {:#x}, found {:#x}",
                                     abi::kMagic, header.magic)};
    }
    if (header.version != abi::kVersion) {
        return {EPROTO, fmt::format("the version of the protocol: expected {} (that of the card), "
                                    "found {}; card and library are of different builds",
                                    abi::kVersion, header.version)};
    }
    if (truncated || header.length != length - sizeof header) {
        return {EBADMSG,
                fmt::format("the length of a request's body: expected {}, found {}{}",
                            header.length, length - sizeof header, truncated ? " or more" : "")};
    }
    return {};
}

}  // namespace

Server::Reply Server::Reply::last(ControlReply reply) {
    Reply out(std::move(reply));
    out.close = true;
    return out;
}

Server::Server(const Parts& parts) : parts_(parts), received_(abi::kMessageMax) {
    reserve_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

Server::~Server() { close_all(); }

Status Server::serve(int listener) {
    const Poller::Token watch = parts_.poller.add(
        listener, EPOLLIN, [this, listener](std::uint32_t) { accept_clients(listener); });
    if (watch == Poller::kNone) return system_error("cannot watch the card's socket");
    listener_watches_.push_back(watch);
    return {};
}

void Server::accept_clients(int listener) {
    while (true) {
        UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (socket) {
            adopt(std::move(socket));
        } else if (errno == EMFILE || errno == ENFILE) {
            refuse_without_descriptors(listener);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

// Gives up the reserve for the answer. Nothing is left pending, so the loop does not spin.
void Server::refuse_without_descriptors(int listener) {
    reserve_.reset();
    const UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
        spdlog::warn("a client was refused: no descriptors left (ulimit -n)");
        send(socket.value(), failure(EMFILE, "the card has no descriptors left (ulimit -n)"));
        // Closing on an unread request would reset the connection, and the refusal be lost.
        ::shutdown(socket.value(), SHUT_RD);
        while (::recv(socket.value(), received_.data(), received_.size(), MSG_DONTWAIT) > 0) {
        }
    }
    reserve_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void Server::adopt(UniqueFd socket) {
    auto owned = std::make_unique<Connection>();
    Connection& connection = *owned;
    connection.id = next_id_++;
    connection.socket = std::move(socket);
    auto peer = identify_peer(connection.socket.value());
    if (peer.ok()) {
        connection.peer = std::move(*peer);
        connection.visible = visible_to(connection.peer);
    } else {
        connection.refusal = peer.error();
    }
    connections_.emplace(connection.id, std::move(owned));
    welcome(connection);
}

void Server::welcome(Connection& connection) {
    const std::uint64_t id = connection.id;
    if (connection.peer.uid != ::geteuid() && connection.peer.uid != 0) {
        connection.refusal = {EPERM, fmt::format("this card belongs to user {}: expected that user "
                                                 "or root, found user {}",
                                                 ::geteuid(), connection.peer.uid)};
    } else if (connections_.size() > kConnectionMax) {
        connection.refusal = {
            EMFILE, fmt::format("the card has {} connections, its limit", kConnectionMax)};
    }
    connection.socket_watch = parts_.poller.add(connection.socket.value(), EPOLLIN | EPOLLRDHUP,
                                                [this, id](std::uint32_t) { handle_readable(id); });
    if (connection.peer.pidfd) {
        connection.process_watch = parts_.poller.add(connection.peer.pidfd.value(), EPOLLIN,
                                                     [this, id](std::uint32_t) { close(id); });
    }
    if (connection.socket_watch == Poller::kNone) close(id);
}

void Server::close(std::uint64_t id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = *found->second;
    parts_.poller.remove(connection.socket_watch);
    parts_.poller.remove(connection.process_watch);
    parts_.captures.stop_all(id);
    if (connection.owner.value != 0) detach(connection);
    if (connection.cm_session.value != 0) {
        settle();  // what the client has sent arrives before the news of its end
        parts_.card.close_cm_session(connection.cm_session, monotonic_now());
        parts_.attachments.cm_sessions().destroy(connection.cm_session);
    }
    if (connection.flow.value != 0) {
        parts_.card.close_flow_session(connection.flow);
        spdlog::info("process {} has left the switch", connection.peer.pid);
    }
    if (connection.congestion.value != 0) {
        parts_.congestion.detach(connection.congestion, monotonic_now());
        spdlog::info("process {} has left congestion control", connection.peer.pid);
    }
    connections_.erase(found);
}

void Server::detach(Connection& connection) {
    settle();
    const Attachments::Ids ids{connection.owner, connection.space};
    if (parts_.attachments.has_others(ids)) {
        parts_.attachments.leave(ids);
    } else {
        parts_.card.close_context(connection.owner);
        parts_.attachments.destroy(connection.owner);
    }
    spdlog::info("process {} has left {}", connection.peer.pid,
                 parts_.card.config().functions[connection.device].device);
}

// An adapter is done with what it has heard before a later command reaches it: doorbells are seen,
// and an ACK whose message the client has already polled leaves before the client destroys the QP.
// Who is scheduled first must not decide over either.
void Server::settle() {
    for (int round = 0; round < kSettleRoundsMax; ++round) {
        if (!parts_.card.poll(monotonic_now())) return;
    }
}

void Server::close_all() {
    for (const Poller::Token watch : listener_watches_) parts_.poller.remove(watch);
    listener_watches_.clear();
    while (!connections_.empty()) close(connections_.begin()->first);
}

void Server::handle_readable(std::uint64_t id) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    if (!handle_one(*found->second)) close(id);
}

// One request and its answer. False: the connection is to be closed.
bool Server::handle_one(Connection& connection) {
    auto message = receive_message(connection.socket.value(), received_);
    if (!message.ok()) return message.error().code == EAGAIN || message.error().code == EINTR;
    if (message->length == 0 || !connection.waiting.empty()) return false;
    return answer_or_wait(connection, ByteView(received_).first(message->length), *message);
}

// What only the kernel's neighbours hold up is repeated later; nobody else waits for it.
bool Server::answer_or_wait(Connection& connection, ByteView bytes, Message& message) {
    const Reply reply = answer(connection, bytes, message);
    if (reply.control.status == kAwaitsNeighbour) {
        connection.waiting.assign(bytes.begin(), bytes.end());
        return true;
    }
    return send(connection.socket.value(), reply) && !reply.close;
}

void Server::retry_waiting() {
    std::vector<std::uint64_t> ids;
    for (const auto& [id, connection] : connections_)
        if (!connection->waiting.empty()) ids.push_back(id);
    for (const std::uint64_t id : ids) {
        const auto found = connections_.find(id);
        if (found == connections_.end()) continue;
        const std::vector<std::byte> request = std::exchange(found->second->waiting, {});
        Message message;
        if (!answer_or_wait(*found->second, request, message)) close(id);
    }
}

Server::Reply Server::answer(Connection& connection, ByteView bytes, Message& message) {
    if (connection.refusal.code != 0) {
        return Reply::last(failure(connection.refusal.code, connection.refusal.text));
    }
    abi::RequestHeader header;
    if (bytes.size() >= sizeof header) header = load_bytes<abi::RequestHeader>(bytes.data());
    const Error error = check_framing(header, bytes.size(), message.truncated);
    if (error.code != 0) {
        spdlog::warn("process {} sent a malformed request: {}", connection.peer.pid, error.text);
        return Reply::last(failure(error.code, error.text));
    }
    return dispatch(connection, header.op, bytes.subspan(sizeof header), message);
}

Server::Reply Server::dispatch(Connection& connection, abi::Op op, ByteView body,
                               Message& message) {
    switch (op) {
        case abi::Op::kHello:
            return hello(connection, body);
        case abi::Op::kListDevices:
            return list_devices(connection);
        case abi::Op::kOpenContext:
            return open_context(connection, body);
        case abi::Op::kImportContext:
            return import_context(connection, message);
        case abi::Op::kFlow:
            return flow_request(connection, body);
        case abi::Op::kAdmin:
            return admin(connection, body, message);
        default:
            break;
    }
    if (abi::is_cm_op(static_cast<std::uint32_t>(op))) {
        return cm_request(connection, static_cast<abi::CmOp>(op), body);
    }
    if (pcc::is_pcc_op(static_cast<std::uint32_t>(op))) return attach_congestion(connection, body);
    if (!is_context_op(op)) {
        return failure(EOPNOTSUPP, fmt::format("the operation of a request: expected a known one, "
                                               "found {}",
                                               static_cast<std::uint32_t>(op)));
    }
    if (connection.owner.value == 0) {
        return failure(EINVAL, "this connection has not opened a device");
    }
    if (op == abi::Op::kCreateChannel) return create_channel(connection, body);
    if (op == abi::Op::kDestroyChannel) return destroy_channel(connection, body);
    if (needs_raw_packets(op, body) && !may_use_raw_packets(connection.peer.pid)) {
        return failure(EPERM, fmt::format("process {} lacks CAP_NET_RAW, which raw packets and "
                                          "flow rules take",
                                          connection.peer.pid));
    }
    if (must_settle(op)) settle();
    return parts_.card.handle_request(connection.owner, op, body, monotonic_now(),
                                      connection.space);
}

Server::Reply Server::hello(const Connection& connection, ByteView body) {
    abi::HelloRequest request;
    if (!load_body(body, request)) return wrong_length(sizeof request, body.size());
    const Status reachable =
        probe_memory(connection.peer.pid, request.probe_address, request.probe_value);
    if (!reachable) return failure(reachable.code(), reachable.error().text);
    abi::HelloReply reply{};
    const std::string& name = parts_.card.config().name;
    std::memcpy(reply.card_name, name.data(), std::min(name.size(), sizeof reply.card_name - 1));
    reply.card_pid = ::getpid();
    reply.device_count = static_cast<std::uint32_t>(std::popcount(connection.visible));
    return ControlReply{0, "", to_bytes(reply)};
}

// A client whose namespace changes later keeps what it saw when it connected, as a process keeps
// the descriptors that it has opened.
std::uint64_t Server::visible_to(const Peer& peer) const {
    const std::size_t count = parts_.card.config().functions.size();
    const std::uint64_t all = count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
    return parts_.network == nullptr ? all : parts_.network->visible_to(peer.pid);
}

Server::Reply Server::list_devices(const Connection& connection) {
    std::vector<abi::DeviceInfo> devices = parts_.card.list_devices();
    std::erase_if(devices, [&](const abi::DeviceInfo& device) {
        return (connection.visible >> device.index & 1) == 0;
    });
    std::vector<std::byte> body(devices.size() * sizeof(abi::DeviceInfo));
    if (!body.empty()) std::memcpy(body.data(), devices.data(), body.size());
    return ControlReply{0, "", std::move(body)};
}

Server::Reply Server::open_context(Connection& connection, ByteView body) {
    abi::OpenContextRequest request;
    if (!load_body(body, request)) return wrong_length(sizeof request, body.size());
    if (connection.is_in_use()) return failure(EBUSY, kInUse);
    if (const Error error = check_device(connection, request.device); error.code != 0) {
        return failure(error.code, error.text);
    }
    if (parts_.attachments.count() >= limits::kContextMax) {
        return failure(EMFILE, fmt::format("the card has {} attached programs, its limit",
                                           limits::kContextMax));
    }
    UniqueFd async_reader;
    const auto ids = parts_.attachments.create(connection.peer.pid, async_reader);
    if (!ids.ok()) return failure(ids.error().code, ids.error().text);
    ControlReply opened = parts_.card.open_context(ids->owner, ids->space, request.device);
    if (opened.status != 0) {
        parts_.attachments.destroy(ids->owner);
        return opened;
    }
    connection.device = request.device;
    return attach(connection, *ids, std::move(async_reader), std::move(opened));
}

// Who has a descriptor of a context's memory may join it: he could reach all of it anyway.
Server::Reply Server::import_context(Connection& connection, Message& message) {
    if (connection.owner.value != 0 || connection.cm_session.value != 0) {
        return failure(EBUSY, "this connection has opened a device or a CM session already");
    }
    if (message.fds.size() != 1) {
        return failure(EINVAL, fmt::format("to import a context: expected one descriptor, found {}",
                                           message.fds.size()));
    }
    const auto owner = parts_.attachments.find_by_memory(message.fds.front().value());
    if (!owner) return failure(EINVAL, "the descriptor is not that of an open context");
    UniqueFd async_reader;
    const auto ids = parts_.attachments.join(*owner, connection.peer.pid, async_reader);
    if (!ids.ok()) return failure(ids.error().code, ids.error().text);
    for (const auto& [id, other] : connections_) {
        if (other->owner == *owner) connection.device = other->device;
    }
    return attach(connection, *ids, std::move(async_reader), parts_.card.describe_context(*owner));
}

Server::Reply Server::attach(Connection& connection, const Attachments::Ids& ids,
                             UniqueFd async_reader, ControlReply answer) {
    connection.owner = ids.owner;
    connection.space = ids.space;
    Reply reply(std::move(answer));
    reply.fds = {parts_.attachments.memory_fd(ids.owner), parts_.card_page_fd, parts_.bell_fd,
                 async_reader.value()};
    reply.own_fds.push_back(std::move(async_reader));
    spdlog::info("process {} ({}) has opened {}", connection.peer.pid,
                 command_of(connection.peer.pid),
                 parts_.card.config().functions[connection.device].device);
    return reply;
}

Error Server::check_device(const Connection& connection, std::uint32_t device) const {
    const auto& functions = parts_.card.config().functions;
    if (device >= functions.size()) {
        return {ENODEV, fmt::format("the device: expected an index below {}, found {}",
                                    functions.size(), device)};
    }
    if ((connection.visible >> device & 1) != 0) return {};
    return {ENODEV, fmt::format("{} is in {}: expected a program there, found one in {}",
                                functions[device].device, Network::place_of(functions[device]),
                                parts_.network->place_of(connection.peer.pid))};
}

Server::Reply Server::create_channel(Connection& connection, ByteView body) {
    auto pipe = make_pipe();
    if (!pipe.ok()) return failure(pipe.error().code, pipe.error().text);
    Reply reply{parts_.card.handle_request(connection.owner, abi::Op::kCreateChannel, body,
                                           monotonic_now())};
    abi::HandleReply handle;
    if (reply.control.status != 0 || !load_body(reply.control.body, handle)) return reply;
    parts_.attachments.add_channel(connection.owner, handle.handle, std::move(pipe->write_end));
    reply.fds = {pipe->read_end.value()};
    reply.own_fds.push_back(std::move(pipe->read_end));
    return reply;
}

Server::Reply Server::destroy_channel(Connection& connection, ByteView body) {
    Reply reply{parts_.card.handle_request(connection.owner, abi::Op::kDestroyChannel, body,
                                           monotonic_now())};
    abi::HandleRequest request;
    if (reply.control.status == 0 && load_body(body, request)) {
        parts_.attachments.remove_channel(connection.owner, request.handle);
    }
    return reply;
}

// --- CM sessions

Server::Reply Server::cm_request(Connection& connection, abi::CmOp op, ByteView body) {
    if (op == abi::CmOp::kOpen) return open_cm_session(connection, body);
    const CmSessionId session = connection.cm_session;
    if (session.value == 0) return failure(EINVAL, "this connection has not opened a CM session");
    if (op == abi::CmOp::kCreateChannel) return create_cm_channel(connection, body);
    Reply reply{parts_.card.handle_cm_request(session, op, body, monotonic_now())};
    abi::HandleRequest channel;
    if (op == abi::CmOp::kDestroyChannel && reply.control.status == 0 && load_body(body, channel)) {
        parts_.attachments.cm_sessions().remove_channel(session, channel.handle);
    }
    return reply;
}

Server::Reply Server::open_cm_session(Connection& connection, ByteView body) {
    if (connection.is_in_use()) return failure(EBUSY, kInUse);
    const CmSessionId session = parts_.attachments.cm_sessions().create();
    Reply reply{parts_.card.open_cm_session(session, connection.visible, body)};
    if (reply.control.status == 0) {
        connection.cm_session = session;
    } else {
        parts_.attachments.cm_sessions().destroy(session);
    }
    return reply;
}

Server::Reply Server::create_cm_channel(Connection& connection, ByteView body) {
    auto pipe = make_pipe();
    if (!pipe.ok()) return failure(pipe.error().code, pipe.error().text);
    Reply reply{parts_.card.handle_cm_request(connection.cm_session, abi::CmOp::kCreateChannel,
                                              body, monotonic_now())};
    abi::HandleReply handle;
    if (reply.control.status != 0 || !load_body(reply.control.body, handle)) return reply;
    parts_.attachments.cm_sessions().add_channel(connection.cm_session, handle.handle,
                                                 std::move(pipe->write_end));
    reply.fds = {pipe->read_end.value()};
    reply.own_fds.push_back(std::move(pipe->read_end));
    return reply;
}

// --- Switch domains

Server::Reply Server::flow_request(Connection& connection, ByteView body) {
    if (connection.owner.value != 0 || connection.cm_session.value != 0 ||
        connection.congestion.value != 0) {
        return failure(EBUSY, kInUse);
    }
    if (connection.flow.value != 0) {
        return Reply(parts_.card.handle_flow_request(connection.flow, "", body));
    }
    const FlowSessionId session{static_cast<std::uint32_t>(connection.id)};
    const std::string program =
        fmt::format("process {} ({})", connection.peer.pid, command_of(connection.peer.pid));
    Reply reply{parts_.card.handle_flow_request(session, program, body)};
    if (reply.control.status == 0) {
        connection.flow = session;
        spdlog::info("{} owns a switch domain", program);
    }
    return reply;
}

// --- Congestion control

Server::Reply Server::attach_congestion(Connection& connection, ByteView body) {
    pcc::AttachRequest request;
    if (!load_body(body, request)) return wrong_length(sizeof request, body.size());
    if (connection.is_in_use()) return failure(EBUSY, kInUse);
    const auto attached = parts_.congestion.attach(connection.peer.pid, request, monotonic_now());
    if (!attached.ok()) return failure(attached.error().code, attached.error().text);
    connection.congestion = CongestionProcessId{attached->process};
    spdlog::info("process {} ({}) attends to congestion control", connection.peer.pid,
                 command_of(connection.peer.pid));
    Reply reply;
    reply.control.body = to_bytes(*attached);
    reply.fds = {parts_.congestion.memory_fd(connection.congestion), parts_.card_page_fd,
                 parts_.bell_fd};
    return reply;
}

Server::Reply Server::admin(Connection& connection, ByteView body, Message& message) {
    const std::string text(reinterpret_cast<const char*>(body.data()), body.size());
    UniqueFd attached;
    if (!message.fds.empty()) attached = std::move(message.fds.front());
    AdminReply answer = parts_.admin.handle(connection.id, text, std::move(attached));
    if (answer.status != 0) return failure(answer.status, answer.text);
    Reply reply;
    reply.length = answer.length;
    reply.fds = {answer.body.value()};
    reply.own_fds.push_back(std::move(answer.body));
    return reply;
}

// False when the client does not take its reply; such a client is not worth keeping.
bool Server::send(int socket, const Reply& reply) {
    const ControlReply& control = reply.control;
    const auto* text = reinterpret_cast<const std::byte*>(control.text.data());
    const ByteView body =
        control.status != 0 ? ByteView(text, control.text.size()) : ByteView(control.body);
    abi::ReplyHeader header{};
    header.magic = abi::kMagic;
    header.status = control.status;
    header.length = reply.length != 0 ? reply.length : static_cast<std::uint32_t>(body.size());
    std::vector<std::byte> bytes = to_bytes(header);
    bytes.insert(bytes.end(), body.begin(), body.end());
    return send_message(socket, bytes, reply.fds).ok();
}

std::vector<Client> Server::clients() const {
    std::vector<Client> all;
    for (const auto& [id, connection] : connections_) {
        if (connection->owner.value == 0) continue;
        all.push_back(
            {connection->owner, connection->peer.pid, connection->peer.uid, connection->device});
    }
    std::sort(all.begin(), all.end(),
              [](const Client& a, const Client& b) { return a.owner < b.owner; });
    return all;
}

}  // namespace rdmalab::card::host
