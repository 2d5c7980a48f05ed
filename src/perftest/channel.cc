#include "perftest/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>

#include "perftest/failure.h"

namespace rdmalab::perftest {

namespace {

constexpr double kSendSeconds = 5;

std::int64_t clock_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

// Waits until `events` or the deadline; false at the deadline.
bool wait_for(int fd, short events, std::int64_t deadline_ns) {
    for (;;) {
        std::int64_t left = deadline_ns - monotonic_ns();
        if (left <= 0) return false;
        pollfd entry{.fd = fd, .events = events, .revents = 0};
        int found =
            poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left / 1'000'000 + 1, 60'000)));
        if (found > 0) return true;
        if (found < 0 && errno != EINTR) return false;
    }
}

void make_non_blocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

std::int64_t after(double seconds) {
    return monotonic_ns() + static_cast<std::int64_t>(seconds * 1e9);
}

// 0, or the errno of the attempt.
int try_connect(int fd, const addrinfo& address, double seconds) {
    make_non_blocking(fd);
    if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    if (!wait_for(fd, POLLOUT, after(seconds))) return ETIMEDOUT;
    int status = 0;
    socklen_t length = sizeof status;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &status, &length);
    return status;
}

}  // namespace

std::int64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }
std::int64_t wall_ns() { return clock_ns(CLOCK_REALTIME); }

Channel::Channel(Fd fd) : fd_(std::move(fd)) { make_non_blocking(fd_.value()); }

bool Channel::send(MessageType type, const Json& body, std::uint32_t address) {
    return send_bytes(encode(type, body, address));
}

bool Channel::send_bytes(std::string_view bytes) {
    std::int64_t deadline = after(kSendSeconds);
    for (std::size_t sent = 0; sent < bytes.size();) {
        ssize_t count = ::send(fd_.value(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (count > 0) {
            sent += static_cast<std::size_t>(count);
            deadline = after(kSendSeconds);
        } else if (errno == EAGAIN) {
            if (!wait_for(fd_.value(), POLLOUT, deadline)) return false;
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

bool Channel::fill() {
    char bytes[65536];
    for (;;) {
        ssize_t count = recv(fd_.value(), bytes, sizeof bytes, 0);
        if (count > 0) {
            decoder_.handle_bytes({bytes, static_cast<std::size_t>(count)});
            if (static_cast<std::size_t>(count) < sizeof bytes) return true;
        } else if (count == 0) {
            return false;
        } else if (errno != EINTR) {
            return errno == EAGAIN;
        }
    }
}

Result<Message> Channel::receive(double seconds) {
    std::int64_t deadline = after(seconds);
    for (;;) {
        Result<std::optional<Message>> message = poll_message();
        if (!message.ok()) return message.error();
        if (message->has_value()) return std::move(**message);
        if (!wait_for(fd_.value(), POLLIN, deadline)) {
            return Error{ETIMEDOUT, fmt::format("no answer within {} s", seconds)};
        }
        if (!fill()) {
            message = poll_message();
            if (message.ok() && message->has_value()) return std::move(**message);
            return Error{ECONNRESET, "the connection was closed"};
        }
    }
}

std::pair<Channel, Channel> channel_pair() {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
        throw Failure(fmt::format("socketpair: {}", strerror(errno)));
    }
    return {Channel(Fd(fds[0])), Channel(Fd(fds[1]))};
}

Result<Fd> listen_on(std::uint16_t port) {
    Fd fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int on = 1, off = 0;
    sockaddr_in6 any6{};
    any6.sin6_family = AF_INET6;
    any6.sin6_port = htons(port);
    sockaddr_in any4{};
    any4.sin_family = AF_INET;
    any4.sin_port = htons(port);
    bool six = fd.is_open();
    if (!six) fd = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    setsockopt(fd.value(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (six) setsockopt(fd.value(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    auto* address = six ? reinterpret_cast<sockaddr*>(&any6) : reinterpret_cast<sockaddr*>(&any4);
    socklen_t length = six ? sizeof any6 : sizeof any4;
    if (bind(fd.value(), address, length) != 0 || listen(fd.value(), 64) != 0) {
        std::string why = errno == EADDRINUSE
                              ? "another program uses it; stop that, or choose one with --port"
                              : strerror(errno);
        return Error{errno, fmt::format("cannot listen on control port {}: {}", port, why)};
    }
    return fd;
}

Result<Fd> connect_to(const std::string& host, std::uint16_t port, double seconds) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (status != 0) {
        return Error{EHOSTUNREACH,
                     fmt::format("cannot find host '{}': {}", host, gai_strerror(status))};
    }
    int error = ECONNREFUSED;
    Fd fd;
    for (addrinfo* each = found; each != nullptr; each = each->ai_next) {
        fd = Fd(socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol));
        if (!fd.is_open()) continue;
        error = try_connect(fd.value(), *each, seconds);
        if (error == 0) break;
        fd.close();
    }
    freeaddrinfo(found);
    if (!fd.is_open()) {
        return Error{error, fmt::format("cannot reach control port {} of '{}': {}", port, host,
                                        strerror(error))};
    }
    int on = 1;
    setsockopt(fd.value(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

}  // namespace rdmalab::perftest
