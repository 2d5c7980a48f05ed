#include "perftest/buffers.h"

#include <dlfcn.h>
#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "perftest/failure.h"
#include "perftest/placement.h"

namespace rdmalab::perftest {

namespace {

constexpr std::uint64_t kCacheLine = 64;
constexpr std::uint64_t kRotation = 4096;  // small messages walk through a page
constexpr std::size_t kHugePage = 2u << 20;
constexpr std::size_t kPage = 4096;

std::size_t round_up(std::size_t value, std::size_t unit) {
    return (value + unit - 1) / unit * unit;
}

[[noreturn]] void refuse_cuda(const Side& side) {
    std::string library = "libcuda.so.1";
    if (!side.cuda_lib_path.empty()) library = side.cuda_lib_path + "/" + library;
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    std::string why = handle == nullptr ? std::string(dlerror())
                                        : library + " is there, but this build drives no GPU";
    throw Failure(fmt::format("memory type {} needs the CUDA driver and a GPU: {}",
                              name_of(side.memory), why));
}

}  // namespace

void require_memory(const Side& side) {
    if (is_cuda(side.memory)) refuse_cuda(side);
    if (side.ph && dlsym(RTLD_DEFAULT, "ibv_alloc_dmah") == nullptr) {
        throw Failure(
            "--ph needs TPH: this libibverbs has no ibv_alloc_dmah (rdma-core 60 or "
            "later, and a kernel with TPH)");
    }
    if (side.ph) throw Failure("--ph: this build was made with a libibverbs without TPH");
}

Layout Layout::of(std::uint64_t message_bytes, std::uint32_t qps, std::uint32_t slots_max) {
    Layout layout;
    std::uint64_t slot = std::max(round_up(message_bytes, kCacheLine), kCacheLine);
    auto slots =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kRotation / slot, 1, slots_max));
    return with_slots(message_bytes, qps, slots);
}

Layout Layout::with_slots(std::uint64_t message_bytes, std::uint32_t qps, std::uint32_t slots) {
    Layout layout;
    layout.slot_bytes = std::max(round_up(message_bytes, kCacheLine), kCacheLine);
    layout.slots = slots;
    layout.qps = qps;
    return layout;
}

Buffer::Buffer(ibv_pd* pd, Memory memory, const Layout& layout, int access,
               const std::string& purpose, std::optional<int> numa_node)
    : layout_(layout) {
    if (memory == Memory::kNullMr) {
        mr_ = ibv_alloc_null_mr(pd);
        if (mr_ == nullptr) {
            throw Failure(
                fmt::format("memory type nullmr: the device offers no null memory "
                            "region: {}",
                            strerror(errno)));
        }
        return;
    }
    if (memory == Memory::kDevice) {
        register_device(pd, purpose, access);
        return;
    }
    allocate_host(purpose, numa_node);
    mr_ = ibv_reg_mr(pd, host_, mapped_, access);
    if (mr_ == nullptr) {
        throw Failure(fmt::format("cannot register {} bytes for {}: {}{}", mapped_, purpose,
                                  strerror(errno),
                                  errno == ENOMEM ? " (is 'ulimit -l' large enough?)" : ""));
    }
    base_ = reinterpret_cast<std::uint64_t>(host_);
}

void Buffer::allocate_host(const std::string& purpose, std::optional<int> numa_node) {
    std::size_t length = round_up(layout_.total(), kPage);
    void* address = MAP_FAILED;
    if (length >= kHugePage) {
        mapped_ = round_up(length, kHugePage);
        address = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
        huge_ = address != MAP_FAILED;
    }
    if (address == MAP_FAILED) {
        mapped_ = length;
        address =
            mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (address != MAP_FAILED && length >= kHugePage) {
            madvise(address, mapped_, MADV_HUGEPAGE);
        }
    }
    if (address == MAP_FAILED) {
        throw Failure(
            fmt::format("cannot allocate {} bytes for {}: {}", length, purpose, strerror(errno)));
    }
    host_ = static_cast<std::byte*>(address);
    if (numa_node) bind_memory(address, mapped_, *numa_node);
    // Every page is there before the first message: nothing faults inside the window.
    for (std::size_t i = 0; i < mapped_; i += kPage) host_[i] = std::byte{0};
}

void Buffer::register_device(ibv_pd* pd, const std::string& purpose, int access) {
    ibv_alloc_dm_attr wish{};
    wish.length = layout_.total();
    dm_ = ibv_alloc_dm(pd->context, &wish);
    if (dm_ == nullptr) {
        throw Failure(fmt::format("memory type device: the adapter gives no {} bytes for {}: {}",
                                  wish.length, purpose, strerror(errno)));
    }
    mr_ = ibv_reg_dm_mr(pd, dm_, 0, wish.length,
                        static_cast<unsigned>(access) | IBV_ACCESS_ZERO_BASED);
    if (mr_ == nullptr) {
        throw Failure(fmt::format("memory type device: cannot register {} bytes for {}: {}",
                                  wish.length, purpose, strerror(errno)));
    }
}

Buffer::Buffer(Buffer&& other) noexcept
    : layout_(other.layout_),
      host_(std::exchange(other.host_, nullptr)),
      mapped_(other.mapped_),
      huge_(other.huge_),
      base_(other.base_),
      dm_(std::exchange(other.dm_, nullptr)),
      mr_(std::exchange(other.mr_, nullptr)) {}

Buffer::~Buffer() {
    if (mr_ != nullptr) ibv_dereg_mr(mr_);
    if (dm_ != nullptr) ibv_free_dm(dm_);
    if (host_ != nullptr) munmap(host_, mapped_);
}

}  // namespace rdmalab::perftest
