#include "card/address_book.h"

#include <gtest/gtest.h>

#include "card/testing.h"

namespace rdmalab::card {
namespace {

class AddressBookTest : public ::testing::Test {
protected:
    AddressBookTest() {
        CardConfig config = testing::loopback_config();
        config.functions[3].ips.push_back(*Gid::parse("fd00::2"));
        book = AddressBook(config, nobody);
    }
    int resolve(const char* destination, std::uint8_t gid_index, bool is_global = true) {
        av = {};
        av.destination = *Gid::parse(destination);
        av.gid_index = gid_index;
        av.is_global = is_global;
        return book.resolve(3, av);
    }
    NeighbourPort nobody;
    AddressBook book{CardConfig{}, nobody};
    transport::AddressVector av;
};

TEST_F(AddressBookTest, the_gid_table_starts_with_the_link_local_gid) {
    const auto& gids = book.gids(3);
    ASSERT_EQ(gids.size(), 3u);
    EXPECT_EQ(gids[0].to_string(), "fe80::ff:fe00:13");
    EXPECT_EQ(gids[1].to_string(), "10.0.0.2");
    EXPECT_EQ(gids[2].to_string(), "fd00::2");
}

TEST_F(AddressBookTest, a_gid_resolves_to_the_mac_of_its_owner) {
    EXPECT_EQ(resolve("10.0.0.1", 1), 0);
    EXPECT_EQ(av.destination_mac.to_string(), "02:00:00:00:00:12");
    EXPECT_EQ(resolve("fe80::ff:fe00:14", 0), 0);
    EXPECT_EQ(av.destination_mac.to_string(), "02:00:00:00:00:14");
    EXPECT_EQ(resolve("fd00::2", 2), 0);  // its own address
    EXPECT_EQ(av.destination_mac.to_string(), "02:00:00:00:00:13");
}

TEST_F(AddressBookTest, a_gid_that_nobody_has_is_unreachable) {
    EXPECT_EQ(resolve("10.0.0.99", 1), EHOSTUNREACH);
}

TEST_F(AddressBookTest, an_address_vector_must_make_sense) {
    EXPECT_EQ(resolve("10.0.0.1", 3), EINVAL);         // no such GID index
    EXPECT_EQ(resolve("10.0.0.1", 1, false), EINVAL);  // RoCE has no local addresses
    EXPECT_EQ(resolve("10.0.0.1", 0), EINVAL);         // IPv6 to IPv4
    EXPECT_EQ(resolve("fd00::2", 1), EINVAL);          // IPv4 to IPv6
}

TEST_F(AddressBookTest, a_multicast_group_has_its_own_mac) {
    EXPECT_EQ(resolve("ff0e::1:2", 0), 0);
    EXPECT_EQ(av.destination_mac.to_string(), "33:33:00:01:00:02");
    EXPECT_EQ(resolve("239.1.2.3", 1), 0);
    EXPECT_EQ(av.destination_mac.to_string(), "01:00:5e:01:02:03");
    EXPECT_EQ(resolve("239.1.2.3", 0), EINVAL);
}

}  // namespace
}  // namespace rdmalab::card
