#include "base/address.h"

#include <gtest/gtest.h>

namespace rdmalab {
namespace {

TEST(MacAddress, round_trips_and_rejects) {
    const auto mac = MacAddress::parse("02:00:0a:00:00:fF");
    ASSERT_TRUE(mac);
    EXPECT_EQ(mac->to_string(), "02:00:0a:00:00:ff");
    for (const char* bad : {"", "02:00:0a:00:00", "02:00:0a:00:00:0g", "02-00-0a-00-00-01"})
        EXPECT_FALSE(MacAddress::parse(bad)) << bad;
}

TEST(Gid, ipv4_is_mapped) {
    const auto gid = Gid::parse("10.0.0.11");
    ASSERT_TRUE(gid);
    EXPECT_TRUE(gid->is_ipv4());
    EXPECT_EQ(gid->ipv4(), 0x0a00'000bu);
    EXPECT_EQ(gid->to_string(), "10.0.0.11");
    EXPECT_EQ(Gid::parse("::ffff:10.0.0.11"), gid);
}

TEST(Gid, link_local_holds_the_eui64) {
    const Gid gid = Gid::link_local(*MacAddress::parse("02:00:00:00:00:01"));
    EXPECT_EQ(gid.to_string(), "fe80::ff:fe00:1");
    EXPECT_TRUE(gid.is_link_local());
}

TEST(Gid, multicast_macs) {
    EXPECT_EQ(Gid::parse("239.129.2.3")->multicast_mac().to_string(), "01:00:5e:01:02:03");
    EXPECT_EQ(Gid::parse("ff12::1:2345:6789")->multicast_mac().to_string(), "33:33:23:45:67:89");
    EXPECT_TRUE(Gid::parse("224.0.0.1")->is_multicast());
    EXPECT_FALSE(Gid::parse("10.0.0.1")->is_multicast());
}

}  // namespace
}  // namespace rdmalab
