// rsockets stand on the connection manager: without one there is no rsocket, and every call on a
// descriptor is a call on something that is not one.
#pragma GCC visibility push(default)
#include <rdma/rsocket.h>
#pragma GCC visibility pop

#include <errno.h>

namespace {

int not_a_socket() {
    errno = EBADF;
    return -1;
}

}  // namespace

extern "C" {

int rsocket(int, int, int) {
    errno = ENOSYS;
    return -1;
}
int rbind(int, const sockaddr*, socklen_t) { return not_a_socket(); }
int rlisten(int, int) { return not_a_socket(); }
int raccept(int, sockaddr*, socklen_t*) { return not_a_socket(); }
int rconnect(int, const sockaddr*, socklen_t) { return not_a_socket(); }
int rshutdown(int, int) { return not_a_socket(); }
int rclose(int) { return not_a_socket(); }

ssize_t rrecv(int, void*, size_t, int) { return not_a_socket(); }
ssize_t rrecvfrom(int, void*, size_t, int, sockaddr*, socklen_t*) { return not_a_socket(); }
ssize_t rrecvmsg(int, msghdr*, int) { return not_a_socket(); }
ssize_t rsend(int, const void*, size_t, int) { return not_a_socket(); }
ssize_t rsendto(int, const void*, size_t, int, const sockaddr*, socklen_t) {
    return not_a_socket();
}
ssize_t rsendmsg(int, const msghdr*, int) { return not_a_socket(); }
ssize_t rread(int, void*, size_t) { return not_a_socket(); }
ssize_t rreadv(int, const iovec*, int) { return not_a_socket(); }
ssize_t rwrite(int, const void*, size_t) { return not_a_socket(); }
ssize_t rwritev(int, const iovec*, int) { return not_a_socket(); }

// Also called on ordinary descriptors (rping waits for the keyboard and for events alike).
int rpoll(pollfd* fds, nfds_t count, int timeout) { return poll(fds, count, timeout); }
int rselect(int count, fd_set* readable, fd_set* writable, fd_set* exceptional, timeval* timeout) {
    return select(count, readable, writable, exceptional, timeout);
}

int rgetpeername(int, sockaddr*, socklen_t*) { return not_a_socket(); }
int rgetsockname(int, sockaddr*, socklen_t*) { return not_a_socket(); }
int rsetsockopt(int, int, int, const void*, socklen_t) { return not_a_socket(); }
int rgetsockopt(int, int, int, void*, socklen_t*) { return not_a_socket(); }
int rfcntl(int, int, ...) { return not_a_socket(); }

off_t riomap(int, void*, size_t, int, int, off_t) { return not_a_socket(); }
int riounmap(int, void*, size_t) { return not_a_socket(); }
size_t riowrite(int, const void*, size_t, off_t, int) {
    return static_cast<size_t>(not_a_socket());
}

}  // extern "C"
