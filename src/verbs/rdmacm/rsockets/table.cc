#include "verbs/rdmacm/rsockets/table.h"

#include <mutex>
#include <vector>

namespace rdmalab::rdmacm {

namespace {

constexpr int kFdMax = 1 << 20;

std::mutex table_mutex;
std::vector<Socket*>& table() {
    static auto* sockets = new std::vector<Socket*>();  // for as long as the process lives
    return *sockets;
}

}  // namespace

bool add_socket(Socket& socket) {
    int fd = socket.fd();
    if (fd < 0 || fd >= kFdMax) return false;
    std::lock_guard guard(table_mutex);
    auto index = static_cast<std::size_t>(fd);
    if (index >= table().size()) table().resize(index + 1);
    table()[index] = &socket;
    return true;
}

SocketRef find_socket(int fd) {
    std::lock_guard guard(table_mutex);
    auto index = static_cast<std::size_t>(fd);
    Socket* socket = fd >= 0 && index < table().size() ? table()[index] : nullptr;
    if (socket == nullptr) {
        errno = EBADF;
    } else {
        socket->retain();
    }
    return SocketRef(socket);
}

SocketRef take_socket(int fd) {
    std::lock_guard guard(table_mutex);
    auto index = static_cast<std::size_t>(fd);
    Socket* socket = fd >= 0 && index < table().size() ? table()[index] : nullptr;
    if (socket == nullptr) {
        errno = EBADF;
    } else {
        table()[index] = nullptr;
    }
    return SocketRef(socket);
}

}  // namespace rdmalab::rdmacm
