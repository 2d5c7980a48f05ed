#include "card/uplink.h"

#include <algorithm>
#include <cassert>

#include "wire/headers.h"

namespace rdmalab::card {
namespace {

constexpr std::size_t kIcrcLength = wire::kIcrcLength;

void store_icrc(std::byte* at, std::uint32_t icrc) {
    for (std::size_t i = 0; i < kIcrcLength; ++i)
        at[i] = static_cast<std::byte>(icrc >> (8 * i) & 0xff);
}

}  // namespace

UplinkQueue::UplinkQueue(transport::MemoryPort& memory, bool may_burst)
    : memory_(memory), may_burst_(may_burst), bytes_(new std::byte[kBytesMax]) {
    // Views into these are given out.
    records_.reserve(kFramesMax);
    heads_.reserve(kFramesMax);
    bursts_.reserve(kFramesMax);
}

bool UplinkQueue::add(const wire::Frame& frame, std::vector<transport::CopyFault>& faults) {
    const std::size_t length = wire::wire_length(frame);
    if (records_.size() == kFramesMax || used_ + length > kBytesMax) return false;
    Record record;
    record.begin = used_;
    record.origin = frame.origin;
    place_headers(frame, record);
    const std::size_t headers = frame.header_length - record.head.length;
    record.length = length - record.head.length;
    record.payload_length = static_cast<std::uint32_t>(record.length - headers -
                                                       (wire::is_roce(frame) ? kIcrcLength : 0));
    const ByteSpan payload(bytes_.get() + record.begin + headers, record.payload_length);
    if (!place_payload(frame, payload, faults)) return false;
    used_ += record.length;
    records_.push_back(record);
    return true;
}

void UplinkQueue::place_headers(const wire::Frame& frame, Record& record) {
    std::size_t lower = 0;
    if (wire::is_roce(frame)) {
        record.head = wire::LowerHead(frame);
        lower = record.head.length;
        if (frame.icrc_state == wire::IcrcState::kPresent) {
            record.icrc = Record::Icrc::kAsReceived;
            record.received = frame.icrc;
        } else if (frame.header_kept) {
            record.icrc = Record::Icrc::kAsEmitted;
            record.emitted = wire::Icrc::as_emitted(frame);
        } else {
            record.icrc = Record::Icrc::kOfHead;
        }
    }
    std::memcpy(bytes_.get() + record.begin, frame.header.data() + lower,
                frame.header_length - lower);
}

// RoCE payload lies still until the flush. That of other frames belongs to somebody who wants it
// back when this call returns.
bool UplinkQueue::place_payload(const wire::Frame& frame, ByteSpan out,
                                std::vector<transport::CopyFault>& faults) {
    std::size_t filled = 0;
    for (unsigned i = 0; i < frame.segment_count; ++i) {
        const wire::PayloadSegment& segment = frame.segments[i];
        if (segment.length == 0) continue;
        std::byte* const to = out.data() + filled;
        filled += segment.length;
        if (segment.space == kCardSpace) {
            std::memcpy(to, reinterpret_cast<const std::byte*>(segment.address), segment.length);
        } else if (wire::is_roce(frame)) {
            memory_.copy(kCardSpace, reinterpret_cast<std::uintptr_t>(to), segment,
                         transport::owner_of_payload(frame));
        } else if (!memory_.read(segment.space, segment.address, {to, segment.length})) {
            faults.push_back({transport::owner_of_payload(frame), true});
            return false;
        }
    }
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(filled), out.end(), std::byte{0});
    return true;
}

void UplinkQueue::seal(std::span<const transport::CopyFault> faults) {
    if (!faults.empty()) blank_lost(faults);
    while (sealed_ < records_.size()) {
        const std::size_t count = run_from(sealed_);
        seal_run(sealed_, count);
        sealed_ += count;
    }
}

// A frame whose payload is not there leaves nothing of what its place held before, and is no frame
// for the receiver.
void UplinkQueue::blank_lost(std::span<const transport::CopyFault> faults) {
    for (std::size_t i = sealed_; i < records_.size(); ++i) {
        Record& record = records_[i];
        const auto is_its = [&](const transport::CopyFault& fault) {
            return fault.at_source && fault.owner.source_is_blamed &&
                   fault.owner.origin == record.origin;
        };
        if (record.icrc == Record::Icrc::kNone ||
            std::none_of(faults.begin(), faults.end(), is_its))
            continue;
        record.is_lost = true;
        std::byte* const end = bytes_.get() + record.begin + record.length - kIcrcLength;
        std::fill(end - record.payload_length, end, std::byte{0});
    }
}

bool UplinkQueue::joins(const Record& record, const Record& first) const {
    return record.icrc == Record::Icrc::kOfHead && !record.is_lost && record.head == first.head;
}

// How many records from `first` on are one burst: all of the same length but the last.
std::size_t UplinkQueue::run_from(std::size_t first) const {
    const Record& head = records_[first];
    if (!may_burst_ || !joins(head, head)) return 1;
    std::size_t count = 1, total = head.length;
    while (first + count < records_.size()) {
        const Record& next = records_[first + count];
        if (!joins(next, head) || next.length > head.length ||
            total + next.length > head.head.payload_max())
            break;
        ++count;
        total += next.length;
        if (next.length < head.length) break;
    }
    return count;
}

void UplinkQueue::seal_run(std::size_t first, std::size_t count) {
    const Record& start = records_[first];
    std::size_t total = 0;
    for (std::size_t i = 0; i < count; ++i) {
        write_icrc(records_[first + i], static_cast<std::uint16_t>(i));
        total += records_[first + i].length;
    }
    wire::LowerHead& head = heads_.emplace_back(start.head);
    if (head.length != 0) wire::seal(head, total, count > 1);
    bursts_.push_back({.head = ByteView(head.bytes).first(head.length),
                       .payload = ByteView(bytes_.get() + start.begin, total),
                       .segment_length = count > 1 ? static_cast<std::uint32_t>(start.length) : 0,
                       .l4_offset = head.l4_offset,
                       .is_ipv6 = head.is_ipv6()});
}

void UplinkQueue::write_icrc(const Record& record, std::uint16_t index) {
    if (record.icrc == Record::Icrc::kNone) return;
    std::byte* const end = bytes_.get() + record.begin + record.length - kIcrcLength;
    std::uint32_t icrc = record.received;
    if (record.icrc == Record::Icrc::kOfHead) {
        icrc = wire::icrc_in_burst(record.head, index,
                                   {bytes_.get() + record.begin, record.length - kIcrcLength});
    } else if (record.icrc == Record::Icrc::kAsEmitted) {
        wire::Icrc sum = *record.emitted;
        sum.add({end - record.payload_length, record.payload_length});
        icrc = sum.value();
    }
    store_icrc(end, record.is_lost ? ~icrc : icrc);
}

void UplinkQueue::pop(std::size_t count) {
    assert(popped_ + count <= bursts_.size());
    popped_ += count;
    if (popped_ < bursts_.size() || sealed_ < records_.size()) return;
    records_.clear();
    heads_.clear();
    bursts_.clear();
    used_ = sealed_ = popped_ = 0;
}

}  // namespace rdmalab::card
