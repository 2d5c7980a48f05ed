#include "card/cable.h"

#include <algorithm>

#include "wire/headers.h"
#include "wire/icrc.h"

namespace rdmalab::card {

bool read_payload(const wire::Frame& frame, transport::MemoryPort& memory,
                  std::vector<std::byte>& out, std::vector<transport::CopyFault>& faults) {
    out.resize(frame.payload_length);
    std::size_t filled = 0;
    for (unsigned i = 0; i < frame.segment_count; ++i) {
        const wire::PayloadSegment& segment = frame.segments[i];
        if (segment.length == 0) continue;
        if (!memory.read(segment.space, segment.address,
                         ByteSpan(out).subspan(filled, segment.length))) {
            faults.push_back({transport::owner_of_payload(frame), true});
            return false;
        }
        filled += segment.length;
    }
    return true;
}

FrameBuffers::Buffer FrameBuffers::take() {
    if (free_.empty()) return std::make_unique<std::vector<std::byte>>();
    Buffer buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
}

void FrameBuffers::reclaim() {
    std::move(retired_.begin(), retired_.end(), std::back_inserter(free_));
    retired_.clear();
    constexpr std::size_t kFreeMax = 4 * CableDirection::kBacklogFramesMax;
    if (free_.size() > kFreeMax) free_.resize(kFreeMax);
}

void CableDirection::handle_frame(const wire::Frame& frame, Instant now) {
    const std::size_t length = wire::wire_length(frame);
    ++counters_.frames;
    counters_.bytes += length;
    Instant departure;
    if (!enter_backlog(length, now, departure)) {
        ++counters_.overflowed;
        return;
    }
    if (impairments_.loss > 0 && prng_.chance(impairments_.loss)) {
        ++counters_.lost;
        return;
    }
    FrameBuffers::Buffer bytes;
    if (impairments_.ce > 0 && wire::is_roce(frame) && wire::ecn(frame) != wire::kEcnNotEct &&
        wire::ecn(frame) != wire::kEcnCe && prng_.chance(impairments_.ce)) {
        wire::Frame marked = frame;
        wire::set_ecn(marked, wire::kEcnCe);
        bytes = materialise(marked, length);
        if (bytes) ++counters_.ce_marked;
    } else {
        bytes = materialise(frame, length);
    }
    if (!bytes) return;
    if (impairments_.corrupt > 0 && prng_.chance(impairments_.corrupt)) corrupt(*bytes);
    if (impairments_.duplicate > 0 && prng_.chance(impairments_.duplicate)) {
        FrameBuffers::Buffer copy = buffers_.take();
        *copy = *bytes;
        ++counters_.duplicated;
        launch(std::move(copy), arrival_after(departure));
    }
    if (impairments_.reorder > 0 && prng_.chance(impairments_.reorder)) {
        ++counters_.reordered;
        const auto passes = static_cast<std::uint32_t>(1 + prng_.below(3));
        held_.push_back({passes, departure + impairments_.delay + kReorderHold, std::move(bytes)});
        return;
    }
    const Instant arrival = arrival_after(departure);
    launch(std::move(bytes), arrival);
    let_pass(arrival);
}

// The sender's buffer: when does this frame leave it?
bool CableDirection::enter_backlog(std::size_t bytes, Instant now, Instant& departure) {
    while (!backlog_.empty() && backlog_.front().time <= now) {
        backlog_bytes_ -= backlog_.front().bytes;
        backlog_.pop_front();
    }
    if (backlog_.size() >= kBacklogFramesMax || backlog_bytes_ + bytes > kBacklogBytesMax ||
        travelling_bytes_ + bytes > kTravellingBytesMax) {
        return false;
    }
    departure = std::max(now, sender_free_) + impairments_.rate.time_for(bytes);
    sender_free_ = departure;
    if (departure > now) {
        backlog_.push_back({departure, bytes});
        backlog_bytes_ += bytes;
    }
    return true;
}

// Null when the payload cannot be read (its owner is gone) or is not a whole frame: nothing
// travels.
FrameBuffers::Buffer CableDirection::materialise(const wire::Frame& frame, std::size_t length) {
    if (!read_payload(frame, memory_, payload_, faults_)) return nullptr;
    FrameBuffers::Buffer bytes = buffers_.take();
    bytes->resize(length);
    if (wire::write_frame(frame, payload_, *bytes) != length) {
        buffers_.release(std::move(bytes));
        return nullptr;
    }
    return bytes;
}

void CableDirection::corrupt(std::vector<std::byte>& bytes) {
    const std::uint64_t bit = prng_.below(bytes.size() * 8);
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    ++counters_.corrupted;
}

Instant CableDirection::arrival_after(Instant departure) {
    Instant arrival = departure + impairments_.delay;
    if (impairments_.jitter.ns > 0) {
        const auto span = static_cast<std::uint64_t>(impairments_.jitter.ns);
        arrival = arrival + nanoseconds(static_cast<std::int64_t>(prng_.below(span)));
    }
    return std::max(arrival, last_arrival_);
}

void CableDirection::launch(FrameBuffers::Buffer bytes, Instant arrival) {
    last_arrival_ = std::max(last_arrival_, arrival);
    travelling_bytes_ += bytes->size();
    travelling_.push_back({last_arrival_, std::move(bytes)});
}

// A frame went by: those that wait for it come closer to their turn, right behind it.
void CableDirection::let_pass(Instant arrival) {
    for (std::size_t i = 0; i < held_.size();) {
        if (--held_[i].passes_left > 0) {
            ++i;
            continue;
        }
        launch(std::move(held_[i].bytes), arrival);
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

void CableDirection::release_overdue(Instant now) {
    for (std::size_t i = 0; i < held_.size();) {
        if (held_[i].deadline > now) {
            ++i;
            continue;
        }
        launch(std::move(held_[i].bytes), held_[i].deadline);
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

bool CableDirection::poll_frame(Instant now, wire::Frame& out, std::uint64_t& unreadable) {
    if (!held_.empty()) release_overdue(now);
    while (!travelling_.empty() && travelling_.front().arrival <= now) {
        FrameBuffers::Buffer bytes = std::move(travelling_.front().bytes);
        travelling_.pop_front();
        travelling_bytes_ -= bytes->size();
        const wire::PayloadSegment where{kCardSpace, static_cast<std::uint32_t>(bytes->size()),
                                         reinterpret_cast<std::uintptr_t>(bytes->data())};
        const wire::ParseError error = wire::parse_frame(*bytes, where, out);
        if (error == wire::ParseError::kNone) {
            // A receiver that does not check takes the frame for right as it stands.
            if (!impairments_.verify_icrc && out.icrc_state == wire::IcrcState::kPresent) {
                out.icrc_state = wire::IcrcState::kElided;
                out.header_kept = false;
            }
            buffers_.retire(std::move(bytes));
            return true;
        }
        ++unreadable;
        buffers_.release(std::move(bytes));
    }
    return false;
}

Instant CableDirection::next_deadline() const {
    Instant deadline = travelling_.empty() ? Instant::never() : travelling_.front().arrival;
    for (const Held& held : held_) deadline = std::min(deadline, held.deadline);
    return deadline;
}

}  // namespace rdmalab::card
