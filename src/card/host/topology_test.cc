#include "card/host/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "card/host/testing.h"

namespace rdmalab::card::host {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> errors_of(const std::string& text) {
    std::vector<std::string> lines;
    for (const TopologyError& error : parse_topology(text, "t.toml").errors) {
        lines.push_back(error.to_string());
    }
    return lines;
}

// Lines 1 to 7: two PFs with a port each.
const std::string kPorts =
    R"(function = [{device = "mlx5_0", kind = "pf"}, {device = "mlx5_1", kind = "pf"}]
[[port]]
name = "p0"
pf = "mlx5_0"
[[port]]
name = "p1"
pf = "mlx5_1"
)";

// Lines 1 to 6: one PF, and further functions after it.
const std::string kPf = R"([[function]]
device = "mlx5_0"
kind = "pf"
pci = "0000:03:00.0"
ips = ["10.0.0.1"]
mac = "02:00:00:00:00:09"
)";

TEST(Topology, loopback_is_the_default_table) {
    const Topology topology = load_topology("loopback");
    ASSERT_THAT(topology.errors, IsEmpty());
    const CardConfig& config = topology.config;
    EXPECT_EQ(config.seed, 1u);
    EXPECT_EQ(config.port_mtu, 4096u);
    ASSERT_EQ(config.functions.size(), 5u);
    struct Row {
        FunctionKind kind;
        const char *device, *pf, *representor, *netns, *ip, *pci, *netdev;
    };
    const Row rows[] = {
        {FunctionKind::kPf, "mlx5_0", "mlx5_0", "", "", "", "0000:03:00.0", "enp3s0f0np0"},
        {FunctionKind::kPf, "mlx5_1", "mlx5_1", "", "", "", "0000:03:00.1", "enp3s0f1np1"},
        {FunctionKind::kSf, "mlx5_2", "mlx5_0", "pf0sf0", "ns0", "10.0.0.1", "0000:03:00.0",
         "enp3s0f0s0"},
        {FunctionKind::kSf, "mlx5_3", "mlx5_1", "pf1sf0", "ns1", "10.0.0.2", "0000:03:00.1",
         "enp3s0f1s0"},
        {FunctionKind::kSf, "mlx5_4", "mlx5_0", "pf0sf4", "ns0_1", "10.0.0.11", "0000:03:00.0",
         "enp3s0f0s4"}};
    for (std::size_t i = 0; i < 5; ++i) {
        const FunctionConfig& function = config.functions[i];
        EXPECT_EQ(function.kind, rows[i].kind);
        EXPECT_EQ(function.device, rows[i].device);
        EXPECT_EQ(function.pf_device, rows[i].pf);
        EXPECT_EQ(function.representor, rows[i].representor);
        EXPECT_EQ(function.netns, rows[i].netns);
        EXPECT_EQ(function.ips.empty() ? "" : function.ips[0].to_string(), rows[i].ip);
        EXPECT_EQ(function.pci, rows[i].pci);
        EXPECT_EQ(function.netdev, rows[i].netdev);
    }
    ASSERT_EQ(config.ports.size(), 2u);
    EXPECT_EQ(config.ports[0].name, "p0");
    EXPECT_EQ(config.ports[0].pf_device, "mlx5_0");
    EXPECT_EQ(config.ports[1].name, "p1");
    EXPECT_EQ(config.ports[1].pf_device, "mlx5_1");
    ASSERT_EQ(config.cables.size(), 1u);
    EXPECT_EQ(config.cables[0].name, "cable0");
    EXPECT_EQ(config.cables[0].port_a, "p0");
    EXPECT_EQ(config.cables[0].port_b, "p1");
    EXPECT_FALSE(config.cables[0].a_to_b.any());
    EXPECT_FALSE(config.cables[0].b_to_a.any());
}

TEST(Topology, default_macs_count_up_in_device_order) {
    const Topology topology = load_topology("loopback");
    EXPECT_EQ(topology.config.functions[0].mac.to_string(), "02:00:00:00:00:01");
    EXPECT_EQ(topology.config.functions[4].mac.to_string(), "02:00:00:00:00:05");
}

TEST(Topology, default_macs_pass_over_those_that_the_file_gives) {
    const Topology topology = parse_topology(R"(
function = [{device = "a", kind = "pf"},
            {device = "b", kind = "pf", mac = "02:00:00:00:00:01"}]
)",
                                             "t.toml");
    ASSERT_THAT(topology.errors, IsEmpty());
    EXPECT_EQ(topology.config.functions[0].mac.to_string(), "02:00:00:00:00:02");
}

TEST(Topology, all_built_in_topologies_are_right) {
    EXPECT_THAT(builtin_topologies(), testing::IsSupersetOf({"loopback", "impaired"}));
    for (const std::string_view name : builtin_topologies()) {
        EXPECT_THAT(load_topology(std::string(name)).errors, IsEmpty()) << name;
    }
}

TEST(Topology, impairments_of_a_direction_win_over_those_of_both) {
    const Topology topology = load_topology("impaired");
    ASSERT_TRUE(topology.ok());
    EXPECT_EQ(topology.config.seed, 7u);
    const CableConfig& cable = topology.config.cables[0];
    EXPECT_EQ(cable.a_to_b.rate.bits_per_second, 10'000'000'000u);
    EXPECT_EQ(cable.b_to_a.rate.bits_per_second, 1'000'000'000u);
    EXPECT_EQ(cable.a_to_b.delay.ns, 10'000);
    EXPECT_EQ(cable.a_to_b.jitter.ns, 2'000);
    EXPECT_DOUBLE_EQ(cable.a_to_b.loss, 0.01);
    EXPECT_DOUBLE_EQ(cable.b_to_a.reorder, 0.005);
    EXPECT_DOUBLE_EQ(cable.b_to_a.duplicate, 0.005);
    EXPECT_DOUBLE_EQ(cable.b_to_a.corrupt, 0.001);
    EXPECT_DOUBLE_EQ(cable.a_to_b.ce, 0);
    EXPECT_DOUBLE_EQ(cable.b_to_a.ce, 0.01);
    EXPECT_TRUE(cable.a_to_b.verify_icrc);
}

TEST(Topology, impairments_may_stand_in_the_cable_itself) {
    const Topology topology = parse_topology(kPorts + R"([[cable]]
name = "c"
a = "p0"
b = "p1"
loss = "2%"
verify_icrc = false
)",
                                             "t.toml");
    ASSERT_THAT(topology.errors, IsEmpty());
    EXPECT_DOUBLE_EQ(topology.config.cables[0].b_to_a.loss, 0.02);
    EXPECT_FALSE(topology.config.cables[0].a_to_b.verify_icrc);
}

TEST(Topology, card_keys_are_read) {
    const Topology topology = parse_topology(
        "seed = 9\nmtu = 1024\ncnp_interval = \"50us\"\ncomputed_icrc = true\n" + kPf, "t.toml");
    ASSERT_THAT(topology.errors, IsEmpty());
    EXPECT_EQ(topology.config.seed, 9u);
    EXPECT_EQ(topology.config.port_mtu, 1024u);
    EXPECT_EQ(topology.config.congestion.cnp_interval, microseconds(50));
    EXPECT_TRUE(topology.config.force_computed_icrc);
}

TEST(Topology, vfs_get_pci_addresses_of_their_own) {
    const Topology topology = parse_topology(R"(
function = [{device = "a", kind = "pf"},
            {device = "b", kind = "vf", pf = "a", representor = "pf0vf0"},
            {device = "c", kind = "vf", pf = "a", representor = "pf0vf1"}]
)",
                                             "t.toml");
    ASSERT_THAT(topology.errors, IsEmpty());
    EXPECT_EQ(topology.config.functions[1].pci, "0000:03:08.0");
    EXPECT_EQ(topology.config.functions[2].pci, "0000:03:08.1");
}

TEST(TopologyErrors, not_toml) {
    EXPECT_THAT(errors_of("[[function]]\ndevice = \n"),
                ElementsAre(testing::StartsWith("t.toml:2: expected TOML, found ")));
}

TEST(TopologyErrors, an_empty_file) {
    EXPECT_THAT(errors_of(""),
                ElementsAre("t.toml: function: expected at least one [[function]], found none"));
}

TEST(TopologyErrors, an_unknown_key_names_the_nearest_known_one) {
    EXPECT_THAT(errors_of(kPf + "representer = \"x\"\n"),
                ElementsAre("t.toml:7: function[0].representer: expected a known key (did you mean "
                            "\"representor\"?), found unknown key \"representer\""));
}

TEST(TopologyErrors, an_unknown_key_that_is_near_to_none_gets_the_list) {
    EXPECT_THAT(errors_of("colour = 1\n" + kPf),
                ElementsAre("t.toml:1: colour: expected one of seed, mtu, cnp_interval, "
                            "computed_icrc, netdev_mtu, port, function, cable, uplink, found "
                            "unknown key \"colour\""));
}

TEST(TopologyErrors, wrong_types) {
    EXPECT_THAT(
        errors_of("seed = \"one\"\nmtu = 1500\ncomputed_icrc = 1\ncnp_interval = \"4\"\n" + kPf),
        ElementsAre("t.toml:1: seed: expected a whole number, 0 or more, found \"one\"",
                    "t.toml:2: mtu: expected 256, 512, 1024, 2048 or 4096 (bytes), found 1500",
                    "t.toml:3: computed_icrc: expected true or false, found 1",
                    "t.toml:4: cnp_interval: expected a duration such as \"10us\" or "
                    "\"1.5ms\", up to one hour, found \"4\""));
}

TEST(TopologyErrors, a_table_where_tables_are_expected) {
    EXPECT_THAT(errors_of("[function]\ndevice = \"a\"\nkind = \"pf\"\n"),
                ElementsAre("t.toml:1: function: expected tables [[function]], found a table"));
}

TEST(TopologyErrors, fields_that_are_missing) {
    EXPECT_THAT(
        errors_of("[[function]]\nkind = \"sf\"\n"),
        ElementsAre("t.toml:1: function[0].device: expected a name of up to 63 letters, digits, "
                    "'_', '-' and '.', found nothing",
                    "t.toml:1: function[0].pf: expected a name of up to 63 letters, digits, '_', "
                    "'-' and '.', found nothing",
                    "t.toml:1: function[0].representor: expected a name of up to 63 letters, "
                    "digits, '_', '-' and '.', found nothing"));
}

TEST(TopologyErrors, values_that_cannot_be) {
    EXPECT_THAT(errors_of(R"([[function]]
device = "mlx5/0"
kind = "nic"
pci = "3:0.0"
mac = "01:00:00:00:00:01"
ips = ["10.0.0.1", "10.0.0", "224.0.0.1", 5]
)"),
                ElementsAre("t.toml:2: function[0].device: expected a name of up to 63 letters, "
                            "digits, '_', '-' and '.', found \"mlx5/0\"",
                            "t.toml:3: function[0].kind: expected \"pf\", \"vf\" or \"sf\", found "
                            "\"nic\"",
                            "t.toml:4: function[0].pci: expected a PCI address such as "
                            "\"0000:03:00.0\", found \"3:0.0\"",
                            "t.toml:5: function[0].mac: expected a unicast MAC address such as "
                            "\"02:00:00:00:00:01\", found \"01:00:00:00:00:01\"",
                            "t.toml:6: function[0].ips: expected an array of addresses such as "
                            "[\"10.0.0.1\"], found 5",
                            "t.toml:6: function[0].ips: expected a unicast address such as "
                            "\"10.0.0.1\", \"fd00::1\" or \"10.0.0.1/24\", found \"10.0.0\"",
                            "t.toml:6: function[0].ips: expected a unicast address such as "
                            "\"10.0.0.1\", \"fd00::1\" or \"10.0.0.1/24\", found \"224.0.0.1\""));
}

TEST(Topology, interfaces_have_names_of_udev_unless_the_file_says_otherwise) {
    const Topology topology = parse_topology(kPf + R"([[function]]
device = "a"
kind = "vf"
pf = "mlx5_0"
representor = "pf0vf12"
[[function]]
device = "b"
kind = "sf"
pf = "mlx5_0"
representor = "storage"
[[function]]
device = "c"
kind = "sf"
pf = "mlx5_0"
representor = "pf0sf1234567"
[[function]]
device = "d"
kind = "sf"
pf = "mlx5_0"
representor = "pf0sf1"
netdev = "eth0"
)",
                                             "t.toml");
    ASSERT_THAT(topology.errors, IsEmpty());
    std::vector<std::string> names;
    for (const FunctionConfig& function : topology.config.functions) {
        names.push_back(function.netdev);
    }
    EXPECT_THAT(names, ElementsAre("enp3s0f0np0", "enp3s0f0v12", "rdma2", "rdma3", "eth0"));
}

TEST(Topology, addresses_may_name_their_network) {
    const Topology topology = parse_topology(R"(netdev_mtu = 1500
[[function]]
device = "a"
kind = "pf"
ips = ["10.0.0.1", "10.1.0.1/16", "fd00::1", "fd01::1/48"]
)",
                                             "t.toml");
    ASSERT_THAT(topology.errors, IsEmpty());
    EXPECT_EQ(topology.config.netdev_mtu, 1500u);
    EXPECT_THAT(topology.config.functions[0].prefix_lengths, ElementsAre(24, 16, 64, 48));
    EXPECT_EQ(topology.config.functions[0].ips[1].to_string(), "10.1.0.1");
}

TEST(TopologyErrors, prefixes_and_interfaces_that_cannot_be) {
    const std::string ip = "\"10.0.0.1\", \"fd00::1\" or \"10.0.0.1/24\"";
    EXPECT_THAT(
        errors_of(R"(netdev_mtu = 60
[[function]]
device = "a"
kind = "pf"
ips = ["10.0.0.1/33", "10.0.0.1/0", "fd00::1/129", "10.0.0.1/", "10.0.0.1/8x"]
netdev = "enp3s0f0s0-long-name"
[[function]]
device = "b"
kind = "pf"
netdev = "lo"
)"),
        ElementsAre(
            "t.toml:1: netdev_mtu: expected 68 to 65521 (bytes), found 60",
            "t.toml:5: function[0].ips: expected a unicast address such as " + ip +
                ", found \"10.0.0.1/33\"",
            "t.toml:5: function[0].ips: expected a unicast address such as " + ip +
                ", found \"10.0.0.1/0\"",
            "t.toml:5: function[0].ips: expected a unicast address such as " + ip +
                ", found \"fd00::1/129\"",
            "t.toml:5: function[0].ips: expected a unicast address such as " + ip +
                ", found \"10.0.0.1/\"",
            "t.toml:5: function[0].ips: expected a unicast address such as " + ip +
                ", found \"10.0.0.1/8x\"",
            "t.toml:6: function[0].netdev: expected a name of up to 15 letters, digits, '_', '-' "
            "and '.', other than \"lo\", found \"enp3s0f0s0-long-name\"",
            "t.toml:10: function[1].netdev: expected a name of up to 15 letters, digits, '_', '-' "
            "and '.', other than \"lo\", found \"lo\""));
}

TEST(TopologyErrors, an_interface_twice_in_one_namespace) {
    const auto text = [](const std::string& second) {
        return R"([[function]]
device = "a"
kind = "pf"
netns = "ns0"
netdev = "eth0"
[[function]]
device = "b"
kind = "pf"
netdev = "eth0"
netns = ")" + second +
               "\"\n";
    };
    EXPECT_THAT(errors_of(text("ns1")), IsEmpty());
    EXPECT_THAT(errors_of(text("ns0")),
                ElementsAre("t.toml:9: function[1].netdev: expected a name in namespace \"ns0\" "
                            "that is used once, found \"eth0\", which is also "
                            "function[0].netdev in line 5"));
}

TEST(TopologyErrors, a_device_twice) {
    EXPECT_THAT(
        errors_of(kPf + "[[function]]\ndevice = \"mlx5_0\"\nkind = \"pf\"\n"),
        ElementsAre("t.toml:8: function[1].device: expected a name that is used once, found "
                    "\"mlx5_0\", which is also function[0].device in line 2"));
}

TEST(TopologyErrors, a_representor_twice) {
    EXPECT_THAT(
        errors_of(kPf + R"([[function]]
device = "a"
kind = "sf"
pf = "mlx5_0"
representor = "r"
[[function]]
device = "b"
kind = "sf"
pf = "mlx5_0"
representor = "r"
)"),
        ElementsAre("t.toml:16: function[2].representor: expected a name that is used once, "
                    "found \"r\", which is also function[1].representor in line 11"));
}

TEST(TopologyErrors, addresses_that_clash) {
    EXPECT_THAT(
        errors_of(kPf + R"([[function]]
device = "a"
kind = "pf"
pci = "0000:03:00.0"
ips = ["10.0.0.1"]
mac = "02:00:00:00:00:09"
)"),
        ElementsAre("t.toml:10: function[1].pci: expected a PCI address that is used once, found "
                    "\"0000:03:00.0\", which is also function[0].pci in line 4",
                    "t.toml:11: function[1].ips: expected an address that is used once, found "
                    "\"10.0.0.1\", which is also function[0].ips in line 5",
                    "t.toml:12: function[1].mac: expected a MAC address that is used once, found "
                    "\"02:00:00:00:00:09\", which is also function[0].mac in line 6"));
}

TEST(TopologyErrors, a_pf_may_have_several_ports) {
    EXPECT_THAT(errors_of(kPf + R"([[port]]
name = "p0"
pf = "mlx5_0"
[[port]]
name = "p2"
pf = "mlx5_0"
)"),
                ::testing::IsEmpty());
}

TEST(TopologyErrors, a_cable_to_a_port_that_does_not_exist) {
    EXPECT_THAT(errors_of(kPorts + "[[cable]]\nname = \"c\"\na = \"p0\"\nb = \"p7\"\n"),
                ElementsAre("t.toml:11: cable[0].b: expected the name of a port (p0, p1), found "
                            "\"p7\""));
}

TEST(TopologyErrors, a_port_in_two_cables) {
    EXPECT_THAT(errors_of(kPorts + R"([[cable]]
name = "c"
a = "p0"
b = "p1"
[[cable]]
name = "c"
a = "p0"
b = "p0"
)"),
                ElementsAre("t.toml:13: cable[1].name: expected a cable name that is used once, "
                            "found \"c\", which is also cable[0].name in line 9",
                            "t.toml:14: cable[1].a: expected a port that is used once, found "
                            "\"p0\", which is also cable[0].a in line 10",
                            "t.toml:15: cable[1].b: expected a port that is used once, found "
                            "\"p0\", which is also cable[0].a in line 10"));
}

TEST(TopologyErrors, references_to_pfs_that_do_not_exist) {
    EXPECT_THAT(errors_of(kPf + R"([[function]]
device = "a"
kind = "sf"
pf = "mlx5_7"
representor = "r"
[[port]]
name = "p0"
pf = "a"
)"),
                ElementsAre("t.toml:10: function[1].pf: expected the device of a function of kind "
                            "\"pf\" (mlx5_0), found \"mlx5_7\"",
                            "t.toml:14: port[0].pf: expected the device of a function of kind "
                            "\"pf\" (mlx5_0), found \"a\""));
}

TEST(TopologyErrors, a_pf_has_neither_a_representor_nor_another_pf) {
    EXPECT_THAT(errors_of(kPf + "representor = \"r\"\npf = \"mlx5_3\"\n"),
                ElementsAre("t.toml:7: function[0].representor: expected nothing for a PF, found "
                            "\"r\"",
                            "t.toml:8: function[0].pf: expected nothing for a PF, or its own "
                            "device, found \"mlx5_3\""));
}

TEST(TopologyErrors, wrong_quantities_say_what_was_expected) {
    EXPECT_THAT(
        errors_of(kPorts + R"([[cable]]
name = "c"
a = "p0"
b = "p1"
rate = "10Gb"
[cable.both]
loss = "1x%"
[cable.a_to_b]
delay = 5
los = 1
)"),
        ElementsAre("t.toml:12: cable[0].rate: expected a rate such as \"25Gbit\" or "
                    "\"100Mbit\" (0: not limited), found \"10Gb\"",
                    "t.toml:14: cable[0].both.loss: expected a probability from 0 to 1 such "
                    "as \"1%\" or \"0.01\", found \"1x%\"",
                    "t.toml:16: cable[0].a_to_b.delay: expected a duration such as \"10us\" "
                    "or \"1.5ms\", up to one hour, found 5",
                    "t.toml:17: cable[0].a_to_b.los: expected a known key (did you mean "
                    "\"loss\"?), found unknown key \"los\""));
}

TEST(TopologyErrors, too_many_functions_and_too_many_addresses) {
    std::string many;
    for (int i = 0; i < 65; ++i) {
        many += "[[function]]\ndevice = \"d" + std::to_string(i) + "\"\nkind = \"pf\"\n";
    }
    EXPECT_THAT(errors_of(many),
                ElementsAre("t.toml:1: function: expected at most 64 tables, found 65"));
    std::string ips = "[[function]]\ndevice = \"d\"\nkind = \"pf\"\nips = [";
    for (int i = 1; i < 17; ++i) ips += "\"10.0.0." + std::to_string(i) + "\", ";
    EXPECT_THAT(errors_of(ips + "]\n"),
                ElementsAre("t.toml:4: function[0].ips: expected at most 15 addresses, found 16"));
}

TEST(TopologyErrors, a_name_that_is_neither_built_in_nor_a_file) {
    const Topology unknown = load_topology("lopback");
    ASSERT_EQ(unknown.errors.size(), 1u);
    EXPECT_EQ(unknown.errors[0].to_string(),
              "lopback: expected a TOML file or a built-in topology (four-paths, impaired, "
              "loopback, two-cables), found neither");
    const Topology missing = load_topology("/nonexistent/x.toml");
    ASSERT_EQ(missing.errors.size(), 1u);
    EXPECT_EQ(missing.errors[0].to_string(),
              "/nonexistent/x.toml: expected a TOML file or a built-in topology (four-paths, "
              "impaired, loopback, two-cables), found a file that cannot be read");
}

TEST(TopologyErrors, a_folder_or_an_endless_file_is_none) {
    const auto found = [](const std::string& path) {
        const Topology topology = load_topology(path);
        EXPECT_EQ(topology.errors.size(), 1u) << path;
        return topology.errors.empty() ? "" : topology.errors[0].found;
    };
    const TemporaryFolder folder;
    EXPECT_EQ(found(folder.path()), "a folder");
    EXPECT_EQ(found("/dev/zero"), "a file of more than 1 MiB");
}

TEST(Topology, a_file_is_read_by_its_path) {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/mine.toml";
    std::ofstream(path) << kPf;
    const Topology topology = load_topology(path);
    ASSERT_THAT(topology.errors, IsEmpty());
    EXPECT_EQ(topology.config.functions[0].device, "mlx5_0");
}

}  // namespace
}  // namespace rdmalab::card::host
