// The connected stream: rings, grants, sending and receiving.
#include <arpa/inet.h>
#include <string.h>

#include <algorithm>

#include "verbs/rdmacm/rsockets/stream.h"

namespace rdmalab::rdmacm {

namespace {

constexpr std::uint32_t kChunkMax = 64 * 1024;  // so that a large send overlaps with its copying
constexpr int kPollBatch = 16;
constexpr std::uint64_t kReceiveWr = ~0ull;  // other wr_ids are the bytes of the send ring

}  // namespace

bool StreamSocket::take_completions() {
    if (id_ == nullptr || id_->qp == nullptr) return false;
    ibv_wc completions[kPollBatch];
    bool found = false;
    for (;;) {
        int count = ibv_poll_cq(id_->recv_cq, kPollBatch, completions);
        if (count < 0) {
            end(EIO);
            return true;
        }
        if (count == 0) break;
        found = true;
        for (int i = 0; i < count; ++i) {
            const ibv_wc& wc = completions[i];
            if (wc.wr_id != kReceiveWr) {
                --sends_posted_;
                send_ring_tail_ += wc.wr_id;
            }
            if (wc.status != IBV_WC_SUCCESS) {
                if (wc.status != IBV_WC_WR_FLUSH_ERR) end(ECONNRESET);
            } else if (wc.wr_id == kReceiveWr) {
                take_message(ntohl(wc.imm_data));
            }
        }
    }
    if (found) grant_if_due();
    return found;
}

void StreamSocket::take_message(std::uint32_t immediate) {
    if (state_ == State::kAccepting) state_ = State::kConnected;  // the RTU is late or lost
    ++received_.messages;
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = kReceiveWr;
    if (ibv_post_recv(id_->qp, &wr, &bad) != 0) end(ECONNRESET);
    switch (stream::kind_of(immediate)) {
        case stream::Kind::kData:
            received_.bytes += stream::value_of(immediate);
            break;
        case stream::Kind::kGrant:
            take_grant(stream::value_of(immediate));
            break;
        case stream::Kind::kClose:
            has_peer_closed_ = true;
            has_peer_shut_ = true;
            break;
        case stream::Kind::kShutdown:
            has_peer_shut_ = true;
            break;
    }
}

void StreamSocket::take_grant(std::uint32_t value) {
    sent_.messages_granted += value & stream::kSlotsMax;
    sent_.bytes_granted += std::uint64_t{value >> stream::kGrantSlotBits} * stream::kGrantUnit;
}

bool StreamSocket::has_slot(std::uint32_t reserved) const {
    std::uint64_t used = sent_.messages - sent_.messages_granted;
    return used + reserved < peer_.slots && sends_posted_ + reserved < sends_max_;
}

void StreamSocket::grant_if_due() {
    if (state_ != State::kConnected || has_peer_closed_) return;
    std::uint64_t slots = received_.messages - received_.messages_granted;
    std::uint64_t bytes = bytes_read_ - received_.bytes_granted;
    if (slots < settings_.receive_wrs / 2 && bytes < receive_ring_.size() / 2) return;
    if (!has_slot(0)) return;
    auto units = static_cast<std::uint32_t>(bytes / stream::kGrantUnit);
    auto granted_slots = static_cast<std::uint32_t>(slots);
    if (send_control(stream::Kind::kGrant, units << stream::kGrantSlotBits | granted_slots) != 0) {
        return;
    }
    received_.messages_granted += granted_slots;
    received_.bytes_granted += std::uint64_t{units} * stream::kGrantUnit;
}

// With `length` bytes of `data`, which lie in the send ring and are free again on completion, or
// are sent inline. 0 or an errno value.
int StreamSocket::post_write(const void* data, std::uint32_t length, std::uint64_t remote_address,
                             std::uint32_t remote_key, const std::uint32_t* immediate) {
    ibv_sge sge{.addr = reinterpret_cast<std::uintptr_t>(data),
                .length = length,
                .lkey = send_ring_.lkey()};
    ibv_send_wr wr{}, *bad = nullptr;
    bool is_in_ring = data >= send_ring_.data() && data < send_ring_.data() + send_ring_.size();
    wr.wr_id = is_in_ring ? length : 0;
    wr.sg_list = &sge;
    wr.num_sge = length > 0 ? 1 : 0;
    wr.opcode = immediate != nullptr ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (length <= settings_.inline_bytes) wr.send_flags |= IBV_SEND_INLINE;
    if (immediate != nullptr) wr.imm_data = htonl(*immediate);
    wr.wr.rdma.remote_addr = remote_address;
    wr.wr.rdma.rkey = remote_key;
    int status = ibv_post_send(id_->qp, &wr, &bad);
    if (status != 0) return status;
    ++sends_posted_;
    if (immediate != nullptr) ++sent_.messages;
    return 0;
}

int StreamSocket::send_control(stream::Kind kind, std::uint32_t value) {
    std::uint32_t immediate = stream::immediate(kind, value);
    return post_write(nullptr, 0, peer_.ring_address, peer_.ring_key, &immediate);
}

// How many bytes may be sent in one message now.
std::uint32_t StreamSocket::sendable() const {
    if (!has_slot(stream::kSlotsReserved)) return 0;
    std::uint64_t ring = peer_.ring_length;
    std::uint64_t granted = ring - (sent_.bytes - sent_.bytes_granted);
    std::uint64_t to_ring_end = ring - sent_.bytes % ring;
    std::uint64_t own_size = send_ring_.size();
    std::uint64_t own_free = own_size - (send_ring_head_ - send_ring_tail_);
    std::uint64_t to_own_end = own_size - send_ring_head_ % own_size;
    return static_cast<std::uint32_t>(
        std::min({granted, to_ring_end, own_free, to_own_end, std::uint64_t{kChunkMax}}));
}

std::uint32_t StreamSocket::send_some(const std::byte* data, std::size_t length) {
    std::uint32_t now = sendable();
    if (now == 0 || length == 0) return 0;
    now = static_cast<std::uint32_t>(std::min<std::size_t>(now, length));
    std::byte* place = send_ring_.data() + send_ring_head_ % send_ring_.size();
    memcpy(place, data, now);
    std::uint32_t immediate = stream::immediate(stream::Kind::kData, now);
    std::uint64_t offset = sent_.bytes % peer_.ring_length;
    if (post_write(place, now, peer_.ring_address + offset, peer_.ring_key, &immediate) != 0) {
        end(ECONNRESET);
        return 0;
    }
    send_ring_head_ += now;
    sent_.bytes += now;
    return now;
}

// True when waiting to send will never end in sending.
bool StreamSocket::is_send_hopeless() const {
    bool is_coming = state_ == State::kConnected || state_ == State::kAccepting ||
                     state_ == State::kResolving || state_ == State::kConnecting;
    return is_write_shut_ || has_peer_closed_ || !is_coming;
}

int StreamSocket::send_error() {
    if (error_ != 0) return fail(pending_error());
    if (is_write_shut_ || has_peer_closed_ || state_ == State::kEnded) return fail(EPIPE);
    return fail(ENOTCONN);
}

ssize_t StreamSocket::send(const iovec* pieces, std::size_t count, int flags, const sockaddr*) {
    Lock lock(mutex_);
    if (state_ == State::kNew || state_ == State::kListening) return fail(ENOTCONN);
    bool blocks = may_block(flags);
    ssize_t sent = 0;
    for (std::size_t i = 0; i < count; ++i) {
        auto* data = static_cast<const std::byte*>(pieces[i].iov_base);
        std::size_t left = pieces[i].iov_len;
        while (left > 0) {
            auto can_go_on = [&] {
                return is_send_hopeless() || (state_ == State::kConnected && sendable() > 0);
            };
            if (wait(lock, blocks, can_go_on) != 0) return sent > 0 ? sent : -1;
            if (is_send_hopeless()) return sent > 0 ? sent : send_error();
            std::uint32_t now = send_some(data, left);
            data += now;
            left -= now;
            sent += now;
        }
    }
    return sent;
}

bool StreamSocket::is_readable() const {
    return received_.bytes > bytes_read_ || has_peer_shut_ || is_read_shut_ ||
           state_ == State::kEnded || state_ == State::kNew || state_ == State::kListening;
}

ssize_t StreamSocket::receive_some(const iovec* pieces, std::size_t count, bool is_peek) {
    std::uint64_t from = bytes_read_;
    for (std::size_t i = 0; i < count; ++i) {
        auto* to = static_cast<std::byte*>(pieces[i].iov_base);
        std::size_t left = pieces[i].iov_len;
        while (left > 0 && from < received_.bytes) {
            std::size_t offset = from % receive_ring_.size();
            std::size_t now = std::min({left, static_cast<std::size_t>(received_.bytes - from),
                                        receive_ring_.size() - offset});
            memcpy(to, receive_ring_.data() + offset, now);
            to += now;
            left -= now;
            from += now;
        }
    }
    auto taken = static_cast<ssize_t>(from - bytes_read_);
    if (!is_peek) {
        bytes_read_ = from;
        grant_if_due();
    }
    return taken;
}

ssize_t StreamSocket::receive(const iovec* pieces, std::size_t count, int flags, sockaddr* from,
                              socklen_t* from_length) {
    Lock lock(mutex_);
    std::uint64_t wanted = total_length(pieces, count);
    bool waits_for_all =
        (flags & MSG_WAITALL) != 0 && (flags & MSG_PEEK) == 0 && wanted <= receive_ring_.size() / 2;
    auto is_enough = [&] {
        bool has_end = has_peer_shut_ || is_read_shut_ || state_ == State::kEnded;
        if (waits_for_all && !has_end) return received_.bytes - bytes_read_ >= wanted;
        return is_readable();
    };
    if (wanted == 0) return 0;
    if (wait(lock, may_block(flags), is_enough) != 0) return -1;
    ssize_t taken = receive_some(pieces, count, (flags & MSG_PEEK) != 0);
    if (from != nullptr && from_length != nullptr && id_ != nullptr) {
        give_address(id_->route.addr.dst_addr, from, from_length);
    }
    if (taken > 0 || has_peer_shut_ || is_read_shut_) return taken;
    if (state_ == State::kNew || state_ == State::kListening) return fail(ENOTCONN);
    return error_ != 0 ? fail(pending_error()) : 0;
}

bool StreamSocket::progress() {
    bool found = take_completions();
    // The channel costs a system call; while data flow it can wait.
    if (!found) found = read_events();
    return found;
}

short StreamSocket::ready_now() {
    int out = 0;
    switch (state_) {
        case State::kNew:
            return POLLHUP | POLLOUT;
        case State::kListening: {
            pollfd channel{.fd = channel_->fd, .events = POLLIN, .revents = 0};
            return poll(&channel, 1, 0) > 0 ? POLLIN : 0;
        }
        case State::kResolving:
        case State::kConnecting:
        case State::kAccepting:
            break;
        case State::kConnected:
            if (is_send_hopeless() || sendable() > 0) out |= POLLOUT;
            break;
        case State::kEnded:
            out |= POLLIN | POLLOUT | POLLHUP;
            break;
    }
    if (error_ != 0) out |= POLLERR;
    if (is_readable()) out |= POLLIN;
    if (has_peer_shut_ && is_write_shut_) out |= POLLHUP;
    // Programs (rstream) take POLLHUP for a failure, so it waits until what came before the end has
    // been read.
    if (received_.bytes > bytes_read_ && error_ == 0) out &= ~POLLHUP;
    return static_cast<short>(out);
}

bool StreamSocket::arm_queues() {
    if (id_ == nullptr || id_->qp == nullptr || state_ == State::kEnded) return true;
    if (ibv_req_notify_cq(id_->recv_cq, 0) != 0) {
        end(EIO);
        return false;
    }
    return !take_completions();
}

void StreamSocket::drain_queues() {
    if (id_ == nullptr || id_->recv_cq_channel == nullptr) return;
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(id_->recv_cq_channel, &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
}

}  // namespace rdmalab::rdmacm
