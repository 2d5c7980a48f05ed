#include "wire/pcap.h"

#include <gtest/gtest.h>

#include "wire/testing.h"

namespace rdmalab::wire {
namespace {

std::uint32_t word(ByteView bytes, std::size_t at) {
    return load_bytes<std::uint32_t>(bytes.data() + at);
}

// Start and length of each block, after a check that both its lengths agree.
std::vector<std::pair<std::size_t, std::uint32_t>> blocks_of(ByteView bytes) {
    std::vector<std::pair<std::size_t, std::uint32_t>> blocks;
    for (std::size_t at = 0; at < bytes.size();) {
        const std::uint32_t length = word(bytes, at + 4);
        EXPECT_EQ(length % 4, 0u);
        EXPECT_LE(at + length, bytes.size());
        EXPECT_EQ(word(bytes, at + length - 4), length);
        blocks.emplace_back(at, length);
        at += length;
    }
    return blocks;
}

TEST(Pcapng, the_header_is_a_section_and_an_interface) {
    const auto bytes = pcapng_header("pf0sf0", 9000);
    const auto blocks = blocks_of(bytes);
    ASSERT_EQ(blocks.size(), 2u);
    EXPECT_EQ(word(bytes, 0), 0x0a0d'0d0au);
    EXPECT_EQ(word(bytes, 8), 0x1a2b'3c4du);
    const std::size_t interface = blocks[1].first;
    EXPECT_EQ(word(bytes, interface), 1u);
    EXPECT_EQ(load_bytes<std::uint16_t>(bytes.data() + interface + 8), 1) << "Ethernet";
    EXPECT_EQ(word(bytes, interface + 12), 9000u);
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    EXPECT_NE(text.find("pf0sf0"), std::string::npos);
}

TEST(Pcapng, a_packet_block_holds_time_bytes_and_direction) {
    for (const std::size_t length : {60u, 61u, 62u, 63u}) {
        std::vector<std::byte> out;
        const std::vector<std::byte> frame(length, std::byte{0xab});
        append_pcapng_packet(out, 0x1'0000'0002, frame, true);
        append_pcapng_packet(out, 3, frame, false);
        const auto blocks = blocks_of(out);
        ASSERT_EQ(blocks.size(), 2u);
        EXPECT_EQ(word(out, 0), 6u);
        EXPECT_EQ(word(out, 12), 1u);
        EXPECT_EQ(word(out, 16), 2u);
        EXPECT_EQ(word(out, 20), length);
        EXPECT_EQ(word(out, 24), length);
        const std::size_t flags = 28 + round_up(length, 4) + 4;
        EXPECT_EQ(word(out, flags), 1u);
        EXPECT_EQ(word(out, blocks[1].first + flags), 2u);
    }
}

}  // namespace
}  // namespace rdmalab::wire
