// riomap, riounmap, riowrite: see stream_protocol.h, "I/O mappings".
#include <string.h>
#include <sys/mman.h>

#include <algorithm>

#include "verbs/rdmacm/rsockets/stream.h"

namespace rdmalab::rdmacm {

namespace {

bool overlaps(std::uint64_t a, std::uint64_t a_length, std::uint64_t b, std::uint64_t b_length) {
    return a < b + b_length && b < a + a_length;
}

}  // namespace

bool StreamSocket::is_offset_taken(std::uint64_t offset, std::uint64_t length) const {
    return std::any_of(mappings_.begin(), mappings_.end(), [&](const Mapping& m) {
        return m.is_remote && overlaps(m.offset, m.length, offset, length);
    });
}

// Behind all others.
off_t StreamSocket::choose_offset(std::uint64_t) const {
    std::uint64_t end = 0;
    for (const Mapping& m : mappings_) {
        if (m.is_remote) end = std::max(end, m.offset + m.length);
    }
    return static_cast<off_t>(end);
}

// Writes an entry of the peer's table; length 0 clears it. Nothing may be under way in the send
// ring. 0 or an errno value.
int StreamSocket::announce(const Mapping& mapping, std::uint64_t length) {
    stream::IomapEntry entry{.offset = mapping.offset,
                             .length = length,
                             .address = reinterpret_cast<std::uintptr_t>(mapping.buffer),
                             .key = mapping.mr->rkey,
                             .reserved = 0};
    send_ring_head_ = send_ring_tail_ = 0;  // nothing is under way
    memcpy(send_ring_.data(), &entry, sizeof entry);
    std::uint64_t to = peer_.iomap_address + mapping.slot * sizeof entry;
    int status = post_write(send_ring_.data(), sizeof entry, to, peer_.iomap_key, nullptr);
    if (status == 0) send_ring_head_ += sizeof entry;
    return status;
}

off_t StreamSocket::map_io(void* buffer, std::size_t length, int protection, int flags,
                           off_t offset) {
    Lock lock(mutex_);
    if (length == 0 || flags != 0 || (protection & ~PROT_WRITE) != 0) return fail(EINVAL);
    if (state_ == State::kAccepting) {
        wait(lock, true, [&] { return state_ != State::kAccepting; });
    }
    if (state_ != State::kConnected) return fail(ENOTCONN);
    Mapping mapping;
    mapping.buffer = static_cast<std::byte*>(buffer);
    mapping.length = length;
    mapping.is_remote = (protection & PROT_WRITE) != 0;
    if (mapping.is_remote) {
        if (offset == -1) offset = choose_offset(length);
        mapping.offset = static_cast<std::uint64_t>(offset);
        if (is_offset_taken(mapping.offset, length)) return fail(EINVAL);
        auto is_used = [&](std::uint32_t slot) {
            return std::any_of(mappings_.begin(), mappings_.end(),
                               [&](const Mapping& m) { return m.is_remote && m.slot == slot; });
        };
        while (mapping.slot < peer_.iomap_count && is_used(mapping.slot)) ++mapping.slot;
        if (mapping.slot >= peer_.iomap_count) return fail(ENOBUFS);
    }
    int access = IBV_ACCESS_LOCAL_WRITE | (mapping.is_remote ? IBV_ACCESS_REMOTE_WRITE : 0);
    mapping.mr = ibv_reg_mr(id_->pd, buffer, length, access);
    if (mapping.mr == nullptr) return -1;
    if (mapping.is_remote) {
        auto is_quiet = [&] { return state_ == State::kEnded || sends_posted_ == 0; };
        int status = wait(lock, true, is_quiet) != 0 ? errno : 0;
        if (status == 0) status = state_ == State::kEnded ? EPIPE : announce(mapping, length);
        if (status != 0) {
            ibv_dereg_mr(mapping.mr);
            return fail(status);
        }
    }
    mappings_.push_back(mapping);
    return static_cast<off_t>(mapping.offset);
}

int StreamSocket::unmap_io(void* buffer, std::size_t length) {
    Lock lock(mutex_);
    auto found = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& m) {
        return m.buffer == buffer && m.length == length;
    });
    if (found == mappings_.end()) return fail(EINVAL);
    if (found->is_remote && state_ == State::kConnected && !has_peer_closed_) {
        auto is_quiet = [&] { return state_ == State::kEnded || sends_posted_ == 0; };
        if (wait(lock, true, is_quiet) != 0) return -1;
        if (state_ == State::kConnected) announce(*found, 0);
    }
    int status = ibv_dereg_mr(found->mr);
    mappings_.erase(found);
    return answer(status);
}

const stream::IomapEntry* StreamSocket::find_remote(std::uint64_t offset,
                                                    std::uint64_t length) const {
    auto* entries = reinterpret_cast<const stream::IomapEntry*>(iomap_table_.data());
    for (std::uint32_t i = 0; i < settings_.iomap_entries; ++i) {
        const stream::IomapEntry& e = entries[i];
        if (e.length > 0 && offset >= e.offset && offset - e.offset < e.length &&
            length <= e.length - (offset - e.offset)) {
            return &e;
        }
    }
    return nullptr;
}

ssize_t StreamSocket::write_io(const void* buffer, std::size_t count, off_t offset, int flags) {
    Lock lock(mutex_);
    if (state_ == State::kNew || state_ == State::kListening) return fail(ENOTCONN);
    auto* data = static_cast<const std::byte*>(buffer);
    auto at = static_cast<std::uint64_t>(offset);
    std::uint64_t size = send_ring_.size();
    std::size_t left = count;
    while (left > 0) {
        auto room = [&] {
            std::uint64_t own_free = size - (send_ring_head_ - send_ring_tail_);
            std::uint64_t to_end = size - send_ring_head_ % size;
            bool has_wr = sends_posted_ + stream::kSlotsReserved < sends_max_;
            return has_wr ? std::min({own_free, to_end, std::uint64_t{left}}) : 0;
        };
        auto can_go_on = [&] {
            return is_send_hopeless() || (state_ == State::kConnected && room() > 0);
        };
        bool is_some_written = left < count;
        if (wait(lock, may_block(flags), can_go_on) != 0) {
            return is_some_written ? static_cast<ssize_t>(count - left) : -1;
        }
        if (is_send_hopeless()) return send_error();
        const stream::IomapEntry* entry = find_remote(at, 1);
        if (entry == nullptr) return fail(EINVAL);
        std::uint64_t inside = at - entry->offset;
        auto now = static_cast<std::uint32_t>(std::min(room(), entry->length - inside));
        std::byte* place = send_ring_.data() + send_ring_head_ % size;
        memcpy(place, data, now);
        if (post_write(place, now, entry->address + inside, entry->key, nullptr) != 0) {
            end(ECONNRESET);
            return send_error();
        }
        send_ring_head_ += now;
        data += now;
        at += now;
        left -= now;
    }
    return static_cast<ssize_t>(count);
}

}  // namespace rdmalab::rdmacm
