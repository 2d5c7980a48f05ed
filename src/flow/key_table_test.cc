#include "flow/key_table.h"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.h"

namespace rdmalab::flow {
namespace {

TEST(KeyTable, agrees_with_a_map_over_random_changes) {
    constexpr std::uint64_t kSeed = 3;
    Prng random(kSeed);
    using Key = std::array<std::uint64_t, 2>;
    KeyTable table(2);
    std::map<Key, std::uint32_t> model;
    std::uint32_t next_slot = 0;
    for (int step = 0; step < 50'000; ++step) {
        const Key key{random.below(20), random.below(20)};
        const auto known = model.find(key);
        ASSERT_EQ(table.find(key.data()), known == model.end() ? KeyTable::kNone : known->second)
            << "seed " << kSeed << " step " << step;
        if (known == model.end()) {
            table.insert(key, next_slot);
            model[key] = next_slot++;
        } else if (random.chance(0.5)) {
            table.erase(known->second);
            model.erase(known);
        } else {
            table.replace(known->second, next_slot);
            known->second = next_slot++;
        }
    }
}

TEST(KeyTable, a_key_of_no_words_is_there_once) {
    KeyTable table(0);
    EXPECT_EQ(table.find(nullptr), KeyTable::kNone);
    table.insert({}, 5);
    EXPECT_EQ(table.find(nullptr), 5u);
    table.erase(5);
    EXPECT_EQ(table.find(nullptr), KeyTable::kNone);
}

}  // namespace
}  // namespace rdmalab::flow
