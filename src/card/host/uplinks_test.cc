// What can be tested of uplinks without rights: what topologies say about them, and the kernel's
// tables. Frames are for tests/lab.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "card/host/interface_facts.h"
#include "card/host/netlink.h"
#include "card/host/packet_socket.h"
#include "card/host/topology.h"

namespace rdmalab::card::host {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> errors_of(const std::string& text) {
    std::vector<std::string> lines;
    for (const TopologyError& error : parse_topology(text, "t.toml").errors)
        lines.push_back(error.to_string());
    return lines;
}

// Lines 1 to 6.
const std::string kPort = R"([[port]]
name = "p0"
pf = "mlx5_0"
[[function]]
device = "mlx5_0"
kind = "pf"
)";

TEST(UplinkTopology, joins_a_port_to_an_interface) {
    const Topology topology =
        parse_topology(kPort + "[[uplink]]\nport = 'p0'\nnetdev = 'eth0'\nbursts = false\n", "t");
    ASSERT_THAT(topology.errors, IsEmpty());
    EXPECT_EQ(topology.config.ports[0].uplink, "eth0");
    EXPECT_FALSE(topology.config.ports[0].may_burst);
}

TEST(UplinkTopology, of_the_command_line_has_a_pf_per_interface) {
    const Topology topology = uplink_topology({"eth0", "eth1"});
    ASSERT_THAT(topology.errors, IsEmpty());
    ASSERT_EQ(topology.config.functions.size(), 2u);
    EXPECT_EQ(topology.config.functions[1].device, "mlx5_1");
    EXPECT_EQ(topology.config.ports[1].uplink, "eth1");
    EXPECT_FALSE(uplink_topology({"eth0", "eth0"}).ok());
    EXPECT_FALSE(uplink_topology({"'; x = 1"}).ok());
    EXPECT_FALSE(uplink_topology({"lo"}).ok());
}

TEST(UplinkTopology, says_what_is_wrong) {
    EXPECT_THAT(errors_of(kPort + "[[uplink]]\nport = 'p7'\nnetdev = 'eth0'\n"),
                ElementsAre("t.toml:8: uplink[0].port: expected the name of a port (p0), found "
                            "\"p7\""));
    EXPECT_THAT(errors_of(kPort + "[[uplink]]\nport = 'p0'\n"),
                ElementsAre(HasSubstr("uplink[0].netdev: expected a name of up to 15 letters")));
    EXPECT_THAT(
        errors_of(kPort + "[[uplink]]\nport = 'p0'\nnetdev = 'eth0'\n[[function]]\ndevice = 'x'\n"
                          "kind = 'sf'\npf = 'mlx5_0'\nrepresentor = 'r'\n"),
        ElementsAre(HasSubstr("function[1].pf: expected a PF without an uplink")));
    EXPECT_THAT(errors_of("[[port]]\nname = 'p0'\npf = 'a'\n[[function]]\ndevice = 'a'\nkind = "
                          "'pf'\nmac = '02:00:00:00:00:77'\n[[uplink]]\nport = 'p0'\nnetdev = "
                          "'eth0'\n"),
                ElementsAre(HasSubstr("expected nothing: the PF has the MAC address of its uplink "
                                      "eth0, found \"02:00:00:00:00:77\"")));
    EXPECT_THAT(
        errors_of(kPort + "[[port]]\nname = 'p1'\npf = 'mlx5_0'\n[[uplink]]\nport = 'p0'\nnetdev = "
                          "'eth0'\n"),
        ElementsAre(HasSubstr("expected the only port of its PF")));
    EXPECT_THAT(errors_of(kPort + "[[port]]\nname = 'p1'\npf = 'b'\n[[function]]\ndevice = 'b'\n"
                                  "kind = 'pf'\n[[cable]]\nname = 'c'\na = 'p0'\nb = 'p1'\n"
                                  "[[uplink]]\nport = 'p0'\nnetdev = 'eth0'\n"),
                ElementsAre(HasSubstr("expected a port that is used once, found \"p0\"")));
}

TEST(Interfaces, leave_room_for_the_longest_headers) {
    EXPECT_EQ(roce_mtu_for(1'500), 1'024u);
    EXPECT_EQ(roce_mtu_for(4'200), 4'096u);
    EXPECT_EQ(roce_mtu_for(9'000), 4'096u);
    EXPECT_EQ(roce_mtu_for(4'191), 2'048u);
    EXPECT_EQ(roce_mtu_for(352), 256u);
    EXPECT_EQ(roce_mtu_for(351), 0u);
}

TEST(Interfaces, that_are_not_there_are_answered_with_those_that_are) {
    const auto facts = find_interface("nosuch0");
    ASSERT_FALSE(facts.ok());
    EXPECT_EQ(facts.error().code, ENODEV);
    EXPECT_THAT(facts.error().text, HasSubstr("found no \"nosuch0\" (there are: "));
}

TEST(Interfaces, loopback_is_no_ethernet) {
    const auto facts = find_interface("lo");
    ASSERT_TRUE(facts.ok()) << facts.error().text;
    EXPECT_GT(facts->index, 0);
    EXPECT_FALSE(facts->is_ethernet);
}

TEST(KernelTables, know_the_way_to_this_host) {
    auto netlink = Netlink::open();
    ASSERT_TRUE(netlink.ok()) << netlink.error().text;
    const auto facts = find_interface("lo");
    ASSERT_TRUE(facts.ok());
    if (!facts->is_up) GTEST_SKIP() << "lo is down";
    const auto route = netlink->find_route(*Gid::parse("127.0.0.1"), 0);
    ASSERT_TRUE(route);
    EXPECT_TRUE(route->is_local);
    EXPECT_EQ(route->interface, facts->index);
    // Again and again: answers are told from each other.
    for (int i = 0; i < 100; ++i) {
        EXPECT_TRUE(netlink->find_route(*Gid::parse("127.0.0.2"), 0));
        EXPECT_EQ(netlink->find_neighbour(facts->index, *Gid::parse("10.255.1.9")).state,
                  NeighbourState::kUnknown);
    }
}

TEST(PacketSockets, need_a_right_and_say_which) {
    const auto facts = find_interface("lo");
    ASSERT_TRUE(facts.ok());
    const auto socket = PacketSocket::open("lo", facts->index);
    if (socket.ok()) GTEST_SKIP() << "this process has the right";
    if (socket.error().code != EPERM) GTEST_SKIP() << socket.error().text;
    EXPECT_THAT(socket.error().text, HasSubstr("an uplink needs CAP_NET_RAW"));
}

}  // namespace
}  // namespace rdmalab::card::host
