// Memory windows in the table of keys.
#include <gtest/gtest.h>

#include <cerrno>

#include "transport/memory_table.h"

namespace rdmalab::transport {
namespace {

constexpr OwnerId kOwner{1};
constexpr PdId kPd{2};
constexpr Qpn kQpn{17};
constexpr std::uint64_t kIova = 0x9000, kAddress = 0x1000;

struct WindowTableTest : testing::Test {
    MrKeys region(std::uint32_t access = kAccessLocalWrite | kAccessMwBind) {
        return *table.insert({kOwner, SpaceId{5}, kPd, kAddress, 100, kIova, access});
    }
    Rkey window(WindowType type) { return *table.insert_window(kOwner, kPd, type); }
    // With the tag behind that of `rkey`.
    WindowRequest request(Rkey rkey, Lkey region, std::uint64_t address, std::uint64_t length,
                          std::uint32_t access = kAccessRemoteWrite) {
        const std::uint32_t next = (rkey.value & ~0xffu) | ((rkey.value + 1) & 0xff);
        return {{next}, {region, access, length}, address, kPd, kQpn};
    }
    bool may_write(Rkey rkey, std::uint64_t address, std::uint64_t length, Qpn qpn = kQpn) {
        return table.remote(rkey, kPd, qpn, address, length, kAccessRemoteWrite).ok;
    }
    MemoryTable table{1};
    MrKeys keys = region();
};

//= IBA 10.6.7.2.4 test
TEST_F(WindowTableTest, a_window_is_bound_to_a_part_of_a_region) {
    const Rkey rkey = window(WindowType::kType1);
    EXPECT_FALSE(may_write(rkey, kIova, 1));
    const WindowRequest bind = request(rkey, keys.lkey, kIova + 10, 20);
    ASSERT_TRUE(table.bind(bind));
    EXPECT_FALSE(may_write(rkey, kIova + 10, 1));  // the old tag
    EXPECT_FALSE(may_write(bind.rkey, kIova + 9, 1));
    EXPECT_FALSE(may_write(bind.rkey, kIova + 10, 21));
    const Translation at =
        table.remote(bind.rkey, kPd, Qpn{99}, kIova + 12, 18, kAccessRemoteWrite);
    ASSERT_TRUE(at.ok);
    EXPECT_EQ(at.address, kAddress + 12);
    EXPECT_EQ(at.space, SpaceId{5});
    EXPECT_FALSE(table.remote(bind.rkey, kPd, kQpn, kIova + 12, 1, kAccessRemoteRead).ok);
    EXPECT_FALSE(table.local({bind.rkey.value}, kPd, kIova + 12, 1, 0).ok);
}

//= IBA 10.6.7.2.4 test
TEST_F(WindowTableTest, a_bind_agrees_with_its_region) {
    const Rkey rkey = window(WindowType::kType1);
    const Lkey plain = region(kAccessLocalWrite).lkey;
    const Lkey read_only = region(kAccessMwBind).lkey;
    EXPECT_FALSE(table.bind(request(rkey, plain, kIova, 1)));
    EXPECT_FALSE(table.bind(request(rkey, read_only, kIova, 1)));
    EXPECT_TRUE(table.bind(request(rkey, read_only, kIova, 1, kAccessRemoteRead)));
    EXPECT_FALSE(table.bind(request(rkey, keys.lkey, kIova + 99, 2)));
    EXPECT_FALSE(table.bind(request(rkey, {keys.lkey.value ^ 1}, kIova, 1)));
    EXPECT_FALSE(table.bind(request({keys.rkey.value}, keys.lkey, kIova, 1)));
    EXPECT_FALSE(table.bind(request(rkey, keys.lkey, kIova, 1, kAccessMwBind)));
    WindowRequest other = request(rkey, keys.lkey, kIova, 1);
    other.pd = PdId{3};
    EXPECT_FALSE(table.bind(other));
}

TEST_F(WindowTableTest, zero_based_windows_are_of_type_2) {
    const std::uint32_t access = kAccessRemoteWrite | kAccessZeroBased;
    EXPECT_FALSE(table.bind(request(window(WindowType::kType1), keys.lkey, kIova, 9, access)));
    const WindowRequest bind =
        request(window(WindowType::kType2), keys.lkey, kIova + 50, 9, access);
    ASSERT_TRUE(table.bind(bind));
    EXPECT_TRUE(may_write(bind.rkey, 0, 9));
    EXPECT_FALSE(may_write(bind.rkey, kIova + 50, 1));
}

TEST_F(WindowTableTest, type_1_is_bound_anew_and_unbound_by_length_0) {
    const Rkey rkey = window(WindowType::kType1);
    const WindowRequest first = request(rkey, keys.lkey, kIova, 9);
    ASSERT_TRUE(table.bind(first));
    const WindowRequest second = request(first.rkey, keys.lkey, kIova + 50, 9);
    ASSERT_TRUE(table.bind(second));
    EXPECT_FALSE(may_write(first.rkey, kIova, 1));
    EXPECT_TRUE(may_write(second.rkey, kIova + 50, 1));
    const WindowRequest nothing = request(second.rkey, {}, 0, 0);
    ASSERT_TRUE(table.bind(nothing));
    EXPECT_FALSE(may_write(nothing.rkey, kIova + 50, 1));
    EXPECT_FALSE(table.invalidate(first.rkey, kPd, kQpn));
}

//= IBA 10.6.7.2.2 test
//= IBA 10.6.7.2.3 test
TEST_F(WindowTableTest, type_2_belongs_to_a_qp_until_it_is_invalidated) {
    const Rkey rkey = window(WindowType::kType2);
    EXPECT_FALSE(table.bind(request(rkey, keys.lkey, kIova, 0)));
    const WindowRequest bind = request(rkey, keys.lkey, kIova, 9);
    ASSERT_TRUE(table.bind(bind));
    EXPECT_TRUE(may_write(bind.rkey, kIova, 1));
    EXPECT_FALSE(may_write(bind.rkey, kIova, 1, Qpn{18}));
    EXPECT_FALSE(table.bind(request(bind.rkey, keys.lkey, kIova, 9)));
    EXPECT_FALSE(table.invalidate(bind.rkey, kPd, Qpn{18}));
    EXPECT_FALSE(table.invalidate(bind.rkey, PdId{3}, kQpn));
    EXPECT_TRUE(table.invalidate(bind.rkey, kPd, kQpn));
    EXPECT_FALSE(may_write(bind.rkey, kIova, 1));
    EXPECT_FALSE(table.invalidate(bind.rkey, kPd, kQpn));
    EXPECT_TRUE(table.bind(request(bind.rkey, keys.lkey, kIova, 9)));
}

//= IBA 10.6.7.2 test
TEST_F(WindowTableTest, a_region_stays_while_windows_are_bound_to_it) {
    const Rkey one = window(WindowType::kType1);
    const WindowRequest bind = request(one, keys.lkey, kIova, 9);
    ASSERT_TRUE(table.bind(bind));
    PdId pd;
    EXPECT_EQ(table.erase(kOwner, keys.lkey, pd), EBUSY);
    MrChange change;
    change.access = 0;
    EXPECT_EQ(table.change(kOwner, keys.lkey, change), EBUSY);
    EXPECT_FALSE(table.erase_window(OwnerId{9}, one.value >> 8, pd));
    EXPECT_TRUE(table.erase_window(kOwner, one.value >> 8, pd));
    EXPECT_EQ(pd, kPd);
    EXPECT_FALSE(may_write(bind.rkey, kIova, 1));
    EXPECT_EQ(table.erase(kOwner, keys.lkey, pd), 0);
    EXPECT_EQ(table.size(), 0u);
}

TEST_F(WindowTableTest, what_an_owner_leaves_goes_with_its_windows) {
    ASSERT_TRUE(table.bind(request(window(WindowType::kType1), keys.lkey, kIova, 9)));
    table.erase_of(kOwner);
    EXPECT_EQ(table.size(), 0u);
    const MrKeys next = region();
    PdId pd;
    EXPECT_EQ(table.erase(kOwner, next.lkey, pd), 0);
}

}  // namespace
}  // namespace rdmalab::transport
