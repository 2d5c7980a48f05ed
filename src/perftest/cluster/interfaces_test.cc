#include "perftest/cluster/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rdmalab::perftest {
namespace {

using ::testing::HasSubstr;

const std::vector<InterfaceAddress> kHave = {
    {"lo", "127.0.0.1", 8}, {"docker0", "172.17.0.1", 16}, {"eth0", "10.88.0.3", 24}};

TEST(Interfaces, networks_contain_addresses) {
    EXPECT_TRUE(contains("10.0.0.0/24", "10.0.0.7"));
    EXPECT_FALSE(contains("10.0.0.0/24", "10.0.1.7"));
    EXPECT_TRUE(contains("0.0.0.0/0", "10.0.1.7"));
    EXPECT_TRUE(contains("10.0.0.7", "10.0.0.7"));
    for (const char* wrong : {"10.0.0.0/33", "10.0.0/24", "10.0.0.0/x", "eth0", ""}) {
        EXPECT_FALSE(contains(wrong, "10.0.0.7")) << wrong;
    }
}

TEST(Interfaces, a_list_that_matches_nothing_is_told_with_what_there_is) {
    EXPECT_EQ(missing_interface("10.88.0.0/24", kHave), "");
    EXPECT_EQ(missing_interface("eth0", kHave), "");
    EXPECT_EQ(missing_interface("ib0,10.88.0.0/16", kHave), "");
    EXPECT_THAT(missing_interface("10.7.8.0/24", kHave),
                HasSubstr("no interface in 10.7.8.0/24; there are: lo 127.0.0.1/8, docker0"));
}

TEST(Interfaces, the_network_of_the_hosts_is_found_beside_docker0) {
    EXPECT_EQ(common_network({"10.88.0.1", "10.88.0.4"}, kHave), "10.88.0.0/24");
    EXPECT_FALSE(common_network({"10.88.0.1", "10.99.0.4"}, kHave));
    EXPECT_FALSE(common_network({"127.0.0.1"}, kHave));
    EXPECT_FALSE(common_network({}, kHave));
}

}  // namespace
}  // namespace rdmalab::perftest
