#include "pcc/host/card_connection.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "card/client/connection.h"
#include "card/ring_abi.h"

namespace rdmalab::pcc::host {
namespace {

constexpr int kDescriptors = 3;  // rings, card page, bell

Error system_error(const std::string& what, int code = errno) {
    return {code, what + ": " + std::strerror(code)};
}

}  // namespace

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
    auto opened = card::client::Connection::open(socket);
    if (!opened.ok()) return opened.error();
    std::vector<int> descriptors;
    const auto body = opened->call(static_cast<abi::Op>(PccOp::kAttach),
                                   std::as_bytes(std::span(&request, 1)), &descriptors);
    socket_ = opened->release();
    descriptors.resize(kDescriptors, -1);
    memory_fd_ = descriptors[0];
    page_fd_ = descriptors[1];
    bell_ = descriptors[2];
    if (!body.ok()) return body.error();
    if (body->size() != sizeof(AttachReply) || bell_ < 0)
        return Error{EPROTO, "card and program are of different builds"};
    return map(load_bytes<AttachReply>(body->data()).size);
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
