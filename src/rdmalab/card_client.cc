#include "rdmalab/card_client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "rdmalab/failure.h"
#include "rdmalab/runtime_folder.h"

namespace rdmalab::launcher {

namespace {

constexpr timeval kAnswerTimeout{5, 0};

sockaddr_un socket_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
        throw Failure(
            kExitBadInput,
            fmt::format("socket path '{}': expected at most {} bytes, found {}; a shorter "
                        "RDMALAB_RUNTIME_DIR helps",
                        path, sizeof address.sun_path - 1, path.size()));
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

pid_t peer_pid(int socket) {
    ucred peer{};
    socklen_t length = sizeof peer;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return 0;
    return peer.pid;
}

// Room for one descriptor in a control message.
union DescriptorControl {
    char bytes[CMSG_SPACE(sizeof(int))];
    cmsghdr alignment;
};

}  // namespace

std::optional<CardClient> CardClient::connect(const std::string& name) {
    std::string path = card_files(name).socket;
    sockaddr_un address = socket_address(path);
    Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) {
        throw Failure(kExitFailed, fmt::format("cannot make a socket: {}", std::strerror(errno)));
    }
    setsockopt(socket.value(), SOL_SOCKET, SO_RCVTIMEO, &kAnswerTimeout, sizeof kAnswerTimeout);
    setsockopt(socket.value(), SOL_SOCKET, SO_SNDTIMEO, &kAnswerTimeout, sizeof kAnswerTimeout);
    if (::connect(socket.value(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        if (errno == ENOENT || errno == ECONNREFUSED || errno == ENOTDIR) return std::nullopt;
        throw Failure(kExitFailed, fmt::format("cannot reach the card '{}' at {}: {}", name, path,
                                               std::strerror(errno)));
    }
    pid_t pid = peer_pid(socket.value());
    return CardClient(name, std::move(socket), pid);
}

CardClient CardClient::connect_or_fail(const std::string& name) {
    if (std::optional<CardClient> client = connect(name)) return std::move(*client);
    std::string start = name == kDefaultCard ? "rdmalab up" : "rdmalab up --name " + name;
    std::string text = fmt::format("no card named '{}' is up; start one with: {}", name, start);
    std::vector<std::string> others = running_cards();
    if (!others.empty()) text += fmt::format("\ncards that are up: {}", fmt::join(others, ", "));
    throw Failure(kExitBadInput, text);
}

Json CardClient::admin(const Json& request, int descriptor) {
    send(abi::Op::kAdmin, request.dump(), descriptor);
    Reply reply = receive();
    if (reply.status != 0) {
        bool asked_wrongly = reply.status == EINVAL || reply.status == ENOENT;
        std::string text = reply.body.empty() ? std::strerror(reply.status) : reply.body;
        throw Failure(asked_wrongly ? kExitBadInput : kExitFailed, text);
    }
    Json answer = Json::parse(read_text(reply), nullptr, false);
    if (answer.is_discarded()) {
        throw Failure(kExitFailed,
                      fmt::format("the card '{}' answered with text that is not JSON", name_));
    }
    return answer;
}

std::vector<abi::DeviceInfo> CardClient::list_devices() {
    send(abi::Op::kListDevices, {}, -1);
    Reply reply = receive();
    if (reply.status != 0) {
        throw Failure(kExitFailed, fmt::format("the card '{}' does not list its devices: {}", name_,
                                               reply.body));
    }
    std::vector<abi::DeviceInfo> devices(reply.body.size() / sizeof(abi::DeviceInfo));
    std::memcpy(devices.data(), reply.body.data(), devices.size() * sizeof(abi::DeviceInfo));
    for (abi::DeviceInfo& device : devices) {
        device.name[sizeof device.name - 1] = 0;
        device.pci[sizeof device.pci - 1] = 0;
    }
    return devices;
}

void CardClient::send(abi::Op op, std::string_view body, int descriptor) {
    abi::RequestHeader header;
    header.op = op;
    header.length = static_cast<std::uint32_t>(body.size());
    iovec parts[2] = {{&header, sizeof header}, {const_cast<char*>(body.data()), body.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    DescriptorControl control{};
    if (descriptor >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        cmsghdr* head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof descriptor);
        std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
    }
    ssize_t sent = 0;
    do {
        sent = sendmsg(socket_.value(), &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    // A card that refuses a client says why before it closes the connection: receive() finds that.
    if (sent < 0 && errno != EPIPE) fail_no_answer("take a request", errno);
}

CardClient::Reply CardClient::receive() {
    std::vector<char> buffer(sizeof(abi::ReplyHeader) + abi::kMessageMax);
    iovec part{buffer.data(), buffer.size()};
    DescriptorControl control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    ssize_t received = 0;
    do {
        received = recvmsg(socket_.value(), &message, MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    if (received < 0) fail_no_answer("answer", errno);

    Reply reply;
    if (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr && head->cmsg_type == SCM_RIGHTS) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(head), sizeof descriptor);
        reply.descriptor = Fd(descriptor);
    }
    abi::ReplyHeader header{};
    std::size_t size = static_cast<std::size_t>(received);
    if (size < sizeof header) fail_no_answer("answer", ECONNRESET);
    std::memcpy(&header, buffer.data(), sizeof header);
    if (header.magic != abi::kMagic) fail_no_answer("answer", EPROTO);
    reply.status = header.status;
    reply.length = header.length;
    reply.body.assign(buffer.data() + sizeof header, size - sizeof header);
    return reply;
}

void CardClient::fail_no_answer(const char* action, int error) const {
    bool timed_out = error == EAGAIN || error == EWOULDBLOCK;
    throw Failure(kExitFailed,
                  fmt::format("the card '{}' (pid {}) does not {}: {}", name_, pid_, action,
                              timed_out ? "no reply in 5 s" : std::strerror(error)));
}

std::string CardClient::read_text(const Reply& reply) {
    if (!reply.descriptor.is_open()) return reply.body;
    std::string text(reply.length, '\0');
    std::size_t done = 0;
    while (done < text.size()) {
        ssize_t got = pread(reply.descriptor.value(), text.data() + done, text.size() - done,
                            static_cast<off_t>(done));
        if (got <= 0) break;
        done += static_cast<std::size_t>(got);
    }
    text.resize(done);
    return text;
}

std::vector<std::string> running_cards() {
    std::vector<std::string> running;
    for (const std::string& name : names_in_use()) {
        try {
            if (CardClient::connect(name)) running.push_back(name);
        } catch (const Failure&) {
            continue;  // a socket of somebody else is not a card of ours
        }
    }
    return running;
}

}  // namespace rdmalab::launcher
