#include "card/client/connection.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace rdmalab::card::client {
namespace {

std::string environment(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

std::string runtime_folder() {
    if (std::string folder = environment("RDMALAB_RUNTIME_DIR"); !folder.empty()) return folder;
    if (std::string folder = environment("XDG_RUNTIME_DIR"); !folder.empty()) {
        return folder + "/rdmalab";
    }
    if (::geteuid() == 0) return "/run/rdmalab";
    return "/tmp/rdmalab-" + std::to_string(::geteuid());
}

Error gone() { return {EPIPE, "the card has gone"}; }

constexpr std::size_t kDescriptorsMax = 8;

void take_descriptors(msghdr& message, std::vector<int>& out) {
    const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return;
    out.resize((rights->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(out.data(), CMSG_DATA(rights), out.size() * sizeof(int));
}

Result<std::vector<std::byte>> receive_reply(int socket, std::vector<int>* descriptors) {
    std::vector<std::byte> bytes(sizeof(abi::ReplyHeader) + abi::kMessageMax);
    alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))];
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptors != nullptr) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
    }
    ssize_t length = 0;
    do {
        length = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    } while (length < 0 && errno == EINTR);
    if (length >= 0 && descriptors != nullptr) take_descriptors(message, *descriptors);
    if (length < static_cast<ssize_t>(sizeof(abi::ReplyHeader))) return gone();
    const auto header = load_bytes<abi::ReplyHeader>(bytes.data());
    bytes.resize(static_cast<std::size_t>(length));
    bytes.erase(bytes.begin(), bytes.begin() + sizeof header);
    if (header.magic != abi::kMagic || header.length != bytes.size()) {
        return Error{EPROTO, "card and program are of different builds"};
    }
    if (header.status == 0) return bytes;
    return Error{header.status, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
}

}  // namespace

std::string default_socket() {
    if (std::string path = environment("RDMALAB_SOCKET"); !path.empty()) return path;
    const std::string card = environment("RDMALAB_CARD");
    return runtime_folder() + "/" + (card.empty() ? "default" : card) + ".sock";
}

Connection::Connection(Connection&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}

Connection& Connection::operator=(Connection&& other) noexcept {
    std::swap(socket_, other.socket_);
    return *this;
}

Result<Connection> Connection::open(const std::string& given) {
    const std::string path = given.empty() ? default_socket() : given;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
        return Error{ENAMETOOLONG, "the path of the card's socket is too long: " + path};
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    Connection connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!connection.is_open()) {
        return Error{errno, std::string("cannot make a socket: ") + std::strerror(errno)};
    }
    const auto* const target = reinterpret_cast<const sockaddr*>(&address);
    int status = 0;
    do {
        status = ::connect(connection.socket_, target, sizeof address);
    } while (status != 0 && errno == EINTR);
    if (status == 0) return connection;
    const int code = errno == ECONNREFUSED ? ENOENT : errno;
    return Error{
        code, "no card listens on " + path + " (start one: rdmalab up): " + std::strerror(errno)};
}

Result<std::vector<std::byte>> Connection::call(abi::Op op, ByteView body,
                                                std::vector<int>* descriptors) {
    if (!is_open()) return gone();
    abi::RequestHeader header;
    header.op = op;
    header.length = static_cast<std::uint32_t>(body.size());
    std::vector<std::byte> message(sizeof header);
    store_bytes(message.data(), header);
    message.insert(message.end(), body.begin(), body.end());
    ssize_t sent = 0;
    do {
        sent = ::send(socket_, message.data(), message.size(), MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    // A card that refuses a client says why before it closes: the reply may be there even now.
    auto reply = receive_reply(socket_, descriptors);
    if (!reply.ok() && reply.error().code == EPIPE) close();
    return reply;
}

int Connection::release() { return std::exchange(socket_, -1); }

void Connection::close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

}  // namespace rdmalab::card::client
