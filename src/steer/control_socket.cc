#include "steer/control_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace rdmalab::steer {

namespace {

constexpr std::size_t kPacketMax = 65'536;
constexpr int kAnswerTimeoutMs = 10'000, kCommandTimeoutMs = 200;
constexpr char kOk[] = "ok", kError[] = "error";

struct Address {
    sockaddr_un raw{};
    socklen_t length = 0;
};
Address address_of(int pid) {
    Address address;
    address.raw.sun_family = AF_UNIX;
    const std::string name = fmt::format("rdmalab-steer/{}", pid);
    // A leading zero byte: the abstract namespace.
    std::memcpy(address.raw.sun_path + 1, name.data(), name.size());
    address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
}

const sockaddr* generic(const Address& address) {
    return reinterpret_cast<const sockaddr*>(&address.raw);
}

std::string join(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) {
        if (!text.empty()) text += '\0';
        text += word;
    }
    return text;
}
std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> words;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find('\0', at), text.size());
        words.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return words;
}

// Nothing when no packet comes in time.
std::string receive(int socket, int timeout_ms) {
    pollfd waited{socket, POLLIN, 0};
    if (::poll(&waited, 1, timeout_ms) <= 0) return {};
    std::string packet(kPacketMax, '\0');
    const ssize_t got = recv(socket, packet.data(), packet.size(), MSG_DONTWAIT);
    packet.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return packet;
}

bool may_command(int socket) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
    return peer.uid == 0 || peer.uid == geteuid();
}

void answer(int socket, const CommandHandler& handler) {
    std::string reply = std::string(kError) + '\0' + "another user's program";
    if (may_command(socket)) {
        const std::string command = receive(socket, kCommandTimeoutMs);
        if (command.empty()) return;
        const Result<std::string> result = handler(split(command));
        reply = result.ok() ? std::string(kOk) + '\0' + *result
                            : std::string(kError) + '\0' + result.error().text;
    }
    (void)send(socket, reply.data(), std::min(reply.size(), kPacketMax),
               MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

Result<std::unique_ptr<ControlSocket>> ControlSocket::open() {
    constexpr int kBacklog = 8;
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const Address address = address_of(getpid());
    if (socket < 0 || bind(socket, generic(address), address.length) != 0 ||
        listen(socket, kBacklog) != 0) {
        const int code = errno;
        if (socket >= 0) close(socket);
        return Error{code, fmt::format("no socket for --tell: {}", std::strerror(code))};
    }
    return std::unique_ptr<ControlSocket>(new ControlSocket(socket));
}

ControlSocket::~ControlSocket() { close(descriptor_); }

void ControlSocket::serve(const CommandHandler& handler) {
    for (;;) {
        const int client = accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC);
        if (client < 0) return;
        answer(client, handler);
        close(client);
    }
}

Result<std::string> tell(int pid, const std::vector<std::string>& words) {
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (socket < 0) return Error{errno, std::strerror(errno)};
    const Address address = address_of(pid);
    if (connect(socket, generic(address), address.length) != 0) {
        close(socket);
        return Error{ESRCH, fmt::format("process {} is no running flow_steer or pcc", pid)};
    }
    const std::string command = join(words);
    (void)send(socket, command.data(), command.size(), MSG_NOSIGNAL);
    const std::string reply = receive(socket, kAnswerTimeoutMs);
    close(socket);
    const std::size_t end = reply.find('\0');
    if (end == std::string::npos) {
        return Error{ETIMEDOUT, fmt::format("process {} did not answer", pid)};
    }
    if (reply.substr(0, end) == kOk) return reply.substr(end + 1);
    return Error{EINVAL, reply.substr(end + 1)};
}

}  // namespace rdmalab::steer
