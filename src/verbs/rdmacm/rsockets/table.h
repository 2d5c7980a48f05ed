// From descriptors to rsockets.
#pragma once

#include "verbs/rdmacm/rsockets/socket.h"

namespace rdmalab::rdmacm {

// A socket that stays alive as long as this does.
class SocketRef {
public:
    explicit SocketRef(Socket* socket) : socket_(socket) {}
    SocketRef(SocketRef&& other) noexcept : socket_(other.socket_) { other.socket_ = nullptr; }
    SocketRef(const SocketRef&) = delete;
    SocketRef& operator=(const SocketRef&) = delete;
    ~SocketRef() {
        if (socket_ != nullptr) socket_->release();
    }
    explicit operator bool() const { return socket_ != nullptr; }
    Socket* operator->() const { return socket_; }
    Socket* get() const { return socket_; }

private:
    Socket* socket_;
};

// Takes over the caller's reference. False when the descriptor is too large.
bool add_socket(Socket& socket);
// Nothing (EBADF in errno) when `fd` is no rsocket.
SocketRef find_socket(int fd);
// Without it in the table no new call finds the socket.
SocketRef take_socket(int fd);

}  // namespace rdmalab::rdmacm
