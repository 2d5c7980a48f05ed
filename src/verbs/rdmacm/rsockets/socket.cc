#include "verbs/rdmacm/rsockets/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>

#include "verbs/rdmacm/marshal.h"

namespace rdmalab::rdmacm {

Socket::~Socket() {
    if (fd_ >= 0) ::close(fd_);
}

bool Socket::open() {
    fd_ = epoll_create1(EPOLL_CLOEXEC);
    return fd_ >= 0;
}

bool Socket::watch(int fd) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    return epoll_ctl(fd_, EPOLL_CTL_ADD, fd, &event) == 0;
}

int Socket::sleep(Lock& lock) {
    if (has_sleeper_) {
        changed_.wait_for(lock, std::chrono::milliseconds(settings_.wake_up_ms));
        return 0;
    }
    has_sleeper_ = true;
    lock.unlock();
    pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
    int status = poll(&entry, 1, static_cast<int>(settings_.wake_up_ms));
    int error = errno;
    lock.lock();
    has_sleeper_ = false;
    if (status > 0) drain_queues();
    changed_.notify_all();
    return status < 0 ? fail(error) : 0;
}

short Socket::ready(short events) {
    Lock lock(mutex_);
    if (progress()) changed_.notify_all();
    return static_cast<short>(ready_now() & (events | POLLERR | POLLHUP));
}

bool Socket::arm() {
    Lock lock(mutex_);
    return arm_queues();
}

void Socket::drain() {
    Lock lock(mutex_);
    drain_queues();
}

int Socket::set_flags(int flags) {
    Lock lock(mutex_);
    is_nonblocking_ = (flags & O_NONBLOCK) != 0;
    return 0;
}

int Socket::listen(int) { return fail(EOPNOTSUPP); }
Socket* Socket::accept(sockaddr*, socklen_t*) { return fail_null(EOPNOTSUPP); }
off_t Socket::map_io(void*, std::size_t, int, int, off_t) { return fail(EOPNOTSUPP); }
int Socket::unmap_io(void*, std::size_t) { return fail(EOPNOTSUPP); }
ssize_t Socket::write_io(const void*, std::size_t, off_t, int) { return fail(EOPNOTSUPP); }

// --- Options: all of rsocket(7) are kept and given back; some have an effect.

namespace {

bool is_known(int level, int name) {
    switch (level) {
        case SOL_SOCKET:
            return name == SO_KEEPALIVE || name == SO_OOBINLINE || name == SO_REUSEADDR;
        case IPPROTO_TCP:
            return name == TCP_NODELAY || name == TCP_MAXSEG || name == TCP_KEEPCNT ||
                   name == TCP_KEEPIDLE || name == TCP_KEEPINTVL;
        case IPPROTO_IPV6:
            return name == IPV6_V6ONLY;
        default:
            return false;
    }
}

int give_int(int value, void* out, socklen_t* length) {
    *length = std::min<socklen_t>(*length, sizeof value);
    memcpy(out, &value, *length);
    return 0;
}

}  // namespace

int* Socket::find_option(int level, int name, bool make) {
    for (std::size_t i = 0; i < option_count_; ++i) {
        if (options_[i].level == level && options_[i].name == name) return &options_[i].value;
    }
    if (!make || option_count_ == std::size(options_)) return nullptr;
    options_[option_count_] = {.level = level, .name = name, .value = 0};
    return &options_[option_count_++].value;
}

int Socket::set_size(int name, int value) {
    auto size = static_cast<std::uint32_t>(std::max(value, 0));
    switch (name) {
        case RDMA_SQSIZE:
            settings_.send_wrs = size;
            break;
        case RDMA_RQSIZE:
            settings_.receive_wrs = size;
            break;
        case RDMA_INLINE:
            settings_.inline_bytes = size;
            break;
        case RDMA_IOMAPSIZE:
            settings_.iomap_entries = size;
            break;
        case RDMA_ROUTE:
            return 0;  // follows from the addresses
        default:
            return fail(ENOPROTOOPT);
    }
    settings_.clamp();
    return 0;
}

int Socket::set_option(int level, int name, const void* value, socklen_t length) {
    Lock lock(mutex_);
    if (level == SOL_SOCKET && name == SO_LINGER) {
        if (length < sizeof linger_) return fail(EINVAL);
        memcpy(&linger_, value, sizeof linger_);
        return 0;
    }
    int number = 0;
    if (level == SOL_RDMA && name == RDMA_ROUTE) return 0;
    if (length < sizeof number) return fail(EINVAL);
    memcpy(&number, value, sizeof number);
    if (level == SOL_RDMA) return set_size(name, number);
    if (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_SNDBUF)) {
        auto size = static_cast<std::uint32_t>(std::max(number, 0));
        (name == SO_RCVBUF ? settings_.receive_bytes : settings_.send_bytes) = size;
        settings_.clamp();
        return 0;
    }
    if (!is_known(level, name)) return fail(ENOPROTOOPT);
    if (int status = apply_option(level, name, number)) return fail(status);
    int* stored = find_option(level, name, true);
    if (stored == nullptr) return fail(ENOBUFS);
    *stored = number;
    return 0;
}

int Socket::get_option(int level, int name, void* value, socklen_t* length) {
    Lock lock(mutex_);
    auto give = [&](std::uint32_t number) {
        return give_int(static_cast<int>(number), value, length);
    };
    if (level == SOL_SOCKET) {
        if (name == SO_RCVBUF) return give(settings_.receive_bytes);
        if (name == SO_SNDBUF) return give(settings_.send_bytes);
        if (name == SO_TYPE) return give_int(type_, value, length);
        if (name == SO_DOMAIN) return give_int(domain_, value, length);
        if (name == SO_ERROR) {
            progress();
            return give_int(pending_error(), value, length);
        }
        if (name == SO_LINGER) {
            *length = std::min<socklen_t>(*length, sizeof linger_);
            memcpy(value, &linger_, *length);
            return 0;
        }
    }
    if (level == SOL_RDMA) {
        if (name == RDMA_SQSIZE) return give(settings_.send_wrs);
        if (name == RDMA_RQSIZE) return give(settings_.receive_wrs);
        if (name == RDMA_INLINE) return give(settings_.inline_bytes);
        if (name == RDMA_IOMAPSIZE) return give(settings_.iomap_entries);
        return fail(ENOPROTOOPT);
    }
    if (!is_known(level, name)) return fail(ENOPROTOOPT);
    const int* stored = find_option(level, name, false);
    return give_int(stored != nullptr ? *stored : 0, value, length);
}

int give_address(const sockaddr& address, sockaddr* out, socklen_t* length) {
    socklen_t size = sockaddr_length(&address);
    if (out != nullptr && length != nullptr) {
        memcpy(out, &address, std::min(*length, size));
        *length = size;
    }
    return 0;
}

std::size_t total_length(const iovec* pieces, std::size_t count) {
    std::size_t total = 0;
    for (std::size_t i = 0; i < count; ++i) total += pieces[i].iov_len;
    return total;
}

}  // namespace rdmalab::rdmacm
