#include "steer/cm_table.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "steer/testing.h"

namespace rdmalab::steer {
namespace {

using testing::Addresses;
using testing::Bytes;
using testing::kBlueIp;
using testing::kGreenIp;
using testing::kSenderIp;
using Kind = CmChange::Kind;

constexpr Addresses kToBlue{kSenderIp, kBlueIp}, kFromBlue{kBlueIp, kSenderIp};
constexpr Addresses kToGreen{kSenderIp, kGreenIp}, kFromGreen{kGreenIp, kSenderIp};
constexpr Qpn kSender{0x12}, kReceiver{0x34};

class CmTableTest : public ::testing::Test {
protected:
    CmChange see(const Addresses& addresses, const wire::CmMessage& message) {
        const auto packet = parse_cm_packet(testing::cm_frame(addresses, message));
        EXPECT_TRUE(packet);
        return packet ? table.handle(*packet) : CmChange{};
    }
    CmTable table{{kBlueIp, kGreenIp}};
};

TEST_F(CmTableTest, a_request_groups_its_sender_by_the_receivers_address) {
    const CmChange change = see(kToGreen, testing::request(7, kSender));
    EXPECT_EQ(change.kind, Kind::kGrouped);
    EXPECT_EQ(change.connection.sender, kSender);
    EXPECT_EQ(change.connection.receiver_ip, kGreenIp);
    EXPECT_EQ(change.connection.path, 1u);
    EXPECT_EQ(table.path_of(kSender), 1u);
    EXPECT_FALSE(table.path_of(kReceiver));
}

TEST_F(CmTableTest, a_reply_completes_the_pair) {
    see(kToBlue, testing::request(7, kSender));
    const CmChange change = see(kFromBlue, testing::reply(7, 99, kReceiver));
    EXPECT_EQ(change.kind, Kind::kMapped);
    EXPECT_EQ(change.connection.receiver, kReceiver);
    EXPECT_EQ(change.connection.path, 0u);
}

TEST_F(CmTableTest, repetitions_say_nothing_new) {
    see(kToBlue, testing::request(7, kSender));
    EXPECT_EQ(see(kToBlue, testing::request(7, kSender)).kind, Kind::kNothing);
    see(kFromBlue, testing::reply(7, 99, kReceiver));
    EXPECT_EQ(see(kFromBlue, testing::reply(7, 99, kReceiver)).kind, Kind::kNothing);
    EXPECT_EQ(table.connections().size(), 1u);
}

TEST_F(CmTableTest, a_reply_of_another_connection_or_host_pairs_nothing) {
    see(kToBlue, testing::request(7, kSender));
    EXPECT_EQ(see(kFromBlue, testing::reply(8, 99, kReceiver)).kind, Kind::kNothing);
    EXPECT_EQ(see(kFromGreen, testing::reply(7, 99, kReceiver)).kind, Kind::kNothing);
}

TEST_F(CmTableTest, a_request_to_an_address_that_is_no_path_is_not_mapped) {
    EXPECT_EQ(see({kSenderIp, 0x0a0000ff}, testing::request(7, kSender)).kind, Kind::kNothing);
    EXPECT_FALSE(table.path_of(kSender));
}

TEST_F(CmTableTest, a_disconnection_from_either_side_ends_the_mapping) {
    for (const bool by_sender : {true, false}) {
        see(kToBlue, testing::request(7, kSender));
        see(kFromBlue, testing::reply(7, 99, kReceiver));
        wire::DreqMessage end;
        end.local_comm_id = by_sender ? 7 : 99;
        end.remote_comm_id = by_sender ? 99 : 7;
        const CmChange change = see(by_sender ? kToBlue : kFromBlue, end);
        EXPECT_EQ(change.kind, Kind::kEnded);
        EXPECT_EQ(change.connection.sender, kSender);
        EXPECT_FALSE(table.path_of(kSender));
    }
}

TEST_F(CmTableTest, a_qpn_that_is_used_again_belongs_to_its_new_connection) {
    see(kToBlue, testing::request(7, kSender));
    EXPECT_EQ(see(kToGreen, testing::request(8, kSender)).kind, Kind::kGrouped);
    EXPECT_EQ(table.path_of(kSender), 1u);
    EXPECT_EQ(table.connections().size(), 1u);
}

TEST_F(CmTableTest, the_oldest_connection_makes_room) {
    for (std::uint32_t i = 0; i <= kCmConnectionMax; ++i) {
        see(kToBlue, testing::request(i, Qpn{i + 2}));
    }
    EXPECT_EQ(table.connections().size(), kCmConnectionMax);
    EXPECT_FALSE(table.path_of(Qpn{2}));
    EXPECT_EQ(table.path_of(Qpn{kCmConnectionMax + 2}), 0u);
}

TEST_F(CmTableTest, feedback_groups_a_sender_once) {
    EXPECT_EQ(table.learn_from_feedback(kSender, kSenderIp, kGreenIp).kind, Kind::kGrouped);
    EXPECT_EQ(table.learn_from_feedback(kSender, kSenderIp, kGreenIp).kind, Kind::kNothing);
    EXPECT_EQ(table.learn_from_feedback(wire::kGsiQpn, kSenderIp, kGreenIp).kind, Kind::kNothing);
    EXPECT_EQ(table.learn_from_feedback(kReceiver, kSenderIp, 0x0a0000ff).kind, Kind::kNothing);
    EXPECT_EQ(table.path_of(kSender), 1u);
    // A connection of its own takes the place of what was learnt.
    EXPECT_EQ(see(kToBlue, testing::request(7, kSender)).kind, Kind::kGrouped);
    EXPECT_EQ(table.connections().size(), 1u);
    EXPECT_EQ(table.path_of(kSender), 0u);
}

TEST(CmPacket, only_management_packets_to_qp_1_are_taken) {
    EXPECT_FALSE(parse_cm_packet(testing::write_frame({}, kReceiver, 256)));
    EXPECT_FALSE(parse_cm_packet(testing::write_frame({}, wire::kGsiQpn, 256)));
    EXPECT_FALSE(parse_cm_packet(testing::cnp_frame({}, kReceiver)));
    EXPECT_FALSE(parse_cm_packet(testing::arp_frame()));
    EXPECT_FALSE(parse_cm_packet({}));
}

TEST(CmPacket, no_cut_or_damaged_frame_is_read_past_its_end) {
    const Bytes whole = testing::cm_frame(kToBlue, testing::request(7, kSender));
    for (std::size_t length = 0; length < whole.size(); ++length) {
        EXPECT_FALSE(parse_cm_packet(ByteView(whole).first(length)));
    }
    Prng prng(3);
    for (int i = 0; i < 20'000; ++i) {
        Bytes damaged = whole;
        for (std::uint64_t n = 1 + prng.below(4); n > 0; --n) {
            damaged[prng.below(damaged.size())] = static_cast<std::byte>(prng.next());
        }
        CmTable table({kBlueIp, kGreenIp});
        if (const auto packet = parse_cm_packet(damaged)) table.handle(*packet);
    }
}

}  // namespace
}  // namespace rdmalab::steer
