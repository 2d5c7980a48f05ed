#include "flow/forwarding_table.h"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.h"

namespace rdmalab::flow {
namespace {

TEST(ForwardingTable, finds_nothing_when_empty) {
    EXPECT_FALSE(ForwardingTable().find(MacAddress{}));
    EXPECT_FALSE(ForwardingTable().find(MacAddress::broadcast()));
}

TEST(ForwardingTable, tells_macs_apart_that_differ_in_any_byte) {
    ForwardingTable table;
    const MacAddress mac = *MacAddress::parse("02:00:0a:00:00:01");
    table.add(mac, VportId{7});
    ASSERT_NE(table.find(mac), nullptr);
    EXPECT_EQ(*table.find(mac), VportId{7});
    for (std::size_t byte = 0; byte < 6; ++byte) {
        MacAddress other = mac;
        other.bytes[byte] ^= 0x80;
        EXPECT_FALSE(table.find(other)) << byte;
    }
}

TEST(ForwardingTable, a_full_table_finds_every_mac_and_no_other) {
    constexpr std::uint64_t kSeed = 4;
    Prng prng(kSeed);
    for (int run = 0; run < 50; ++run) {
        ForwardingTable table;
        std::map<MacAddress, VportId> model;
        // Half of the runs count up, as the MACs of a card do.
        const bool counting = run % 2 == 0;
        while (model.size() < kPortMax) {
            const std::uint64_t bits = counting ? model.size() : prng.next();
            const MacAddress mac{
                {2, static_cast<std::uint8_t>(bits >> 32), 0, static_cast<std::uint8_t>(bits >> 16),
                 static_cast<std::uint8_t>(bits >> 8), static_cast<std::uint8_t>(bits)}};
            const VportId port{static_cast<std::uint16_t>(model.size())};
            if (model.emplace(mac, port).second) table.add(mac, port);
        }
        for (const auto& [mac, port] : model)
            ASSERT_TRUE(table.find(mac) != nullptr && *table.find(mac) == port)
                << "seed " << kSeed << " run " << run;
        for (int i = 0; i < 100; ++i) {
            MacAddress mac{{6, 0, 0, 0, 0, static_cast<std::uint8_t>(i)}};
            ASSERT_FALSE(table.find(mac));
        }
    }
}

}  // namespace
}  // namespace rdmalab::flow
