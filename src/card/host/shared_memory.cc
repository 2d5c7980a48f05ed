#include "card/host/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <new>

#include "base/bytes.h"

namespace rdmalab::card::host {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint32_t kMemfdFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;

}  // namespace

Result<std::unique_ptr<SharedMemory>> SharedMemory::create(const std::string& name,
                                                           std::uint64_t size_max) {
    std::unique_ptr<SharedMemory> memory(new SharedMemory());
    memory->fd_.reset(::memfd_create(name.c_str(), kMemfdFlags));
    if (!memory->fd_) return system_error("cannot create shared memory");
    Error error;
    // Under `ulimit -v` or `ulimit -f` a smaller area may still do.
    for (std::uint64_t size = size_max; size >= std::min(size_max, kSizeMin); size /= 2) {
        error = {};
        if (::ftruncate(memory->fd(), static_cast<off_t>(size)) != 0) {
            error = system_error(fmt::format("cannot size {} MiB of shared memory", size >> 20));
            continue;
        }
        void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                            memory->fd(), 0);
        if (base == MAP_FAILED) {
            error = system_error(fmt::format("cannot map {} MiB of shared memory", size >> 20));
            continue;
        }
        memory->base_ = static_cast<std::byte*>(base);
        memory->size_ = size;
        break;
    }
    if (error.code != 0) return Error{ENOMEM, error.text};
    ::madvise(memory->base_, memory->size_, MADV_DONTDUMP);
    if (::fcntl(memory->fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return system_error("cannot seal shared memory");
    }
    memory->free_.emplace(0, memory->size_);
    return memory;
}

SharedMemory::~SharedMemory() {
    if (base_) ::munmap(base_, size_);
}

Result<MappedRegion> SharedMemory::allocate(std::uint64_t length) {
    if (length == 0 || length > size_) return Error{ENOMEM, "no such amount of shared memory"};
    const std::uint64_t rounded = round_up(length, kPage);
    for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
        const auto [offset, available] = *hole;
        if (available < rounded) continue;
        free_.erase(hole);
        if (available > rounded) free_.emplace(offset + rounded, available - rounded);
        used_ += rounded;
        return MappedRegion{{offset, rounded}, base_ + offset};
    }
    return Error{ENOMEM, "the shared memory of this context is used up"};
}

void SharedMemory::free(const abi::Region& region) {
    const int punched =
        ::fallocate(fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(region.offset), static_cast<off_t>(region.length));
    used_ -= region.length;
    // What could not be zeroed is not handed out again.
    if (punched == 0) give_back(region.offset, region.length);
}

void SharedMemory::give_back(std::uint64_t offset, std::uint64_t length) {
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && offset + length == next->first) {
        length += next->second;
        next = free_.erase(next);
    }
    if (next != free_.begin()) {
        const auto previous = std::prev(next);
        if (previous->first + previous->second == offset) {
            previous->second += length;
            return;
        }
    }
    free_.emplace(offset, length);
}

Result<std::unique_ptr<CardPageMemory>> CardPageMemory::create() {
    std::unique_ptr<CardPageMemory> memory(new CardPageMemory());
    memory->fd_.reset(::memfd_create("rdmalab-card-page", kMemfdFlags));
    if (!memory->fd_ || ::ftruncate(memory->fd(), kPage) != 0) {
        return system_error("cannot create the card page");
    }
    void* base = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd(), 0);
    if (base == MAP_FAILED) return system_error("cannot map the card page");
    // From here on only the mapping above can write.
    constexpr int kSeals = F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    if (::fcntl(memory->fd(), F_ADD_SEALS, kSeals) != 0) {
        ::munmap(base, kPage);
        return system_error("cannot seal the card page");
    }
    memory->page_ = new (base) abi::CardPage{abi::kMagic, abi::kVersion, 0};
    return memory;
}

CardPageMemory::~CardPageMemory() {
    if (page_) ::munmap(page_, kPage);
}

}  // namespace rdmalab::card::host
