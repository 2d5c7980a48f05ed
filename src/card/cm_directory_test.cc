#include "card/cm_directory.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "card/cm_testing.h"

namespace rdmalab::card {
namespace {

constexpr DeviceSet kAll = ~DeviceSet{0};
constexpr DeviceSet only(std::uint32_t device) { return DeviceSet{1} << device; }

CmEndpoint endpoint(const std::string& text) {
    return *CmEndpoint::from_abi(testing::cm_address(text));
}

class CmDirectoryTest : public ::testing::Test {
protected:
    CmDirectoryTest() : directory(config(), neighbours) {}
    static CardConfig config() {
        CardConfig config = testing::loopback_config();
        config.functions[3].ips.push_back(*Gid::parse("fd00::2"));
        return config;
    }
    std::optional<CmDirectory::Place> local(DeviceSet visible, const std::string& text) {
        const auto place = directory.find_local(visible, endpoint(text));
        return place ? std::optional(*place) : std::nullopt;
    }
    NeighbourPort neighbours;
    CmDirectory directory;
};

TEST_F(CmDirectoryTest, a_local_address_picks_its_device_and_gid) {
    EXPECT_EQ(local(kAll, "10.0.0.2")->device, 3u);
    EXPECT_EQ(local(kAll, "10.0.0.2")->gid_index, 1);
    EXPECT_EQ(local(kAll, "fd00::2")->gid_index, 2);
    const Gid link_local = Gid::link_local(config().functions[4].mac);
    EXPECT_EQ(local(kAll, link_local.to_string())->device, 4u);
    EXPECT_EQ(local(kAll, link_local.to_string())->gid_index, 0);
}

TEST_F(CmDirectoryTest, loopback_picks_the_first_visible_device_with_an_address) {
    EXPECT_EQ(local(kAll, "127.0.0.1")->gid, *Gid::parse("10.0.0.1"));
    EXPECT_EQ(local(only(4) | only(3), "127.8.8.8")->device, 3u);
    EXPECT_EQ(local(kAll, "::1")->gid, *Gid::parse("fd00::2")) << "the only global IPv6 address";
    EXPECT_EQ(local(only(2) | only(0), "::1")->device, 2u) << "not the PF without an address";
    EXPECT_EQ(local(only(0), "::1")->device, 0u) << "link-local will do";
    EXPECT_EQ(local(only(0), "127.0.0.1"), std::nullopt);
}

TEST_F(CmDirectoryTest, a_foreign_local_address_names_owner_and_candidates) {
    const Error hidden = directory.find_local(only(2), endpoint("10.0.0.2")).error();
    EXPECT_EQ(hidden.code, EADDRNOTAVAIL);
    EXPECT_EQ(hidden.text,
              "10.0.0.2 belongs to mlx5_3, which this process does not see; it sees mlx5_2 "
              "(10.0.0.1)");
    const Error unknown = directory.find_local(only(2) | only(3), endpoint("10.0.0.9")).error();
    EXPECT_EQ(unknown.text,
              "10.0.0.9 belongs to no device of card default; it sees mlx5_2 (10.0.0.1), mlx5_3 "
              "(10.0.0.2, fd00::2)");
}

TEST_F(CmDirectoryTest, an_own_address_is_reached_from_itself) {
    const auto way = directory.find_way(kAll, std::nullopt, endpoint("10.0.0.2"));
    ASSERT_TRUE(way.ok());
    EXPECT_EQ(way->source.device, 3u);
    EXPECT_EQ(way->source.gid, way->peer);
    EXPECT_EQ(way->peer_mac, config().functions[3].mac);
}

TEST_F(CmDirectoryTest, an_address_of_another_namespace_is_reached_from_the_first_device) {
    const auto way = directory.find_way(only(3) | only(4), std::nullopt, endpoint("10.0.0.1"));
    ASSERT_TRUE(way.ok());
    EXPECT_EQ(way->source.device, 3u);
    EXPECT_EQ(way->source.gid, *Gid::parse("10.0.0.2"));
    EXPECT_EQ(way->peer_mac, config().functions[2].mac);
}

TEST_F(CmDirectoryTest, a_loopback_destination_is_sought_among_all_devices_of_the_host) {
    const auto way = directory.find_way(only(3), std::nullopt, endpoint("127.0.0.1"), kAll);
    ASSERT_TRUE(way.ok());
    EXPECT_EQ(way->source.device, 3u);
    EXPECT_EQ(way->peer_mac, config().functions[2].mac);
}

TEST_F(CmDirectoryTest, a_bound_source_wins) {
    const auto source = local(kAll, "10.0.0.11");
    const auto way = directory.find_way(kAll, source, endpoint("10.0.0.1"));
    ASSERT_TRUE(way.ok());
    EXPECT_EQ(way->source.device, 4u);
    EXPECT_EQ(way->peer, *Gid::parse("10.0.0.1"));
}

TEST_F(CmDirectoryTest, both_sides_agree_on_loopback) {
    for (const char* text : {"127.0.0.1", "::1", "0.0.0.0"}) {
        const auto way = directory.find_way(kAll, std::nullopt, endpoint(text));
        ASSERT_TRUE(way.ok()) << text;
        const bool is_ipv4 = endpoint(text).family == kFamilyIpv4;
        const auto side = local(kAll, is_ipv4 ? "127.0.0.1" : "::1");
        EXPECT_EQ(way->peer, side->gid) << text;
        EXPECT_EQ(way->source.device, side->device) << text;
    }
}

TEST_F(CmDirectoryTest, link_local_is_reached_from_link_local) {
    const Gid peer = Gid::link_local(config().functions[4].mac);
    const auto way = directory.find_way(only(3), std::nullopt, endpoint(peer.to_string()));
    ASSERT_TRUE(way.ok());
    EXPECT_EQ(way->source.gid, Gid::link_local(config().functions[3].mac));
}

TEST_F(CmDirectoryTest, multicast_goes_out_of_the_first_device_of_the_family) {
    const auto way = directory.find_way(kAll, std::nullopt, endpoint("239.0.0.1"));
    ASSERT_TRUE(way.ok());
    EXPECT_EQ(way->source.device, 2u);
    EXPECT_EQ(way->peer_mac, MacAddress::parse("01:00:5e:00:00:01"));
}

TEST_F(CmDirectoryTest, a_way_that_cannot_be_says_why) {
    const Error nobody = directory.find_way(only(2), std::nullopt, endpoint("10.9.9.9")).error();
    EXPECT_EQ(nobody.code, EHOSTUNREACH);
    EXPECT_EQ(nobody.text,
              "10.9.9.9 belongs to no device of card default; this process sees mlx5_2 "
              "(10.0.0.1)");
    const Error mixed =
        directory.find_way(kAll, local(kAll, "10.0.0.1"), endpoint("fd00::2")).error();
    EXPECT_EQ(mixed.code, EINVAL);
    EXPECT_NE(mixed.text.find("mlx5_2"), std::string::npos);
    EXPECT_EQ(directory.find_way(only(0), std::nullopt, endpoint("10.0.0.1")).error().code, ENODEV);
}

TEST(CmEndpoint, other_families_are_refused) {
    abi::CmAddress address = testing::cm_address("10.0.0.1");
    EXPECT_TRUE(CmEndpoint::from_abi(address).has_value());
    address.family = 27;  // AF_IB
    EXPECT_FALSE(CmEndpoint::from_abi(address).has_value());
    address = testing::cm_address("fd00::1");
    address.family = kFamilyIpv4;
    EXPECT_FALSE(CmEndpoint::from_abi(address).has_value());
}

}  // namespace
}  // namespace rdmalab::card
