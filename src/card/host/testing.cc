#include "card/host/testing.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/bytes.h"
#include "card/host/message.h"

namespace rdmalab::card::host {

ChildProcess::ChildProcess(std::size_t length) : length_(length) {
    const UniqueFd memory(::memfd_create("rdmalab-test", MFD_CLOEXEC));
    int sockets[2];
    if (::ftruncate(memory.value(), static_cast<off_t>(length)) != 0 ||
        ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        std::abort();
    }
    const auto map = [&] {
        return static_cast<std::uint8_t*>(::mmap(nullptr, length, PROT_READ | PROT_WRITE,
                                                 MAP_SHARED | MAP_POPULATE, memory.value(), 0));
    };
    base_ = map();
    pid_ = ::fork();
    if (pid_ == 0) serve(sockets[1]);
    ::close(sockets[1]);
    commands_.reset(sockets[0]);
    view_ = map();
}

ChildProcess::~ChildProcess() {
    kill();
    ::munmap(base_, length_);
    ::munmap(view_, length_);
}

std::uint64_t ChildProcess::word(std::size_t offset) const {
    std::uint64_t value;
    std::memcpy(&value, view_ + offset, sizeof value);
    return value;
}

void ChildProcess::set_word(std::size_t offset, std::uint64_t value) {
    std::memcpy(view_ + offset, &value, sizeof value);
}

void ChildProcess::fill(std::size_t offset, std::size_t length, std::uint8_t value) {
    std::memset(view_ + offset, value, length);
}

std::vector<std::uint8_t> ChildProcess::load(std::size_t offset, std::size_t length) const {
    return {view_ + offset, view_ + offset + length};
}

void ChildProcess::store(std::size_t offset, const std::vector<std::uint8_t>& bytes) {
    std::copy(bytes.begin(), bytes.end(), view_ + offset);
}

void ChildProcess::unmap(std::size_t offset, std::size_t length) {
    order({'u', address(offset), length, 0});
}

void ChildProcess::protect(std::size_t offset, std::size_t length, int protection) {
    order({'p', address(offset), length, protection});
}

void ChildProcess::kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
}

void ChildProcess::serve(int socket) {
    Command command{};
    while (::recv(socket, &command, sizeof command, 0) == sizeof command) {
        void* const address = reinterpret_cast<void*>(command.address);
        if (command.what == 'u') ::munmap(address, command.length);
        if (command.what == 'p') ::mprotect(address, command.length, command.protection);
        ::send(socket, "", 1, 0);
    }
    ::_exit(0);
}

void ChildProcess::order(const Command& command) {
    char done;
    if (::send(commands_.value(), &command, sizeof command, MSG_NOSIGNAL) < 0 ||
        ::recv(commands_.value(), &done, 1, 0) != 1) {
        std::abort();
    }
}

ControlClient ControlClient::connect(const std::string& path) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
    if (::connect(socket.value(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
        0) {
        return ControlClient(UniqueFd());
    }
    return ControlClient(std::move(socket));
}

void ControlClient::send_raw(std::span<const std::byte> bytes, int fd) {
    const std::array<int, 1> fds = {fd};
    (void)send_message(socket_.value(), bytes, std::span(fds).first(fd >= 0 ? 1 : 0));
}

void ControlClient::send(abi::Op op, std::span<const std::byte> body, int fd) {
    abi::RequestHeader header;
    header.op = op;
    header.length = static_cast<std::uint32_t>(body.size());
    std::vector<std::byte> bytes(sizeof header + body.size());
    store_bytes(bytes.data(), header);
    std::copy(body.begin(), body.end(), bytes.begin() + sizeof header);
    send_raw(bytes, fd);
}

ControlClient::Reply ControlClient::receive() {
    constexpr int kTimeoutMs = 5'000;
    pollfd ready{socket_.value(), POLLIN, 0};
    ::poll(&ready, 1, kTimeoutMs);
    return receive_now();
}

ControlClient::Reply ControlClient::receive_now() {
    Reply reply;
    std::vector<std::byte> buffer(sizeof(abi::ReplyHeader) + abi::kMessageMax);
    auto message = receive_message(socket_.value(), buffer);
    if (!message.ok() || message->length < sizeof(abi::ReplyHeader)) {
        reply.closed = true;
        return reply;
    }
    const auto header = load_bytes<abi::ReplyHeader>(buffer.data());
    reply.status = header.status;
    reply.fds = std::move(message->fds);
    reply.body.assign(buffer.begin() + sizeof header,
                      buffer.begin() + static_cast<std::ptrdiff_t>(message->length));
    if (header.status != 0) {
        reply.text.assign(reinterpret_cast<const char*>(reply.body.data()), reply.body.size());
    } else if (reply.body.size() < header.length && !reply.fds.empty()) {
        reply.text.resize(header.length);
        const ssize_t got = ::pread(reply.fds[0].value(), reply.text.data(), reply.text.size(), 0);
        reply.text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    }
    return reply;
}

TemporaryFolder::TemporaryFolder() {
    char name[] = "/tmp/rdmalab-test-XXXXXX";
    if (!::mkdtemp(name)) std::abort();
    path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace rdmalab::card::host
