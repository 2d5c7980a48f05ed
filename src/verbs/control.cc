#include "verbs/control.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "verbs/complain.h"
#include "verbs/location.h"

namespace rdmalab::verbs {

ReceivedFds::~ReceivedFds() {
    for (int i = 0; i < count; ++i) {
        if (fds[i] >= 0) ::close(fds[i]);
    }
}

int ReceivedFds::take(int index) {
    if (index >= count) return -1;
    int fd = fds[index];
    fds[index] = -1;
    return fd;
}

int Connection::open(const char* path, int timeout_s) {
    sockaddr_un address{};
    if (strlen(path) >= sizeof address.sun_path) return ENAMETOOLONG;
    const socklen_t length = make_address(path, address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    int status = 0;
    do {
        status = connect(fd, reinterpret_cast<sockaddr*>(&address), length);
    } while (status != 0 && errno == EINTR);
    if (status != 0) {
        status = errno;
        ::close(fd);
        return status;
    }
    status = adopt(fd);
    if (status == 0) set_timeout(timeout_s);
    return status;
}

int Connection::adopt(int fd) {
    fd_ = fd;
    ucred peer{};
    socklen_t length = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0) peer_pid_ = peer.pid;
    return 0;
}

void Connection::close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
    mark_dead();
}

void Connection::renew() {
    close();
    new (&mutex_) std::mutex();
    dead_.store(false);
}

void Connection::set_timeout(int seconds) {
    timeval timeout{.tv_sec = seconds, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
}

bool Connection::check_dead() {
    if (is_dead()) return true;
    char byte;
    ssize_t n = 0;
    do {
        n = recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) mark_dead();
    return is_dead();
}

namespace {
void attach_fd(msghdr& message, char* control, std::size_t size, int fd) {
    message.msg_control = control;
    message.msg_controllen = size;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
}
}  // namespace

int Connection::send(abi::Op op, ByteView request, int sent_fd) {
    abi::RequestHeader header;
    header.op = op;
    header.length = static_cast<std::uint32_t>(request.size());
    iovec parts[2] = {{&header, sizeof header},
                      {const_cast<std::byte*>(request.data()), request.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = request.empty() ? 1 : 2;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof sent_fd)] = {};
    if (sent_fd >= 0) attach_fd(message, control, sizeof control, sent_fd);
    ssize_t n = 0;
    do {
        n = sendmsg(fd_, &message, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    // A card that refuses a client says why before it closes the connection: receive() finds that.
    return n < 0 && errno != EPIPE ? errno : 0;
}

namespace {

void collect_fds(msghdr& message, ReceivedFds* out) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
            if (out != nullptr && out->count < ReceivedFds::kMax) {
                out->fds[out->count++] = fd;
            } else {
                ::close(fd);
            }
        }
    }
}

}  // namespace

int Connection::receive(ByteSpan reply, std::size_t* reply_length, ReceivedFds* fds,
                        int& card_status) {
    abi::ReplyHeader header{};
    iovec parts[2] = {{&header, sizeof header}, {buffer_, sizeof buffer_}};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * ReceivedFds::kMax)];
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t n = 0;
    do {
        n = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return errno;
    if (n == 0) return EPIPE;
    collect_fds(message, fds);
    std::size_t body = static_cast<std::size_t>(n) - std::min(sizeof header, std::size_t(n));
    if (std::size_t(n) < sizeof header || header.magic != abi::kMagic || header.length != body) {
        return EPROTO;
    }
    card_status = header.status;
    if (card_status != 0) {
        std::size_t text = std::min(body, sizeof error_text_ - 1);
        memcpy(error_text_, buffer_, text);
        error_text_[text] = '\0';
        return 0;
    }
    std::size_t copied = std::min(body, reply.size());
    if (copied > 0) memcpy(reply.data(), buffer_, copied);
    std::fill(reply.begin() + static_cast<std::ptrdiff_t>(copied), reply.end(), std::byte{0});
    if (reply_length != nullptr) *reply_length = body;
    return 0;
}

int Connection::call(abi::Op op, ByteView request, ByteSpan reply, std::size_t* reply_length,
                     ReceivedFds* fds, int sent_fd) {
    if (is_dead()) return EIO;  // before the lock: in the child of a fork nobody may release it
    std::lock_guard lock(mutex_);
    if (is_dead()) return EIO;
    error_text_[0] = '\0';
    int card_status = 0;
    int failure = send(op, request, sent_fd);
    if (failure == 0) failure = receive(reply, reply_length, fds, card_status);
    if (failure != 0) {
        // Once a reply is lost, the next one could be taken for it: the connection is of no use.
        mark_dead();
        return failure == EAGAIN ? ETIMEDOUT : EIO;
    }
    if (card_status != 0) explain(op, card_status, error_text_);
    return card_status;
}

}  // namespace rdmalab::verbs
