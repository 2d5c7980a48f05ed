#include "rdmalab/sysfs_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace rdmalab::launcher {
namespace {

DeviceFacts example() {
    DeviceFacts device;
    device.name = "mlx5_2";
    device.uverbs_index = 2;
    device.pci = "0000:03:00.0";
    device.owns_pci = false;
    device.guid = 0x0200'00ff'fe00'0003;
    device.gids = {Gid::link_local({{2, 0, 0, 0, 0, 3}}), *Gid::parse("10.0.0.1")};
    device.netdev = "lo";
    device.counters = {{"tx_bytes", 4'000}, {"tx_frames", 4}, {"out_of_sequence", 9}};
    return device;
}

class SysfsTree : public testing::Test {
protected:
    void SetUp() override {
        for (const TreeEntry& entry : sysfs_tree({example()})) entries_[entry.path] = entry;
    }
    std::string content(const std::string& path) {
        auto found = entries_.find(path);
        return found == entries_.end() ? "(missing)" : found->second.content;
    }
    std::map<std::string, TreeEntry> entries_;
};

TEST_F(SysfsTree, every_entry_comes_after_its_folder_and_only_once) {
    std::set<std::string> seen = {""};
    for (const TreeEntry& entry : sysfs_tree({example(), example()})) {
        std::size_t slash = entry.path.rfind('/');
        EXPECT_TRUE(seen.contains(slash == std::string::npos ? "" : entry.path.substr(0, slash)))
            << entry.path;
        if (entry.kind == TreeEntry::Kind::kFolder) {
            EXPECT_TRUE(seen.insert(entry.path).second) << entry.path;
        }
    }
}

TEST_F(SysfsTree, a_port_is_an_active_ethernet_port) {
    EXPECT_EQ(content("infiniband/mlx5_2/ports/1/state"), "4: ACTIVE\n");
    EXPECT_EQ(content("infiniband/mlx5_2/ports/1/phys_state"), "5: LinkUp\n");
    EXPECT_EQ(content("infiniband/mlx5_2/ports/1/link_layer"), "Ethernet\n");
    EXPECT_EQ(content("infiniband/mlx5_2/ports/1/rate"), "100 Gb/sec (4X EDR)\n");
    EXPECT_EQ(content("infiniband/mlx5_2/ports/1/pkeys/0"), "0xffff\n");
}

TEST_F(SysfsTree, gids_are_written_in_full_and_empty_ones_have_no_attributes) {
    EXPECT_EQ(content("infiniband/mlx5_2/ports/1/gids/0"),
              "fe80:0000:0000:0000:0000:00ff:fe00:0003\n");
    EXPECT_EQ(content("infiniband/mlx5_2/ports/1/gids/1"),
              "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
    EXPECT_EQ(content("infiniband/mlx5_2/ports/1/gid_attrs/types/1"), "RoCE v2\n");
    EXPECT_EQ(content("infiniband/mlx5_2/ports/1/gid_attrs/ndevs/1"), "lo\n");
    EXPECT_EQ(content("infiniband/mlx5_2/ports/1/gids/15"),
              "0000:0000:0000:0000:0000:0000:0000:0000\n");
    EXPECT_EQ(content("infiniband/mlx5_2/ports/1/gid_attrs/types/2"), "(missing)");
}

TEST_F(SysfsTree, the_device_link_leads_to_a_folder_with_a_netdev) {
    EXPECT_EQ(content("infiniband/mlx5_2/device"), "/sys/class/rdmalab/0000:03:00.0/mlx5_2");
    EXPECT_EQ(content("rdmalab/0000:03:00.0/mlx5_2/net/lo"), "/sys/class/net/lo");
    EXPECT_EQ(content("rdmalab/0000:03:00.0/mlx5_2/numa_node"), "-1\n");
}

TEST_F(SysfsTree, a_physical_function_is_the_pci_folder_itself) {
    DeviceFacts device = example();
    device.owns_pci = true;
    for (const TreeEntry& entry : sysfs_tree({device})) entries_[entry.path] = entry;
    EXPECT_EQ(content("infiniband/mlx5_2/device"), "/sys/class/rdmalab/0000:03:00.0");
}

TEST_F(SysfsTree, uverbs_names_its_device) {
    EXPECT_EQ(content("infiniband_verbs/uverbs2/ibdev"), "mlx5_2\n");
    EXPECT_EQ(content("infiniband_verbs/abi_version"), "6\n");
}

TEST_F(SysfsTree, port_counters_count_data_in_words_of_four_bytes) {
    EXPECT_EQ(content("infiniband/mlx5_2/ports/1/counters/port_xmit_data"), "1000\n");
    EXPECT_EQ(content("infiniband/mlx5_2/ports/1/hw_counters/out_of_sequence"), "9\n");
}

TEST_F(SysfsTree, a_cpu_mask_has_groups_of_32) {
    EXPECT_EQ(print_cpu_mask(2), "3");
    EXPECT_EQ(print_cpu_mask(32), "ffffffff");
    EXPECT_EQ(print_cpu_mask(40), "ff,ffffffff");
    EXPECT_EQ(print_cpu_mask(64), "ffffffff,ffffffff");
}

TEST_F(SysfsTree, guids_have_four_groups) {
    EXPECT_EQ(content("infiniband/mlx5_2/node_guid"), "0200:00ff:fe00:0003\n");
}

}  // namespace
}  // namespace rdmalab::launcher
