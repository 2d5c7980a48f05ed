#include "card/id_map.h"

#include <gtest/gtest.h>

#include <unordered_map>

#include "base/prng.h"

namespace rdmalab::card {
namespace {

TEST(IdMap, finds_what_was_inserted_and_nothing_else) {
    IdMap<int> map;
    int a = 1, b = 2;
    map.insert(0, &a);
    map.insert(0xffff'ffff, &b);
    EXPECT_EQ(map.find(0), &a);
    EXPECT_EQ(map.find(0xffff'ffff), &b);
    EXPECT_EQ(map.find(1), nullptr);
    map.erase(1);
    map.erase(0);
    EXPECT_EQ(map.find(0), nullptr);
    EXPECT_EQ(map.size(), 1u);
}

TEST(IdMap, agrees_with_a_reference_over_random_operations) {
    IdMap<int> map;
    std::unordered_map<std::uint32_t, int> reference;
    Prng prng(7);
    for (int step = 0; step < 100'000; ++step) {
        // QPNs as engines make them: a small index and a tag.
        const auto key =
            static_cast<std::uint32_t>(prng.below(40) | prng.below(step < 50'000 ? 64 : 2) << 16);
        const auto found = reference.find(key);
        ASSERT_EQ(map.find(key), found == reference.end() ? nullptr : &found->second);
        if (found == reference.end()) {
            map.insert(key, &reference.emplace(key, step).first->second);
        } else {
            reference.erase(found);
            map.erase(key);
        }
        ASSERT_EQ(map.size(), reference.size());
    }
}

}  // namespace
}  // namespace rdmalab::card
