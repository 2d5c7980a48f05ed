#include "transport/memory_table.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

namespace rdmalab::transport {
namespace {

constexpr OwnerId kOwner{1};
constexpr PdId kPd{2};
constexpr Qpn kQpn{17};
constexpr std::uint32_t kAll =
    kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;

MrInit init(std::uint64_t length = 100, std::uint32_t access = kAll) {
    return {kOwner, SpaceId{5}, kPd, 0x1000, length, 0x9000, access};
}

TEST(MemoryTable, translates_iova_to_address_within_the_region) {
    MemoryTable table(1);
    const MrKeys keys = *table.insert(init());
    const Translation at = table.local(keys.lkey, kPd, 0x9010, 10, kAccessLocalWrite);
    ASSERT_TRUE(at.ok);
    EXPECT_EQ(at.space, SpaceId{5});
    EXPECT_EQ(at.address, 0x1010u);
    EXPECT_TRUE(table.remote(keys.rkey, kPd, kQpn, 0x9000, 100, kAccessRemoteRead).ok);
}

//= IBA 10.6.3.5 test
TEST(MemoryTable, refuses_what_is_not_wholly_inside) {
    MemoryTable table(1);
    const Lkey lkey = table.insert(init())->lkey;
    EXPECT_FALSE(table.local(lkey, kPd, 0x8fff, 1, 0).ok);
    EXPECT_FALSE(table.local(lkey, kPd, 0x9000, 101, 0).ok);
    EXPECT_FALSE(table.local(lkey, kPd, 0x9001, 100, 0).ok);
    EXPECT_FALSE(table.local(lkey, kPd, 0x9000 + 100, 1, 0).ok);
    EXPECT_FALSE(table.local(lkey, kPd, 0x9001, UINT64_MAX, 0).ok);
    EXPECT_FALSE(table.local(lkey, kPd, UINT64_MAX, 2, 0).ok);
    EXPECT_TRUE(table.local(lkey, kPd, 0x9000 + 99, 1, 0).ok);
}

//= IBA 10.6.3.5 test
TEST(MemoryTable, refuses_other_domains_rights_and_keys) {
    MemoryTable table(1);
    const MrKeys keys = *table.insert(init(100, kAccessRemoteRead));
    EXPECT_FALSE(table.local(keys.lkey, PdId{3}, 0x9000, 1, 0).ok);
    EXPECT_FALSE(table.local(keys.lkey, kPd, 0x9000, 1, kAccessLocalWrite).ok);
    EXPECT_FALSE(table.remote(keys.rkey, kPd, kQpn, 0x9000, 1, kAccessRemoteWrite).ok);
    EXPECT_FALSE(table.local(Lkey{keys.lkey.value ^ 1}, kPd, 0x9000, 1, 0).ok);
    EXPECT_FALSE(table.local(Lkey{0}, kPd, 0x9000, 1, 0).ok);
    EXPECT_FALSE(table.local(Lkey{UINT32_MAX}, kPd, 0x9000, 1, 0).ok);
}

TEST(MemoryTable, a_key_dies_with_its_region_and_is_not_given_out_again_soon) {
    MemoryTable table(1);
    std::set<std::uint32_t> seen;
    for (int i = 0; i < 200; ++i) {
        const Lkey lkey = table.insert(init())->lkey;
        EXPECT_TRUE(seen.insert(lkey.value).second);
        PdId pd;
        EXPECT_EQ(table.erase(OwnerId{9}, lkey, pd), EINVAL);
        EXPECT_EQ(table.erase(kOwner, lkey, pd), 0);
        EXPECT_EQ(pd, kPd);
        EXPECT_EQ(table.erase(kOwner, lkey, pd), EINVAL);
        EXPECT_FALSE(table.local(lkey, kPd, 0x9000, 1, 0).ok);
    }
    EXPECT_EQ(table.size(), 0u);
}

TEST(MemoryTable, checks_what_is_registered) {
    MemoryTable table(1);
    EXPECT_EQ(table.insert(init(100, kAccessRemoteWrite)).error().code, EINVAL);
    EXPECT_EQ(table.insert(init(100, kAccessRemoteAtomic)).error().code, EINVAL);
    EXPECT_EQ(table.insert(init(100, 1u << 15)).error().code, EINVAL);
    EXPECT_EQ(table.insert(init(UINT64_MAX)).error().code, EINVAL);
    EXPECT_TRUE(table.insert(init(100, kAccessRemoteRead | kAccessRelaxedOrdering)).ok());
}

TEST(MemoryTable, a_zero_based_region_starts_at_zero) {
    MemoryTable table(1);
    const MrKeys keys = *table.insert(init(100, kAll | kAccessZeroBased));
    EXPECT_EQ(table.remote(keys.rkey, kPd, kQpn, 7, 1, kAccessRemoteRead).address, 0x1007u);
}

TEST(MemoryTable, a_region_is_not_invalidated) {
    MemoryTable table(1);
    const MrKeys keys = *table.insert(init());
    EXPECT_FALSE(table.invalidate(keys.rkey, kPd, kQpn));
    EXPECT_TRUE(table.remote(keys.rkey, kPd, kQpn, 0x9000, 1, kAccessRemoteRead).ok);
}

TEST(MemoryTable, a_change_keeps_the_key_and_what_is_not_named) {
    MemoryTable table(1);
    const MrKeys keys = *table.insert(init());
    MrChange change;
    change.place = {SpaceId{6}, 0x5000, 10, 0x5000};
    ASSERT_EQ(table.change(kOwner, keys.lkey, change), 0);
    const Translation at = table.local(keys.lkey, kPd, 0x5001, 9, kAccessLocalWrite);
    EXPECT_TRUE(at.ok);
    EXPECT_EQ(at.space, SpaceId{6});
    EXPECT_FALSE(table.local(keys.lkey, kPd, 0x9000, 1, 0).ok);
    change = {};
    change.pd = PdId{3};
    ASSERT_EQ(table.change(kOwner, keys.lkey, change), 0);
    EXPECT_FALSE(table.local(keys.lkey, kPd, 0x5000, 1, 0).ok);
    EXPECT_TRUE(table.local(keys.lkey, PdId{3}, 0x5000, 1, 0).ok);
    change = {};
    change.access = kAccessRemoteWrite;  // without the local right
    EXPECT_EQ(table.change(kOwner, keys.lkey, change), EINVAL);
    EXPECT_EQ(table.change(OwnerId{9}, keys.lkey, {}), EINVAL);
    EXPECT_TRUE(table.local(keys.lkey, PdId{3}, 0x5000, 1, kAccessLocalWrite).ok);
}

TEST(MemoryTable, a_null_region_is_anywhere_and_local_only) {
    MemoryTable table(1);
    const MrKeys keys =
        *table.insert({kOwner, {}, kPd, 0, UINT64_MAX, 0, kAccessLocalWrite, MrKind::kNull});
    EXPECT_EQ(table.local(keys.lkey, kPd, 0xdead'beef, 1 << 20, kAccessLocalWrite).space,
              kNullSpace);
    EXPECT_FALSE(table.remote(keys.rkey, kPd, kQpn, 0, 1, 0).ok);
    EXPECT_EQ(table.change(kOwner, keys.lkey, {}), EINVAL);
}

TEST(MemoryTable, the_regions_of_an_owner_go_together) {
    MemoryTable table(1);
    const Lkey mine = table.insert(init())->lkey;
    MrInit other = init();
    other.owner = OwnerId{2};
    const Lkey theirs = table.insert(other)->lkey;
    table.erase_of(kOwner);
    EXPECT_EQ(table.size(), 1u);
    EXPECT_FALSE(table.local(mine, kPd, 0x9000, 1, 0).ok);
    EXPECT_TRUE(table.local(theirs, kPd, 0x9000, 1, 0).ok);
}

}  // namespace
}  // namespace rdmalab::transport
