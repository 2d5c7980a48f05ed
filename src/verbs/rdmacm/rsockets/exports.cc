// The functions of rsocket.h.
#include <netinet/in.h>
#include <stdarg.h>

#include <new>

#include "verbs/rdmacm/marshal.h"
#include "verbs/rdmacm/rsockets/datagram.h"
#include "verbs/rdmacm/rsockets/multiplex.h"
#include "verbs/rdmacm/rsockets/stream.h"
#include "verbs/rdmacm/rsockets/table.h"

using namespace rdmalab::rdmacm;

namespace {

Socket* make_socket(int domain, int type) {
    if (type == SOCK_STREAM) return new (std::nothrow) StreamSocket(domain);
    return new (std::nothrow) DatagramSocket(domain);
}

bool is_offered(int domain, int type, int protocol) {
    if (domain != PF_INET && domain != PF_INET6 && domain != PF_IB) return false;
    if (type == SOCK_STREAM) return protocol == 0 || protocol == IPPROTO_TCP;
    return type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP);
}

int publish(Socket* socket) {
    if (socket == nullptr) return -1;
    if (add_socket(*socket)) return socket->fd();
    socket->release();
    return fail(EMFILE);
}

ssize_t receive_one(int fd, void* data, std::size_t length, int flags, sockaddr* from,
                    socklen_t* from_length) {
    SocketRef socket = find_socket(fd);
    iovec piece{.iov_base = data, .iov_len = length};
    return socket ? socket->receive(&piece, 1, flags, from, from_length) : -1;
}

ssize_t send_one(int fd, const void* data, std::size_t length, int flags, const sockaddr* to) {
    SocketRef socket = find_socket(fd);
    iovec piece{.iov_base = const_cast<void*>(data), .iov_len = length};
    return socket ? socket->send(&piece, 1, flags, to) : -1;
}

}  // namespace

extern "C" {

int rsocket(int domain, int type, int protocol) {
    bool is_nonblocking = (type & SOCK_NONBLOCK) != 0;
    type &= ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (!is_offered(domain, type, protocol)) return fail(EPROTONOSUPPORT);
    Socket* socket = make_socket(domain, type);
    if (socket == nullptr) return fail(ENOMEM);
    if (!socket->open()) {
        int error = errno;
        socket->release();
        return fail(error);
    }
    if (is_nonblocking) socket->set_flags(O_NONBLOCK);
    return publish(socket);
}

int rbind(int fd, const sockaddr* address, socklen_t) {
    SocketRef socket = find_socket(fd);
    return socket ? socket->bind(address) : -1;
}

int rlisten(int fd, int backlog) {
    SocketRef socket = find_socket(fd);
    return socket ? socket->listen(backlog) : -1;
}

int raccept(int fd, sockaddr* address, socklen_t* length) {
    SocketRef socket = find_socket(fd);
    return socket ? publish(socket->accept(address, length)) : -1;
}

int rconnect(int fd, const sockaddr* address, socklen_t) {
    SocketRef socket = find_socket(fd);
    return socket ? socket->connect(address) : -1;
}

int rshutdown(int fd, int how) {
    SocketRef socket = find_socket(fd);
    return socket ? socket->shutdown(how) : -1;
}

int rclose(int fd) {
    SocketRef socket = take_socket(fd);
    if (!socket) return -1;
    socket->close();
    return 0;
}

ssize_t rrecv(int fd, void* data, size_t length, int flags) {
    return receive_one(fd, data, length, flags, nullptr, nullptr);
}
ssize_t rrecvfrom(int fd, void* data, size_t length, int flags, sockaddr* from,
                  socklen_t* from_length) {
    return receive_one(fd, data, length, flags, from, from_length);
}
ssize_t rrecvmsg(int fd, msghdr* message, int flags) {
    SocketRef socket = find_socket(fd);
    if (!socket) return -1;
    if (message->msg_control != nullptr && message->msg_controllen > 0) return fail(ENOTSUP);
    auto* from = static_cast<sockaddr*>(message->msg_name);
    message->msg_flags = 0;
    return socket->receive(message->msg_iov, message->msg_iovlen, flags, from,
                           from != nullptr ? &message->msg_namelen : nullptr);
}
ssize_t rread(int fd, void* data, size_t length) {
    return receive_one(fd, data, length, 0, nullptr, nullptr);
}
ssize_t rreadv(int fd, const iovec* pieces, int count) {
    SocketRef socket = find_socket(fd);
    if (!socket) return -1;
    return socket->receive(pieces, static_cast<size_t>(count), 0, nullptr, nullptr);
}

ssize_t rsend(int fd, const void* data, size_t length, int flags) {
    return send_one(fd, data, length, flags, nullptr);
}
ssize_t rsendto(int fd, const void* data, size_t length, int flags, const sockaddr* to, socklen_t) {
    return send_one(fd, data, length, flags, to);
}
ssize_t rsendmsg(int fd, const msghdr* message, int flags) {
    SocketRef socket = find_socket(fd);
    if (!socket) return -1;
    if (message->msg_control != nullptr && message->msg_controllen > 0) return fail(ENOTSUP);
    return socket->send(message->msg_iov, message->msg_iovlen, flags,
                        static_cast<const sockaddr*>(message->msg_name));
}
ssize_t rwrite(int fd, const void* data, size_t length) {
    return send_one(fd, data, length, 0, nullptr);
}
ssize_t rwritev(int fd, const iovec* pieces, int count) {
    SocketRef socket = find_socket(fd);
    return socket ? socket->send(pieces, static_cast<size_t>(count), 0, nullptr) : -1;
}

int rpoll(pollfd* fds, nfds_t count, int timeout) { return multiplex(fds, count, timeout); }

int rselect(int count, fd_set* readable, fd_set* writable, fd_set* exceptional, timeval* timeout) {
    return multiplex(count, readable, writable, exceptional, timeout);
}

int rgetpeername(int fd, sockaddr* address, socklen_t* length) {
    SocketRef socket = find_socket(fd);
    return socket ? socket->peer_address(address, length) : -1;
}

int rgetsockname(int fd, sockaddr* address, socklen_t* length) {
    SocketRef socket = find_socket(fd);
    return socket ? socket->local_address(address, length) : -1;
}

int rsetsockopt(int fd, int level, int name, const void* value, socklen_t length) {
    SocketRef socket = find_socket(fd);
    return socket ? socket->set_option(level, name, value, length) : -1;
}

int rgetsockopt(int fd, int level, int name, void* value, socklen_t* length) {
    SocketRef socket = find_socket(fd);
    return socket ? socket->get_option(level, name, value, length) : -1;
}

int rfcntl(int fd, int command, ...) {
    SocketRef socket = find_socket(fd);
    if (!socket) return -1;
    va_list arguments;
    va_start(arguments, command);
    int argument = command == F_SETFL || command == F_SETFD ? va_arg(arguments, int) : 0;
    va_end(arguments);
    switch (command) {
        case F_GETFL:
            return socket->flags();
        case F_SETFL:
            return socket->set_flags(argument);
        case F_GETFD:
        case F_SETFD:
            return fcntl(fd, command, argument);
        default:
            return fail(ENOTSUP);
    }
}

off_t riomap(int fd, void* buffer, size_t length, int protection, int flags, off_t offset) {
    SocketRef socket = find_socket(fd);
    return socket ? socket->map_io(buffer, length, protection, flags, offset) : -1;
}

int riounmap(int fd, void* buffer, size_t length) {
    SocketRef socket = find_socket(fd);
    return socket ? socket->unmap_io(buffer, length) : -1;
}

size_t riowrite(int fd, const void* buffer, size_t count, off_t offset, int flags) {
    SocketRef socket = find_socket(fd);
    return static_cast<size_t>(socket ? socket->write_io(buffer, count, offset, flags) : -1);
}

}  // extern "C"
