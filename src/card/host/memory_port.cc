#include "card/host/memory_port.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace rdmalab::card::host {
namespace {

constexpr std::size_t kArenaAlignment = 4096;
constexpr std::size_t kQueueReserve = 4096;
constexpr std::size_t kSourceSlot = 0, kTargetSlot = 1;

void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

bool overlap(std::uint64_t a, std::uint64_t a_length, std::uint64_t b, std::uint64_t b_length) {
    return a < b + b_length && b < a + a_length;
}

// Appends a piece, or lengthens the last one when it continues it.
void append(std::vector<iovec>& pieces, void* base, std::size_t length) {
    if (!pieces.empty()) {
        iovec& last = pieces.back();
        if (static_cast<std::byte*>(last.iov_base) + last.iov_len == base) {
            last.iov_len += length;
            return;
        }
    }
    pieces.push_back({base, length});
}

}  // namespace

ProcessMemory::ProcessMemory()
    : arena_(static_cast<std::byte*>(std::aligned_alloc(kArenaAlignment, kBatchBytes))) {
    if (!arena_) throw std::bad_alloc();
    // Touched now, so that the first message does not pay for the page faults.
    std::memset(arena_.get(), 0, kBatchBytes);
    processes_.emplace(kCardSpace, kHere);
    cache_.fill({kCardSpace, kHere});
    queue_.reserve(kQueueReserve);
    packets_.reserve(kQueueReserve);
    batch_.reserve(kBatchCopies);
    group_.reserve(kBatchCopies);
    local_.reserve(kBatchCopies);
    remote_.reserve(kBatchCopies);
}

void ProcessMemory::add_process(SpaceId space, pid_t pid) { processes_[space] = pid; }

void ProcessMemory::add_direct(SpaceId space) { processes_[space] = kHere; }

void ProcessMemory::remove(SpaceId space) {
    processes_.erase(space);
    cache_.fill({kCardSpace, kHere});
}

void ProcessMemory::copy(SpaceId target, std::uint64_t target_address,
                         const wire::PayloadSegment& source, transport::CopyOwner owner) {
    if (source.length == 0 || join_last(target, target_address, source, owner)) return;
    std::uint64_t from = source.address;
    for (std::uint32_t left = source.length; left > 0;) {
        const std::uint32_t length = std::min(left, kBatchBytes);
        const auto packet = static_cast<std::uint32_t>(packets_.size());
        packets_.push_back({length, owner});
        queue_.push_back({{from, target_address, length, packet, 1}, source.space, target, false});
        from += length;
        target_address += length;
        left -= length;
    }
}

// Does the copy continue the last one? Then it becomes part of it. Within one process it could read
// what the last one wrote, so there it stays apart.
bool ProcessMemory::join_last(SpaceId target, std::uint64_t target_address,
                              const wire::PayloadSegment& source,
                              const transport::CopyOwner& owner) {
    if (queue_.empty()) return false;
    Copy& last = queue_.back();
    if (last.target != target || last.source != source.space) return false;
    if (last.target_address == target_address) {
        last.superseded = source.space == kCardSpace && last.length == source.length;
        return false;
    }
    const transport::CopyOwner& last_owner = packets_.back().owner;
    const bool continues = last.target_address + last.length == target_address &&
                           last.source_address + last.length == source.address &&
                           last_owner.qpn == owner.qpn && last_owner.engine == owner.engine &&
                           last_owner.is_responder == owner.is_responder &&
                           source.length <= kBatchBytes - last.length;
    if (!continues || resolve(source.space, kSourceSlot) == resolve(target, kTargetSlot)) {
        return false;
    }
    last.length += source.length;
    ++last.packet_count;
    packets_.push_back({source.length, owner});
    return true;
}

bool ProcessMemory::read(SpaceId space, std::uint64_t address, ByteSpan out) {
    run_queue();
    const pid_t process = resolve(space, kSourceSlot);
    if (process == kNowhere) return false;
    if (process == kHere) {
        std::memcpy(out.data(), pointer(address), out.size());
        return true;
    }
    const iovec local{out.data(), out.size()}, remote{pointer(address), out.size()};
    ++counters_.read_calls;
    return ::process_vm_readv(process, &local, 1, &remote, 1, 0) ==
           static_cast<ssize_t>(out.size());
}

bool ProcessMemory::write(SpaceId space, std::uint64_t address, ByteView bytes) {
    run_queue();
    const pid_t process = resolve(space, kTargetSlot);
    if (process == kNowhere) return false;
    if (process == kHere) {
        std::memcpy(pointer(address), bytes.data(), bytes.size());
        return true;
    }
    const iovec local{const_cast<std::byte*>(bytes.data()), bytes.size()};
    const iovec remote{pointer(address), bytes.size()};
    ++counters_.write_calls;
    return ::process_vm_writev(process, &local, 1, &remote, 1, 0) ==
           static_cast<ssize_t>(bytes.size());
}

void ProcessMemory::flush(std::vector<transport::CopyFault>& faults) {
    run_queue();
    faults.insert(faults.end(), faults_.begin(), faults_.end());
    faults_.clear();
}

pid_t ProcessMemory::resolve(SpaceId space, std::size_t cache_slot) {
    CachedSpace& cached = cache_[cache_slot];
    if (cached.space == space) return cached.process;
    const auto found = processes_.find(space);
    cached = {space, found == processes_.end() ? kNowhere : found->second};
    return cached.process;
}

void ProcessMemory::run_queue() {
    if (queue_.empty()) return;
    ++counters_.flushes;
    counters_.copies += packets_.size();
    for (std::size_t next = 0; next < queue_.size();) {
        next = collect(next);
        run_batch();
    }
    queue_.clear();
    packets_.clear();
}

void ProcessMemory::run_batch() {
    ++counters_.batches;
    is_split_ = false;
    while (gather() == Step::kRepeat) {
    }
    while (scatter() == Step::kRepeat) {
    }
    report_faults();
}

// Fills the batch from the queue; returns the first copy that is left for the next batch.
std::size_t ProcessMemory::collect(std::size_t first) {
    batch_.clear();
    target_hulls_.clear();
    here_hulls_.clear();
    std::size_t bytes = 0, next = first;
    for (; next < queue_.size() && batch_.size() < kBatchCopies; ++next) {
        const Item item = make_item(queue_[next]);
        if (bytes + item.length > kBatchBytes || depends_on_batch(item)) break;
        bytes += item.length;
        if (item.outcome == Outcome::kOk) note_hulls(item);
        batch_.push_back(item);
    }
    // The copy that supersedes the last one is not in this batch.
    Item& last = batch_.back();
    last.superseded = false;
    if (last.outcome == Outcome::kOk) last.done = false;
    counters_.bytes += bytes;
    return next;
}

ProcessMemory::Item ProcessMemory::make_item(const Copy& copy) {
    Item item{copy,
              nullptr,
              resolve(copy.source, kSourceSlot),
              resolve(copy.target, kTargetSlot),
              Outcome::kOk,
              copy.superseded,
              copy.superseded};
    if (item.source == kNowhere || item.target == kNowhere) {
        item.outcome = item.source == kNowhere ? Outcome::kSourceFault : Outcome::kTargetFault;
        item.is_gone = item.done = true;
    } else if (item.source == kHere) {
        item.bytes = static_cast<const std::byte*>(pointer(copy.source_address));
    }
    return item;
}

// Must `item` wait until the batch is carried out? The hulls say "no" cheaply for nearly all.
bool ProcessMemory::depends_on_batch(const Item& item) const {
    const auto hit = [&](const std::vector<Hull>& hulls, pid_t process, std::uint64_t begin) {
        return std::any_of(hulls.begin(), hulls.end(), [&](const Hull& hull) {
            return hull.process == process &&
                   overlap(hull.begin, hull.end - hull.begin, begin, item.length);
        });
    };
    const bool may_read_written = hit(target_hulls_, item.source, item.source_address);
    const bool may_overwrite_read =
        item.target == kHere && hit(here_hulls_, kHere, item.target_address);
    if (!may_read_written && !may_overwrite_read) return false;
    return std::any_of(batch_.begin(), batch_.end(), [&](const Item& before) {
        const bool reads_written =
            item.source == before.target &&
            overlap(item.source_address, item.length, before.target_address, before.length);
        const bool overwrites_read =
            item.target == kHere && before.source == kHere &&
            overlap(item.target_address, item.length, before.source_address, before.length);
        return reads_written || overwrites_read;
    });
}

void ProcessMemory::note_hulls(const Item& item) {
    const auto note = [&](std::vector<Hull>& hulls, pid_t process, std::uint64_t begin) {
        for (Hull& hull : hulls) {
            if (hull.process != process) continue;
            hull.begin = std::min(hull.begin, begin);
            hull.end = std::max(hull.end, begin + item.length);
            return;
        }
        hulls.push_back({process, begin, begin + item.length});
    };
    note(target_hulls_, item.target, item.target_address);
    if (item.source == kHere) note(here_hulls_, kHere, item.source_address);
}

ProcessMemory::Step ProcessMemory::gather() {
    arena_used_ = 0;
    for (Item& item : batch_) {
        if (item.source != kHere) item.bytes = nullptr;
    }
    for (std::size_t i = 0; i < batch_.size(); ++i) {
        if (batch_[i].done || batch_[i].bytes) continue;
        select_sources(i);
        if (read_group() == Step::kRepeat) return Step::kRepeat;
    }
    return Step::kDone;
}

// All items from `first` on whose source is its process; they get their place in the arena.
void ProcessMemory::select_sources(std::size_t first) {
    group_.clear();
    const pid_t process = batch_[first].source;
    for (std::size_t i = first; i < batch_.size(); ++i) {
        Item& item = batch_[i];
        if (item.done || item.bytes || item.source != process) continue;
        item.bytes = arena_.get() + arena_used_;
        arena_used_ += item.length;
        group_.push_back(&item);
    }
}

ProcessMemory::Step ProcessMemory::read_group() {
    for (std::size_t first = 0; first < group_.size();) {
        local_.clear();
        remote_.clear();
        for (std::size_t i = first; i < group_.size(); ++i) {
            append(local_, const_cast<std::byte*>(group_[i]->bytes), group_[i]->length);
            append(remote_, pointer(group_[i]->source_address), group_[i]->length);
        }
        ++counters_.read_calls;
        const ssize_t moved = ::process_vm_readv(group_[first]->source, local_.data(),
                                                 local_.size(), remote_.data(), remote_.size(), 0);
        if (settle_group(moved, Outcome::kSourceFault, first) == Step::kRepeat) {
            return Step::kRepeat;
        }
    }
    return Step::kDone;
}

ProcessMemory::Step ProcessMemory::scatter() {
    for (std::size_t i = 0; i < batch_.size(); ++i) {
        Item& item = batch_[i];
        if (item.done) continue;
        if (item.target == kHere) {
            std::memmove(pointer(item.target_address), item.bytes, item.length);
            item.done = true;
            continue;
        }
        select_targets(i);
        if (write_group() == Step::kRepeat) return Step::kRepeat;
        for (Item* placed : group_) placed->done = true;
    }
    return Step::kDone;
}

// All items from `first` on whose target is its process.
void ProcessMemory::select_targets(std::size_t first) {
    group_.clear();
    const pid_t process = batch_[first].target;
    for (std::size_t i = first; i < batch_.size(); ++i) {
        if (!batch_[i].done && batch_[i].target == process) group_.push_back(&batch_[i]);
    }
}

ProcessMemory::Step ProcessMemory::write_group() {
    for (std::size_t first = 0; first < group_.size();) {
        local_.clear();
        remote_.clear();
        for (std::size_t i = first; i < group_.size(); ++i) {
            append(local_, const_cast<std::byte*>(group_[i]->bytes), group_[i]->length);
            append(remote_, pointer(group_[i]->target_address), group_[i]->length);
        }
        ++counters_.write_calls;
        const ssize_t moved = ::process_vm_writev(group_[first]->target, local_.data(),
                                                  local_.size(), remote_.data(), remote_.size(), 0);
        if (settle_group(moved, Outcome::kTargetFault, first) == Step::kRepeat) {
            return Step::kRepeat;
        }
    }
    return Step::kDone;
}

// The call moved `moved` bytes of group_[first...]. Sets `first` to where the next call goes on.
// kRepeat: the batch has been split, begin the step again.
ProcessMemory::Step ProcessMemory::settle_group(ssize_t moved, Outcome fault, std::size_t& first) {
    // A process that is gone, or closed to us, will not answer for the others either.
    const bool hopeless = moved < 0 && errno != EFAULT;
    const bool is_gone = moved < 0 && errno == ESRCH;
    std::size_t left = moved < 0 ? 0 : static_cast<std::size_t>(moved);
    while (first < group_.size() && left >= group_[first]->length) left -= group_[first++]->length;
    if (first == group_.size()) return Step::kDone;
    if (!is_split_) {
        split_batch();
        return Step::kRepeat;
    }
    const std::size_t last = hopeless ? group_.size() : first + 1;
    for (; first < last; ++first) {
        group_[first]->outcome = fault;
        group_[first]->is_gone = is_gone;
        group_[first]->done = true;
    }
    return Step::kDone;
}

// One item per packet. What was placed already stays done; the rest is gathered or placed again,
// which changes nothing: within a batch no copy reads what another one wrote.
void ProcessMemory::split_batch() {
    split_.clear();
    for (const Item& item : batch_) {
        Item part = item;
        part.packet_count = 1;
        for (std::uint32_t i = 0; i < item.packet_count; ++i) {
            part.first_packet = item.first_packet + i;
            part.length = packets_[part.first_packet].length;
            split_.push_back(part);
            part.source_address += part.length;
            part.target_address += part.length;
            if (part.bytes) part.bytes += part.length;
        }
    }
    batch_.swap(split_);
    is_split_ = true;
}

void ProcessMemory::report_faults() {
    for (std::size_t i = batch_.size() - 1; i-- > 0;) {
        Item& item = batch_[i];
        if (!item.superseded || item.outcome != Outcome::kOk) continue;
        item.outcome = batch_[i + 1].outcome;
        item.is_gone = batch_[i + 1].is_gone;
    }
    for (const Item& item : batch_) {
        if (item.outcome == Outcome::kOk) continue;
        for (std::uint32_t i = 0; i < item.packet_count; ++i) {
            ++counters_.faults;
            faults_.push_back({packets_[item.first_packet + i].owner,
                               item.outcome == Outcome::kSourceFault, item.is_gone});
        }
    }
}

}  // namespace rdmalab::card::host
