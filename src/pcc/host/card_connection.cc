#include "pcc/host/card_connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "card/ring_abi.h"

namespace rdmalab::pcc::host {
namespace {

constexpr int kDescriptors = 3;  // rings, card page, bell

Error system_error(const std::string& what, int code = errno) {
    return {code, what + ": " + std::strerror(code)};
}

std::string environment(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

Status connect_to(int socket, const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        return Error{ENAMETOOLONG, "the path of the card's socket is too long: " + path};
    std::memcpy(address.sun_path, path.data(), path.size());
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
        return {};
    return system_error("no card at " + path + " (start one: rdmalab up)");
}

}  // namespace

std::string default_socket() {
    if (std::string path = environment("RDMALAB_SOCKET"); !path.empty()) return path;
    std::string folder = environment("RDMALAB_RUNTIME_DIR");
    if (folder.empty()) {
        const std::string runtime = environment("XDG_RUNTIME_DIR");
        if (!runtime.empty())
            folder = runtime + "/rdmalab";
        else if (::geteuid() == 0)
            folder = "/run/rdmalab";
        else
            folder = "/tmp/rdmalab-" + std::to_string(::geteuid());
    }
    const std::string card = environment("RDMALAB_CARD");
    return folder + "/" + (card.empty() ? "default" : card) + ".sock";
}

CardConnection::~CardConnection() {
    close();
    if (base_ != nullptr) ::munmap(base_, size_);
    if (card_page_ != nullptr) ::munmap(card_page_, sizeof(abi::CardPage));
    for (const int fd : {memory_fd_, page_fd_, bell_})
        if (fd >= 0) ::close(fd);
}

void CardConnection::close() {
    const int socket = socket_.exchange(-1);
    if (socket >= 0) ::close(socket);
}

bool CardConnection::is_gone() const {
    pollfd watch{socket_, POLLIN | POLLRDHUP, 0};
    return watch.fd >= 0 && ::poll(&watch, 1, 0) > 0;
}

Status CardConnection::attach(const std::string& socket, const AttachRequest& request) {
    socket_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (socket_ < 0) return system_error("cannot make a socket");
    if (Status status = connect_to(socket_, socket.empty() ? default_socket() : socket); !status)
        return status;
    abi::RequestHeader header;
    header.op = static_cast<abi::Op>(PccOp::kAttach);
    header.length = sizeof request;
    std::byte message[sizeof header + sizeof request];
    store_bytes(message, header);
    store_bytes(message + sizeof header, request);
    if (::send(socket_, message, sizeof message, MSG_NOSIGNAL) != sizeof message)
        return system_error("the card does not take requests");
    AttachReply reply;
    if (Status status = receive_reply(reply); !status) return status;
    return map(reply.size);
}

Status CardConnection::receive_reply(AttachReply& reply) {
    std::vector<std::byte> buffer(abi::kMessageMax);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kDescriptors)];
    iovec part{buffer.data(), buffer.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t length = ::recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
    if (length < static_cast<ssize_t>(sizeof(abi::ReplyHeader)))
        return Error{ECONNRESET, "the card has closed the connection"};
    int fds[kDescriptors] = {-1, -1, -1};
    const cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    if (rights != nullptr && rights->cmsg_len == CMSG_LEN(sizeof fds))
        std::memcpy(fds, CMSG_DATA(rights), sizeof fds);
    memory_fd_ = fds[0];
    page_fd_ = fds[1];
    bell_ = fds[2];
    const auto header = load_bytes<abi::ReplyHeader>(buffer.data());
    const auto* const body = buffer.data() + sizeof header;
    const std::size_t body_length = static_cast<std::size_t>(length) - sizeof header;
    if (header.status != 0)
        return Error{header.status, {reinterpret_cast<const char*>(body), body_length}};
    if (body_length != sizeof reply || bell_ < 0)
        return Error{EPROTO, "card and program are of different builds"};
    reply = load_bytes<AttachReply>(body);
    return {};
}

Status CardConnection::map(std::uint64_t size) {
    void* const base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd_, 0);
    if (base == MAP_FAILED) return system_error("cannot map the rings");
    base_ = static_cast<std::byte*>(base);
    size_ = size;
    void* const page = ::mmap(nullptr, sizeof(abi::CardPage), PROT_READ, MAP_SHARED, page_fd_, 0);
    if (page == MAP_FAILED) return system_error("cannot map the card's page");
    card_page_ = page;
    if (this->page().version != kAbiVersion)
        return Error{EPROTO, "card and program are of different builds"};
    return {};
}

AlgorithmPage& CardConnection::algorithm() const {
    return *reinterpret_cast<AlgorithmPage*>(base_ + page().algorithm_offset);
}

WorkerRings& CardConnection::rings(std::uint32_t worker) const {
    return *reinterpret_cast<WorkerRings*>(base_ + page().ring_offset +
                                           worker * page().ring_stride);
}

void CardConnection::ring_bell() const {
    // The answer is visible before the card is asked whether it sleeps.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const auto& page = *static_cast<const abi::CardPage*>(card_page_);
    if (page.sleeping.load(std::memory_order_relaxed) == 0) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(bell_, &one, sizeof one);
}

}  // namespace rdmalab::pcc::host
