#include "card/rings.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "base/limits.h"

namespace rdmalab::card {

using transport::QpType;
using transport::WrOpcode;

namespace {

// Copies out of shared memory exactly once: the fence keeps the compiler from reading the source
// again in place of the copy.
void copy_once(void* to, const std::byte* from, std::size_t length) {
    std::memcpy(to, from, length);
    std::atomic_signal_fence(std::memory_order_seq_cst);
}

static_assert(sizeof(transport::Sge) == sizeof(abi::Sge));
static_assert(offsetof(transport::Sge, length) == offsetof(abi::Sge, length));
static_assert(offsetof(transport::Sge, lkey) == offsetof(abi::Sge, lkey));

// Both enums list the operations in one order, so that a checked value is converted by a cast.
static_assert(static_cast<int>(abi::SendOpcode::kAtomicWrite) ==
              static_cast<int>(WrOpcode::kAtomicWrite));
static_assert(static_cast<int>(abi::SendOpcode::kRead) == static_cast<int>(WrOpcode::kRead));
static_assert(static_cast<int>(abi::CqeOpcode::kAtomicWrite) ==
              static_cast<int>(transport::WcOpcode::kAtomicWrite));
static_assert(static_cast<int>(abi::CqeOpcode::kRead) ==
              static_cast<int>(transport::WcOpcode::kRead));

constexpr std::uint32_t bit(WrOpcode opcode) { return 1u << static_cast<unsigned>(opcode); }

constexpr std::uint32_t kSends = bit(WrOpcode::kSend) | bit(WrOpcode::kSendImm);
constexpr std::uint32_t kWrites = bit(WrOpcode::kWrite) | bit(WrOpcode::kWriteImm);
constexpr std::uint32_t kWithPayload =
    kSends | bit(WrOpcode::kSendInvalidate) | kWrites | bit(WrOpcode::kAtomicWrite);

// Operations of each transport service: the table of ibv_post_send(3).
std::uint32_t allowed_opcodes(QpType type) {
    switch (type) {
        case QpType::kRc:
        case QpType::kXrcSend:
            return (bit(WrOpcode::kAtomicWrite) << 1) - 1;
        case QpType::kUc:
            return kSends | kWrites | bit(WrOpcode::kLocalInvalidate) | bit(WrOpcode::kBindMw);
        case QpType::kUd:
            return kSends;
        case QpType::kRaw:
            return bit(WrOpcode::kSend);
        case QpType::kXrcRecv:
            return 0;
    }
    return 0;
}

std::uint32_t sum_of_lengths(const transport::SendWqe& wqe) {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < wqe.sge_count; ++i) sum += wqe.sges[i].length;
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(sum, std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace

std::uint32_t send_stride(std::uint32_t sge_max, std::uint32_t inline_max) {
    return static_cast<std::uint32_t>(round_up(sizeof(abi::SendEntry) + sizeof(abi::Sge) * sge_max +
                                                   std::max(inline_max, limits::kSmallPayloadMax),
                                               64));
}
std::uint32_t recv_stride(std::uint32_t sge_max) {
    return static_cast<std::uint32_t>(
        round_up(sizeof(abi::RecvEntry) + sizeof(abi::Sge) * sge_max, 64) +
        limits::kSmallPayloadMax);
}
std::uint64_t send_region_length(std::uint32_t capacity, std::uint32_t stride) {
    return abi::kRingHeaderSize + std::uint64_t{capacity} * stride;
}
std::uint64_t recv_region_length(std::uint32_t capacity, std::uint32_t stride) {
    return abi::kRingHeaderSize + round_up(capacity * sizeof(std::uint32_t), 64) +
           std::uint64_t{capacity} * stride;
}
std::uint64_t cq_region_length(std::uint32_t capacity) {
    return sizeof(abi::CqHeader) + std::uint64_t{capacity} * sizeof(abi::Cqe);
}

// --- SendRing

bool SendRing::read_producer() {
    if (broken_ || shape_.capacity == 0) return false;
    const auto* header = reinterpret_cast<const abi::QueueHeader*>(base_);
    producer_ = header->producer.load(std::memory_order_acquire);
    if (producer_ - consumed_ > shape_.capacity) {
        broken_ = true;
        producer_ = consumed_;
    }
    return consumed_ != producer_;
}

bool SendRing::fetch(transport::SendWqe& out) {
    if (consumed_ == producer_ && !read_producer()) return false;
    const std::size_t slot = consumed_ & (shape_.capacity - 1);
    out.ring_index = consumed_++;
    decode(base_ + abi::kRingHeaderSize + slot * shape_.stride, out);
    return true;
}

void SendRing::discard() {
    if (shape_.capacity == 0) return;
    producer_ =
        reinterpret_cast<const abi::QueueHeader*>(base_)->producer.load(std::memory_order_acquire);
    consumed_ = producer_;
    broken_ = false;
}

void SendRing::decode(const std::byte* entry, transport::SendWqe& out) const {
    abi::SendEntry head;
    copy_once(&head, entry, sizeof head);
    out.wr_id = head.wr_id;
    out.signaled = (head.flags & abi::kSendSignaled) != 0;
    out.solicited = (head.flags & abi::kSendSolicited) != 0;
    out.fence = (head.flags & abi::kSendFence) != 0;
    out.immediate = head.immediate;
    out.remote_address = head.remote_address;
    out.rkey = {head.rkey};
    out.compare = head.compare_add;
    out.swap = head.swap;
    out.ah = {head.ah};
    out.remote_qpn = {head.remote_qpn & 0xff'ffff};
    out.remote_qkey = head.remote_qkey;
    out.remote_srq = {head.ah & 0xff'ffff};
    out.is_inline = false;
    out.fills_checksums = shape_.type == QpType::kRaw && (head.flags & abi::kSendChecksums) != 0;
    out.inline_data = {};
    out.head = {};
    out.sge_count = 0;
    out.length = 0;
    out.malformed = head.opcode > static_cast<std::uint8_t>(WrOpcode::kAtomicWrite) ||
                    (allowed_opcodes(shape_.type) >> head.opcode & 1) == 0 ||
                    head.sge_count > shape_.sge_max;
    out.opcode = out.malformed ? WrOpcode::kSend : static_cast<WrOpcode>(head.opcode);
    if (out.opcode == WrOpcode::kBindMw && !out.malformed) {
        out.malformed = head.sge_count != 0;
        out.bind = {.region = {head.ah}, .access = head.remote_qkey, .length = head.compare_add};
    }
    if (!out.malformed) out.malformed = !take_payload(head, entry, out);
}

// The SGEs, or the bytes that ride in the entry. Inline data has no SGEs that count; those of small
// payload are checked by the engine as if it had been read from them.
bool SendRing::take_payload(const abi::SendEntry& head, const std::byte* entry,
                            transport::SendWqe& out) const {
    const std::size_t sge_bytes = head.sge_count * sizeof(abi::Sge);
    copy_once(out.sges.data(), entry + sizeof head, sge_bytes);
    out.sge_count = head.sge_count;
    out.length = sum_of_lengths(out);
    if ((head.flags & abi::kSendHead) != 0) return take_head(head, entry, out);
    if ((head.flags & (abi::kSendInline | abi::kSendSmall)) == 0) return true;

    const std::size_t room = shape_.stride - sizeof head - sge_bytes;
    if (head.data_length > room || (kWithPayload & bit(out.opcode)) == 0) return false;
    const bool is_small = (head.flags & abi::kSendInline) == 0;
    if (is_small && head.data_length != out.length) return false;
    if (!is_small) out.sge_count = 0;
    out.is_inline = !is_small;
    out.length = head.data_length;
    out.inline_data = {entry + sizeof head + sge_bytes, head.data_length};
    return true;
}

bool SendRing::take_head(const abi::SendEntry& head, const std::byte* entry,
                         transport::SendWqe& out) const {
    const std::size_t sge_bytes = head.sge_count * sizeof(abi::Sge);
    const std::size_t room = shape_.stride - sizeof head - sge_bytes;
    const bool fits = head.data_length == abi::kSendHeadLength && head.data_length <= room;
    if (!fits || shape_.type != QpType::kRaw || out.length <= head.data_length) return false;
    out.head = {entry + sizeof head + sge_bytes, head.data_length};
    return true;
}

// --- RecvRing

RecvRing::RecvRing(std::byte* base, const Shape& shape)
    : base_(base),
      table_(base + abi::kRingHeaderSize + round_up(shape.capacity * sizeof(std::uint32_t), 64)),
      shape_(shape) {}

bool RecvRing::read_producer() {
    if (broken_ || shape_.capacity == 0) return false;
    const auto* header = reinterpret_cast<const abi::QueueHeader*>(base_);
    producer_ = header->producer.load(std::memory_order_acquire);
    if (producer_ - consumed_ > shape_.capacity) {
        broken_ = true;
        producer_ = consumed_;
    }
    return consumed_ != producer_;
}

bool RecvRing::fetch(transport::RecvWqe& out) {
    if (consumed_ == producer_ && !read_producer()) return false;
    const std::size_t slot = consumed_ & (shape_.capacity - 1);
    std::uint32_t index = 0;
    copy_once(&index, base_ + abi::kRingHeaderSize + slot * sizeof index, sizeof index);
    if (index < shape_.capacity) {
        std::byte* entry = table_ + std::size_t{index} * shape_.stride;
        abi::RecvEntry head;
        copy_once(&head, entry, sizeof head);
        if (head.sge_count <= shape_.sge_max) {
            out.wr_id = head.wr_id;
            out.ring_index = index;
            out.sge_count = head.sge_count;
            copy_once(out.sges.data(), entry + sizeof head, head.sge_count * sizeof(abi::Sge));
            out.small_area = {entry + shape_.stride - limits::kSmallPayloadMax,
                              limits::kSmallPayloadMax};
            ++consumed_;
            return true;
        }
    }
    broken_ = true;
    producer_ = consumed_;
    return false;
}

void RecvRing::discard() {
    if (shape_.capacity == 0) return;
    producer_ =
        reinterpret_cast<const abi::QueueHeader*>(base_)->producer.load(std::memory_order_acquire);
    consumed_ = producer_;
    broken_ = false;
}

std::uint32_t RecvRing::depth() {
    read_producer();
    return producer_ - consumed_;
}

// --- CompletionRing

abi::Cqe* CompletionRing::entry(std::uint32_t index) const {
    auto* entries = reinterpret_cast<abi::Cqe*>(base_ + sizeof(abi::CqHeader));
    return entries + (index & (capacity_ - 1));
}

namespace {
std::uint16_t cqe_flags(const transport::Completion& c) {
    unsigned flags = 0;
    if (c.is_recv) flags |= abi::kCqeRecv;
    if (c.from_srq) flags |= abi::kCqeSrq;
    if (c.has_immediate) flags |= abi::kCqeImmediate;
    if (c.invalidated) flags |= abi::kCqeInvalidated;
    if (c.has_grh) flags |= abi::kCqeGrh;
    if (c.in_small_area) flags |= abi::kCqeSmall;
    if (c.solicited) flags |= abi::kCqeSolicited;
    if (c.checksums_right) flags |= abi::kCqeChecksumsRight;
    return static_cast<std::uint16_t>(flags);
}
}  // namespace

bool CompletionRing::push(const transport::Completion& completion, std::uint32_t queue_slot) {
    if (producer_ - consumer_ >= capacity_) {
        consumer_ = header()->consumer.load(std::memory_order_acquire);
        overflowed_ = overflowed_ || producer_ - consumer_ >= capacity_;
    }
    if (overflowed_) return false;
    abi::Cqe& cqe = *entry(producer_);
    cqe.wr_id = completion.wr_id;
    cqe.timestamp_ns = static_cast<std::uint64_t>(completion.time.ns);
    cqe.qpn = completion.qpn.value;
    cqe.queue_slot = queue_slot;
    cqe.ring_index = completion.ring_index;
    cqe.byte_length = completion.byte_length;
    cqe.immediate = completion.immediate;
    cqe.source_qpn = completion.source_qpn.value;
    cqe.vendor_error = completion.vendor_error;
    cqe.flow_tag = completion.flow_tag;
    cqe.flags = cqe_flags(completion);
    cqe.status = static_cast<std::uint8_t>(completion.status);
    cqe.opcode = static_cast<std::uint8_t>(completion.opcode);
    ++producer_;
    cqe.sequence.store(producer_, std::memory_order_release);
    // A completion with an error counts as solicited (IBTA vol. 1, 11.4.2.2).
    unpublished_solicited_ |=
        completion.solicited || completion.status != transport::WcStatus::kSuccess;
    return true;
}

// The client arms (or announces that it will sleep), then looks at the ring once more; the card
// stores the producer index, then looks at `arm` and `waiters`. With seq_cst on both sides at least
// one of them sees the other.
CompletionRing::Notice CompletionRing::publish(bool may_tell) {
    header()->producer.store(producer_, std::memory_order_seq_cst);
    Notice notice;
    notice.wake = header()->waiters.load(std::memory_order_seq_cst) != 0;
    if (!may_tell) return notice;
    const std::uint32_t arm = header()->arm.load(std::memory_order_seq_cst);
    if (arm == abi::kArmAny || (arm == abi::kArmSolicited && unpublished_solicited_)) {
        header()->arm.exchange(abi::kArmNone, std::memory_order_seq_cst);
        notice.event = true;
    }
    unpublished_solicited_ = false;
    return notice;
}

bool CompletionRing::move_to(CompletionRing& to) {
    const std::uint32_t consumer = header()->consumer.load(std::memory_order_acquire);
    const std::uint32_t unpolled = producer_ - consumer;
    if (unpolled > capacity_ || unpolled > to.capacity_) return false;
    // Where indexes wrap within the first lap a zeroed slot would look valid at index 2^32 - 1.
    if (producer_ + to.capacity_ < producer_) {
        to.entry(0xffff'ffff)->sequence.store(1, std::memory_order_relaxed);
    }
    for (std::uint32_t i = consumer; i != producer_; ++i) {
        std::memcpy(static_cast<void*>(to.entry(i)), static_cast<const void*>(entry(i)),
                    sizeof(abi::Cqe));
    }
    to.producer_ = producer_;
    to.consumer_ = consumer;
    to.unpublished_solicited_ = unpublished_solicited_;
    to.overflowed_ = overflowed_;
    to.header()->consumer.store(consumer, std::memory_order_relaxed);
    to.header()->arm.store(header()->arm.load(std::memory_order_seq_cst),
                           std::memory_order_relaxed);
    to.header()->producer.store(producer_, std::memory_order_release);
    return true;
}

}  // namespace rdmalab::card
