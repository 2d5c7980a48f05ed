#include "card/doorbells.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace rdmalab::card {
namespace {

class Doorbells : public ::testing::Test {
protected:
    void ring(std::uint32_t slot) {
        area->leaf[slot / 64].fetch_or(1ull << (slot % 64));
        area->mid[slot / 4096].fetch_or(1ull << (slot / 64 % 64));
        area->top.fetch_or(1ull << (slot / 4096));
    }
    std::vector<std::uint32_t> drain() {
        std::vector<std::uint32_t> slots;
        drain_doorbells(*area, [&](std::uint32_t slot) { slots.push_back(slot); });
        return slots;
    }
    std::unique_ptr<abi::DoorbellArea> area = std::make_unique<abi::DoorbellArea>();
};

TEST_F(Doorbells, every_slot_that_was_rung_is_reported_once) {
    const std::vector<std::uint32_t> slots{0, 1, 63, 64, 4095, 4096, abi::kDoorbellSlots - 1};
    for (const std::uint32_t slot : slots) ring(slot);
    ring(64);
    EXPECT_TRUE(any_doorbell(*area));
    EXPECT_EQ(drain(), slots);
    EXPECT_FALSE(any_doorbell(*area));
    EXPECT_TRUE(drain().empty());
}

TEST_F(Doorbells, a_client_that_sets_all_bits_costs_one_pass) {
    area->top = ~0ull;
    for (auto& word : area->mid) word = ~0ull;
    for (auto& word : area->leaf) word = ~0ull;
    EXPECT_EQ(drain().size(), abi::kDoorbellSlots);
    EXPECT_TRUE(drain().empty());
}

TEST_F(Doorbells, upper_bits_without_lower_ones_report_nothing) {
    area->top = ~0ull;
    area->mid[3] = ~0ull;
    EXPECT_TRUE(drain().empty());
}

}  // namespace
}  // namespace rdmalab::card
