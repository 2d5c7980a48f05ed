#include "wire/opcode.h"

#include <gtest/gtest.h>

#include <set>

#include "wire/testing.h"

namespace rdmalab::wire {
namespace {

TEST(Opcode, the_table_holds_the_opcodes_of_the_five_services_and_no_reserved_one) {
    std::set<unsigned> expected{0x64, 0x65, 0x81};
    for (const unsigned service : {0x00u, 0xa0u})
        for (unsigned operation = 0; operation <= 0x17; ++operation)
            if (operation != 0x15) expected.insert(service + operation);
    expected.insert({0x1d, 0xbd});  // atomic writes
    for (unsigned operation = 0; operation <= 0x0b; ++operation) expected.insert(0x20 + operation);
    std::set<unsigned> found;
    for (const OpcodeInfo* info : testing::all_opcodes()) found.insert(info->opcode);
    EXPECT_EQ(found, expected);
}

TEST(Opcode, the_upper_bits_are_the_service) {
    for (const OpcodeInfo* info : testing::all_opcodes())
        EXPECT_EQ(static_cast<unsigned>(info->service), info->opcode >> 5) << info->name;
}

TEST(Opcode, known_rows) {
    const OpcodeInfo* const write = find_opcode(0x0b);
    EXPECT_EQ(write->name, "RC RDMA WRITE Only with Immediate");
    EXPECT_EQ(write->kind, PacketKind::kWrite);
    EXPECT_EQ(write->position, Position::kOnly);
    EXPECT_EQ(write->extensions, kHasReth | kHasImmDt);
    EXPECT_EQ(write->extension_length, 20);
    EXPECT_TRUE(write->carries_payload);
    EXPECT_EQ(find_opcode(0x12)->extension_length, 12) << "AETH and AtomicAckETH";
    EXPECT_EQ(find_opcode(0x0e)->extension_length, 0) << "a middle response has no AETH";
    EXPECT_EQ(find_opcode(0x65)->extension_length, 12) << "DETH and ImmDt";
    EXPECT_EQ(find_opcode(0xb3)->extension_length, 32) << "XRCETH and AtomicETH";
    EXPECT_EQ(find_opcode(0xb1)->extensions, kHasAeth) << "responses have no XRCETH";
    EXPECT_FALSE(find_opcode(0x11)->carries_payload);
}

TEST(Opcode, the_parts_lead_back_to_the_value) {
    for (const OpcodeInfo* info : testing::all_opcodes())
        EXPECT_EQ(
            opcode_value(info->service, info->kind, info->position,
                         (info->extensions & kHasImmDt) != 0, (info->extensions & kHasIeth) != 0),
            info->opcode)
            << info->name;
}

TEST(Opcode, the_longest_headers_fit_a_frame) {
    constexpr std::size_t kLower = 14 + 2 * 4 + 40 + 8 + 12;
    for (const OpcodeInfo* info : testing::all_opcodes())
        EXPECT_LE(kLower + info->extension_length, Frame::kHeaderMax) << info->name;
}

}  // namespace
}  // namespace rdmalab::wire
