// What a kernel would show of the card's devices below /sys/class, as a list of folders, files and
// links. Only the content is decided here; device_view puts it in place.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/address.h"

namespace rdmalab::launcher {

struct DeviceFacts {
    std::string name;  // mlx5_2
    std::uint32_t uverbs_index = 0;
    std::string pci;       // 0000:03:00.0; a function without one of its own shows its PF's
    bool owns_pci = true;  // PF or VF
    std::uint64_t guid = 0;
    std::vector<Gid> gids;
    std::uint64_t rate_bps = 0;  // of the port's cable; 0: not limited
    std::uint32_t cpu_count = 1;
    std::string netdev;  // the network interface that stands for the device
    std::map<std::string, std::uint64_t> counters;
};

struct TreeEntry {
    enum class Kind { kFolder, kFile, kLink };
    Kind kind;
    std::string path;     // below /sys/class
    std::string content;  // of a file; target of a link
};

// Entries in an order in which they can be created.
std::vector<TreeEntry> sysfs_tree(const std::vector<DeviceFacts>& devices);

std::string print_cpu_mask(std::uint32_t cpu_count);  // 3 for two, ff,ffffffff for 40
std::string print_guid(std::uint64_t guid);           // 0200:00ff:fe00:0001
std::string print_raw_gid(const Gid& gid);            // all 32 digits

}  // namespace rdmalab::launcher
