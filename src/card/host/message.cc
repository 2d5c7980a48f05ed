#include "card/host/message.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace rdmalab::card::host {
namespace {

constexpr std::size_t kFdMax = 8;
constexpr std::size_t kControlMax = CMSG_SPACE(kFdMax * sizeof(int));

void take_fds(msghdr& header, std::vector<UniqueFd>& out) {
    for (cmsghdr* part = CMSG_FIRSTHDR(&header); part; part = CMSG_NXTHDR(&header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            out.emplace_back(fd);
        }
    }
}

}  // namespace

Result<Message> receive_message(int socket, ByteSpan buffer) {
    alignas(cmsghdr) std::array<char, kControlMax> control;
    iovec piece{buffer.data(), buffer.size()};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t length = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0) return Error{errno, ""};
    Message message;
    message.length = static_cast<std::size_t>(length);
    message.truncated = (header.msg_flags & MSG_TRUNC) != 0;
    take_fds(header, message.fds);
    return message;
}

Status send_message(int socket, ByteView bytes, std::span<const int> fds) {
    alignas(cmsghdr) std::array<char, kControlMax> control{};
    iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    if (!fds.empty()) {
        header.msg_control = control.data();
        header.msg_controllen = CMSG_SPACE(fds.size_bytes());
        cmsghdr* part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(fds.size_bytes());
        std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
    }
    if (::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return Error{errno, ""};
    return {};
}

}  // namespace rdmalab::card::host
