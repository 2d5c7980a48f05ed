#include "card/host/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "card/host/testing.h"

namespace rdmalab::card::host {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kSize = 16 * kPage;

std::unique_ptr<SharedMemory> make(std::uint64_t size = kSize) {
    auto memory = SharedMemory::create("rdmalab-test", size);
    EXPECT_TRUE(memory.ok()) << memory.error().text;
    return std::move(*memory);
}

std::uint64_t resident_bytes(int fd) {
    struct stat facts {};
    ::fstat(fd, &facts);
    return static_cast<std::uint64_t>(facts.st_blocks) * 512;
}

TEST(SharedMemory, regions_are_page_aligned_zeroed_and_apart) {
    const auto memory = make();
    const auto first = memory->allocate(100), second = memory->allocate(kPage + 1);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(first->region.offset % kPage, 0u);
    EXPECT_EQ(first->region.length, kPage);
    EXPECT_EQ(second->region.length, 2 * kPage);
    EXPECT_GE(second->region.offset, first->region.offset + first->region.length);
    EXPECT_EQ(second->base[kPage], std::byte{0});
}

TEST(SharedMemory, a_client_sees_what_the_card_writes_at_the_offset_of_the_region) {
    const auto memory = make();
    (void)memory->allocate(kPage);
    const auto region = memory->allocate(kPage);
    region->base[7] = std::byte{0x5a};
    void* client = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd(),
                          static_cast<off_t>(region->region.offset));
    ASSERT_NE(client, MAP_FAILED);
    EXPECT_EQ(static_cast<std::byte*>(client)[7], std::byte{0x5a});
    ::munmap(client, kPage);
}

TEST(SharedMemory, a_freed_region_is_zero_when_it_is_used_again_and_its_memory_returns) {
    const auto memory = make();
    const auto region = memory->allocate(4 * kPage);
    std::memset(region->base, 0xff, 4 * kPage);
    EXPECT_EQ(resident_bytes(memory->fd()), 4 * kPage);
    memory->free(region->region);
    EXPECT_EQ(resident_bytes(memory->fd()), 0u);
    const auto again = memory->allocate(4 * kPage);
    EXPECT_EQ(again->region.offset, region->region.offset);
    EXPECT_EQ(again->base[0], std::byte{0});
    EXPECT_EQ(again->base[4 * kPage - 1], std::byte{0});
}

TEST(SharedMemory, free_neighbours_become_one_hole) {
    const auto memory = make();
    const auto a = memory->allocate(5 * kPage), b = memory->allocate(5 * kPage),
               c = memory->allocate(6 * kPage);
    ASSERT_TRUE(a.ok() && b.ok() && c.ok());
    EXPECT_EQ(memory->allocate(kPage).error().code, ENOMEM);
    memory->free(a->region);
    memory->free(c->region);
    EXPECT_EQ(memory->allocate(7 * kPage).error().code, ENOMEM);
    memory->free(b->region);
    EXPECT_EQ(memory->used(), 0u);
    EXPECT_TRUE(memory->allocate(kSize).ok());
}

TEST(SharedMemory, amounts_that_cannot_be_are_enomem) {
    const auto memory = make();
    EXPECT_EQ(memory->allocate(0).error().code, ENOMEM);
    EXPECT_EQ(memory->allocate(kSize + 1).error().code, ENOMEM);
    EXPECT_EQ(memory->allocate(~0ull).error().code, ENOMEM);
}

TEST(SharedMemory, a_client_can_neither_shrink_nor_grow_it_nor_lift_the_seals) {
    const auto memory = make();
    EXPECT_EQ(::ftruncate(memory->fd(), 0), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(::ftruncate(memory->fd(), 2 * kSize), -1);
    EXPECT_EQ(::fcntl(memory->fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
}

TEST(SharedMemory, a_client_that_punches_holes_does_not_crash_the_card) {
    const auto memory = make();
    const auto region = memory->allocate(kPage);
    region->base[0] = std::byte{1};
    ASSERT_EQ(::fallocate(memory->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kSize), 0);
    EXPECT_EQ(region->base[0], std::byte{0});
    region->base[0] = std::byte{2};
}

TEST(SharedMemory, a_tight_address_space_limit_gives_a_smaller_area) {
    if (kSanitized) GTEST_SKIP() << "a sanitizer takes more address space than the limit";
    const pid_t child = ::fork();
    if (child == 0) {
        rlimit limit{1ull << 33, 1ull << 33};  // half of the usual size
        ::setrlimit(RLIMIT_AS, &limit);
        const auto memory = SharedMemory::create("rdmalab-test");
        ::_exit(memory.ok() && (*memory)->size() < SharedMemory::kSizeMax ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST(SharedMemory, no_address_space_at_all_is_enomem_with_a_text) {
    if (kSanitized) GTEST_SKIP() << "a sanitizer takes more address space than the limit";
    const pid_t child = ::fork();
    if (child == 0) {
        rlimit limit{1, 1};
        ::setrlimit(RLIMIT_AS, &limit);
        const auto memory = SharedMemory::create("rdmalab-test");
        const bool right =
            !memory.ok() && memory.error().code == ENOMEM &&
            memory.error().text == "cannot map 16 MiB of shared memory: Cannot allocate memory";
        ::_exit(right ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST(CardPage, clients_can_map_it_read_only_and_not_for_writing) {
    const auto page = CardPageMemory::create();
    ASSERT_TRUE(page.ok());
    const int fd = (*page)->fd();
    void* mapped = ::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    (*page)->page().sleeping.store(1);
    const auto* seen = static_cast<const abi::CardPage*>(mapped);
    EXPECT_EQ(seen->magic, abi::kMagic);
    EXPECT_EQ(seen->version, abi::kVersion);
    EXPECT_EQ(seen->sleeping.load(), 1u);
    ::munmap(mapped, kPage);
    EXPECT_EQ(::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    EXPECT_EQ(::pwrite(fd, "x", 1, 0), -1);
    EXPECT_EQ(::ftruncate(fd, 0), -1);
}

}  // namespace
}  // namespace rdmalab::card::host
