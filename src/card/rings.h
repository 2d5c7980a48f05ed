// Views over the rings that a client shares with the card. All of that memory is hostile: the
// client may change any byte at any time. So each view
//   * keeps its own index in the card, never in shared memory;
//   * reads the client's index once per look and refuses a distance above the capacity: the ring is
//     then *broken* and yields nothing any more;
//   * copies an entry once and checks and uses only the copy;
//   * computes no address from unchecked values.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "card/ring_abi.h"
#include "transport/types.h"

namespace rdmalab::card {

// Sizes of the rings, by the rules of ring_abi.h.
std::uint32_t send_stride(std::uint32_t sge_max, std::uint32_t inline_max);
std::uint32_t recv_stride(std::uint32_t sge_max);
std::uint64_t send_region_length(std::uint32_t capacity, std::uint32_t stride);
std::uint64_t recv_region_length(std::uint32_t capacity, std::uint32_t stride);
std::uint64_t cq_region_length(std::uint32_t capacity);

class SendRing {
public:
    struct Shape {
        std::uint32_t capacity = 0;  // power of two; 0: no ring
        std::uint32_t stride = 0;
        std::uint32_t sge_max = 0;
        transport::QpType type = transport::QpType::kRc;
    };
    SendRing() = default;
    SendRing(std::byte* base, const Shape& shape) : base_(base), shape_(shape) {}

    // The next posted entry; false when there is none. An entry that makes no sense comes out as
    // `malformed`.
    bool fetch(transport::SendWqe& out);
    // Drops everything that is posted (the QP went to RESET).
    void discard();
    bool is_broken() const { return broken_; }

private:
    bool read_producer();
    void decode(const std::byte* entry, transport::SendWqe& out) const;
    bool take_payload(const abi::SendEntry& head, const std::byte* entry,
                      transport::SendWqe& out) const;
    bool take_head(const abi::SendEntry& head, const std::byte* entry,
                   transport::SendWqe& out) const;

    std::byte* base_ = nullptr;
    Shape shape_;
    std::uint32_t consumed_ = 0;
    std::uint32_t producer_ = 0;  // as last read
    bool broken_ = false;
};

// An RQ or an SRQ.
class RecvRing {
public:
    struct Shape {
        std::uint32_t capacity = 0;  // power of two; 0: no ring
        std::uint32_t stride = 0;
        std::uint32_t sge_max = 0;
    };
    RecvRing() = default;
    RecvRing(std::byte* base, const Shape& shape);

    // The next posted entry; false when there is none. An entry that makes no sense breaks the
    // ring: there is no work request that it could be.
    bool fetch(transport::RecvWqe& out);
    void discard();
    // Entries that are posted and not fetched.
    std::uint32_t depth();
    bool is_broken() const { return broken_; }

private:
    bool read_producer();

    std::byte* base_ = nullptr;
    std::byte* table_ = nullptr;
    Shape shape_;
    std::uint32_t consumed_ = 0;
    std::uint32_t producer_ = 0;  // as last read
    bool broken_ = false;
};

class CompletionRing {
public:
    CompletionRing() = default;
    CompletionRing(std::byte* base, std::uint32_t capacity) : base_(base), capacity_(capacity) {}

    std::uint32_t capacity() const { return capacity_; }
    std::uint32_t producer() const { return producer_; }

    // Writes an entry; false when the ring is full (or the client's index is nonsense): the CQ has
    // overflowed and takes nothing any more. `queue_slot` as in abi::Cqe.
    bool push(const transport::Completion& completion, std::uint32_t queue_slot);

    // Makes the entries since the last call known: stores the producer index and looks for those
    // who wait.
    struct Notice {
        bool wake = false;   // pollers sleep on the producer word
        bool event = false;  // the CQ was armed for one of the entries, and is no longer
    };
    // `may_tell` false: nobody is told, and an armed CQ stays armed (moderation).
    Notice publish(bool may_tell = true);
    std::atomic<std::uint32_t>& producer_word() const { return header()->producer; }

    // Moves the unpolled entries to `to`, an empty ring over zeroed memory, at their indexes. False
    // when they do not fit or the client's index is nonsense; nothing has changed then.
    bool move_to(CompletionRing& to);

private:
    abi::CqHeader* header() const { return reinterpret_cast<abi::CqHeader*>(base_); }
    abi::Cqe* entry(std::uint32_t index) const;
    bool take_arm(std::uint32_t wanted);

    std::byte* base_ = nullptr;
    std::uint32_t capacity_ = 0;
    std::uint32_t producer_ = 0;
    std::uint32_t consumer_ = 0;  // as last read
    bool unpublished_solicited_ = false;
    bool overflowed_ = false;
};

}  // namespace rdmalab::card
