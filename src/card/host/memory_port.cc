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
    std::uint64_t from = source.address;
    std::uint32_t left = source.length;
    if (left == 0) return;
    if (!queue_.empty()) {
        Copy& last = queue_.back();
        const bool same_sides =
            last.target == target && last.source == source.space && last.owner.qpn == owner.qpn &&
            last.owner.is_responder == owner.is_responder && last.owner.engine == owner.engine &&
            last.owner.source_is_blamed == owner.source_is_blamed;
        // Within one space a copy may read what the one before it wrote: those stay apart.
        if (same_sides && source.space != target &&
            last.target_address + last.length == target_address &&
            last.source_address + last.length == from && left <= kBatchBytes - last.length) {
            last.length += left;
            return;
        }
        // Write combining: bytes from this process that the very next copy overwrites need not be
        // placed. (A source in a process could fault, and that must be seen.)
        if (same_sides && source.space == kCardSpace && last.target_address == target_address &&
            last.length == left) {
            last.source_address = from;
            return;
        }
    }
    while (left > 0) {
        const std::uint32_t length = std::min(left, kBatchBytes);
        queue_.push_back({from, target_address, source.space, target, length, owner});
        from += length;
        target_address += length;
        left -= length;
    }
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
    counters_.copies += queue_.size();
    for (std::size_t next = 0; next < queue_.size();) {
        next = collect(next);
        gather();
        scatter();
        report_faults();
        ++counters_.batches;
    }
    queue_.clear();
}

// Fills the batch from the queue; returns the first copy that is left for the next batch.
std::size_t ProcessMemory::collect(std::size_t first) {
    batch_.clear();
    target_hulls_.clear();
    here_hulls_.clear();
    std::size_t bytes = 0, next = first;
    for (; next < queue_.size() && batch_.size() < kBatchCopies; ++next) {
        const Copy& copy = queue_[next];
        Item item{&copy,
                  nullptr,
                  resolve(copy.source, kSourceSlot),
                  resolve(copy.target, kTargetSlot),
                  Outcome::kOk,
                  false};
        if (bytes + copy.length > kBatchBytes || depends_on_batch(item)) break;
        bytes += copy.length;
        if (item.source == kNowhere || item.target == kNowhere) {
            item.outcome = item.source == kNowhere ? Outcome::kSourceFault : Outcome::kTargetFault;
            item.done = true;
        } else {
            note_hull(target_hulls_, item.target, copy.target_address, copy.length);
            if (item.source == kHere) {
                item.bytes = static_cast<const std::byte*>(pointer(copy.source_address));
                note_hull(here_hulls_, kHere, copy.source_address, copy.length);
            }
        }
        batch_.push_back(item);
    }
    counters_.bytes += bytes;
    return next;
}

// Must `item` wait until the batch is carried out? The hulls say "no" cheaply for nearly all.
bool ProcessMemory::depends_on_batch(const Item& item) const {
    const Copy& copy = *item.copy;
    const auto hit = [](const std::vector<Hull>& hulls, pid_t process, std::uint64_t begin,
                        std::uint64_t length) {
        return std::any_of(hulls.begin(), hulls.end(), [&](const Hull& hull) {
            return hull.process == process &&
                   overlap(hull.begin, hull.end - hull.begin, begin, length);
        });
    };
    const bool reads_written = hit(target_hulls_, item.source, copy.source_address, copy.length);
    const bool overwrites_read =
        item.target == kHere && hit(here_hulls_, kHere, copy.target_address, copy.length);
    if (!reads_written && !overwrites_read) return false;
    return std::any_of(batch_.begin(), batch_.end(), [&](const Item& earlier) {
        const Copy& before = *earlier.copy;
        const bool reads =
            item.source == earlier.target &&
            overlap(copy.source_address, copy.length, before.target_address, before.length);
        const bool overwrites_source =
            item.target == kHere && earlier.source == kHere &&
            overlap(copy.target_address, copy.length, before.source_address, before.length);
        return reads || overwrites_source;
    });
}

void ProcessMemory::note_hull(std::vector<Hull>& hulls, pid_t process, std::uint64_t begin,
                              std::uint64_t length) {
    for (Hull& hull : hulls) {
        if (hull.process != process) continue;
        hull.begin = std::min(hull.begin, begin);
        hull.end = std::max(hull.end, begin + length);
        return;
    }
    hulls.push_back({process, begin, begin + length});
}

void ProcessMemory::gather() {
    arena_used_ = 0;
    for (std::size_t i = 0; i < batch_.size(); ++i) {
        const Item& item = batch_[i];
        if (!item.done && !item.bytes) gather_from(item.source, i);
    }
}

// All sources of one process, from item `first` on.
void ProcessMemory::gather_from(pid_t process, std::size_t first) {
    group_.clear();
    for (std::size_t i = first; i < batch_.size(); ++i) {
        Item& item = batch_[i];
        if (item.done || item.bytes || item.source != process) continue;
        item.bytes = arena_.get() + arena_used_;
        arena_used_ += item.copy->length;
        group_.push_back(&item);
    }
    read_group(process);
}

void ProcessMemory::read_group(pid_t process) {
    for (std::size_t first = 0; first < group_.size();) {
        local_.clear();
        remote_.clear();
        for (std::size_t i = first; i < group_.size(); ++i) {
            const Copy& copy = *group_[i]->copy;
            append(local_, const_cast<std::byte*>(group_[i]->bytes), copy.length);
            append(remote_, pointer(copy.source_address), copy.length);
        }
        ++counters_.read_calls;
        const ssize_t moved = ::process_vm_readv(process, local_.data(), local_.size(),
                                                 remote_.data(), remote_.size(), 0);
        settle_group(moved, Outcome::kSourceFault, first);
    }
}

void ProcessMemory::scatter() {
    for (std::size_t i = 0; i < batch_.size(); ++i) {
        Item& item = batch_[i];
        if (item.done) continue;
        if (item.target == kHere) {
            std::memmove(pointer(item.copy->target_address), item.bytes, item.copy->length);
            item.done = true;
        } else {
            scatter_to(item.target, i);
        }
    }
}

void ProcessMemory::scatter_to(pid_t process, std::size_t first) {
    group_.clear();
    for (std::size_t i = first; i < batch_.size(); ++i) {
        Item& item = batch_[i];
        if (item.done || item.target != process) continue;
        item.done = true;
        group_.push_back(&item);
    }
    write_group(process);
}

void ProcessMemory::write_group(pid_t process) {
    for (std::size_t first = 0; first < group_.size();) {
        local_.clear();
        remote_.clear();
        for (std::size_t i = first; i < group_.size(); ++i) {
            const Copy& copy = *group_[i]->copy;
            append(local_, const_cast<std::byte*>(group_[i]->bytes), copy.length);
            append(remote_, pointer(copy.target_address), copy.length);
        }
        ++counters_.write_calls;
        const ssize_t moved = ::process_vm_writev(process, local_.data(), local_.size(),
                                                  remote_.data(), remote_.size(), 0);
        settle_group(moved, Outcome::kTargetFault, first);
    }
}

// The call moved `moved` bytes of group_[first...]. Sets `first` to where the next call goes on.
void ProcessMemory::settle_group(ssize_t moved, Outcome fault, std::size_t& first) {
    // A process that is gone, or closed to us, will not answer for the others either.
    const bool hopeless = moved < 0 && errno != EFAULT;
    std::size_t left = moved < 0 ? 0 : static_cast<std::size_t>(moved);
    while (first < group_.size() && left >= group_[first]->copy->length) {
        left -= group_[first++]->copy->length;
    }
    if (first == group_.size()) return;
    const std::size_t last = hopeless ? group_.size() : first + 1;
    for (; first < last; ++first) {
        group_[first]->outcome = fault;
        group_[first]->done = true;
    }
}

void ProcessMemory::report_faults() {
    for (const Item& item : batch_) {
        if (item.outcome == Outcome::kOk) continue;
        ++counters_.faults;
        faults_.push_back({item.copy->owner, item.outcome == Outcome::kSourceFault});
    }
}

}  // namespace rdmalab::card::host
