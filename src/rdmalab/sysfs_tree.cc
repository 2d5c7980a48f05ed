#include "rdmalab/sysfs_tree.h"

#include <fmt/format.h>

#include <set>

#include "base/identity.h"
#include "base/limits.h"
#include "base/link_speed.h"

namespace rdmalab::launcher {

namespace {

// The PCI functions live in a class of their own: /sys/devices belongs to the kernel, and the name
// of the last component is what programs compare.
constexpr char kPciFolder[] = "rdmalab";

class TreeBuilder {
public:
    void folder(const std::string& path) {
        if (!folders_.insert(path).second) return;
        if (std::size_t slash = path.rfind('/'); slash != std::string::npos) {
            folder(path.substr(0, slash));
        }
        entries_.push_back({TreeEntry::Kind::kFolder, path, {}});
    }
    void file(const std::string& path, const std::string& line) {
        folder(path.substr(0, path.rfind('/')));
        entries_.push_back({TreeEntry::Kind::kFile, path, line + "\n"});
    }
    void link(const std::string& path, const std::string& target) {
        folder(path.substr(0, path.rfind('/')));
        entries_.push_back({TreeEntry::Kind::kLink, path, target});
    }
    std::vector<TreeEntry> take() { return std::move(entries_); }

private:
    std::vector<TreeEntry> entries_;
    std::set<std::string> folders_;
};

std::string uverbs_name(const DeviceFacts& device) {
    return fmt::format("uverbs{}", device.uverbs_index);
}

std::string pci_path(const DeviceFacts& device) {
    std::string path = fmt::format("{}/{}", kPciFolder, device.pci);
    return device.owns_pci ? path : path + "/" + device.name;
}

void add_pci_function(TreeBuilder& tree, const DeviceFacts& device) {
    std::string path = pci_path(device);
    tree.file(path + "/vendor", fmt::format("0x{:06x}", identity::kVendorId));
    tree.file(path + "/device", fmt::format("0x{:04x}", identity::kVendorPartId));
    tree.file(path + "/subsystem_vendor", fmt::format("0x{:06x}", identity::kVendorId));
    tree.file(path + "/subsystem_device", fmt::format("0x{:04x}", identity::kVendorPartId));
    tree.file(path + "/max_link_speed", "16.0 GT/s PCIe");
    tree.file(path + "/max_link_width", "16");
    tree.file(path + "/class", "0x020000");
    tree.file(path + "/numa_node", "-1");
    tree.file(path + "/local_cpus", print_cpu_mask(device.cpu_count));
    tree.link(path + "/local_cpulist", "/sys/devices/system/cpu/possible");
    tree.link(path + "/net/" + device.netdev, "/sys/class/net/" + device.netdev);
    tree.link(path + "/infiniband/" + device.name, "/sys/class/infiniband/" + device.name);
    tree.link(path + "/infiniband_verbs/" + uverbs_name(device),
              "/sys/class/infiniband_verbs/" + uverbs_name(device));
}

// The counters directory counts as IBTA's PortCounters do: data in units of four bytes.
void add_counters(TreeBuilder& tree, const std::string& port, const DeviceFacts& device) {
    auto value = [&](const char* key) {
        auto found = device.counters.find(key);
        return found == device.counters.end() ? 0 : found->second;
    };
    const std::pair<const char*, std::uint64_t> kPortCounters[] = {
        {"port_xmit_data", value("tx_bytes") / 4},
        {"port_rcv_data", value("rx_bytes") / 4},
        {"port_xmit_packets", value("tx_frames")},
        {"port_rcv_packets", value("rx_frames")},
        {"unicast_xmit_packets", value("tx_frames")},
        {"unicast_rcv_packets", value("rx_frames")},
        {"port_rcv_errors", value("rx_icrc_errors")},
        {"port_xmit_discards", 0},
        {"port_xmit_wait", 0},
        {"symbol_error", 0},
        {"link_downed", 0},
        {"link_error_recovery", 0},
    };
    for (const auto& [name, count] : kPortCounters) {
        tree.file(port + "/counters/" + name, std::to_string(count));
    }
    for (const auto& [name, count] : device.counters) {
        tree.file(port + "/hw_counters/" + name, std::to_string(count));
    }
}

void add_gids(TreeBuilder& tree, const std::string& port, const DeviceFacts& device) {
    for (std::uint32_t index = 0; index < limits::kGidMax; ++index) {
        Gid gid = index < device.gids.size() ? device.gids[index] : Gid{};
        tree.file(fmt::format("{}/gids/{}", port, index), print_raw_gid(gid));
        // The kernel refuses to read the attributes of an empty entry; here they do not exist.
        if (gid.is_zero()) continue;
        tree.file(fmt::format("{}/gid_attrs/types/{}", port, index), "RoCE v2");
        tree.file(fmt::format("{}/gid_attrs/ndevs/{}", port, index), device.netdev);
    }
}

void add_port(TreeBuilder& tree, const DeviceFacts& device) {
    std::string port = fmt::format("infiniband/{}/ports/1", device.name);
    const std::pair<const char*, const char*> kFiles[] = {
        {"state", "4: ACTIVE"},
        {"phys_state", "5: LinkUp"},
        {"rate", link_speed_for(device.rate_bps).text},
        {"link_layer", "Ethernet"},
        {"lid", "0x0"},
        {"lid_mask_count", "0"},
        {"sm_lid", "0x0"},
        {"sm_sl", "0"},
        {"cap_mask", "0x04010000"},
        {"pkeys/0", "0xffff"},
    };
    for (const auto& [name, text] : kFiles) tree.file(port + "/" + name, text);
    add_gids(tree, port, device);
    add_counters(tree, port, device);
}

void add_device(TreeBuilder& tree, const DeviceFacts& device) {
    std::string path = "infiniband/" + device.name;
    const std::pair<const char*, std::string> kFiles[] = {
        {"node_type", "1: CA"},
        {"node_guid", print_guid(device.guid)},
        {"sys_image_guid", print_guid(device.guid)},
        {"node_desc", "rdmalab " + device.name},
        {"fw_ver", RDMALAB_VERSION},
        {"hw_rev", "1"},
        {"hca_type", "rdmalab"},
        {"board_id", "rdmalab"},
    };
    for (const auto& [name, text] : kFiles) tree.file(path + "/" + name, text);
    tree.link(path + "/device", "/sys/class/" + pci_path(device));
    tree.link(path + "/subsystem", "/sys/class/infiniband");
    add_port(tree, device);
}

void add_uverbs(TreeBuilder& tree, const DeviceFacts& device) {
    std::string path = "infiniband_verbs/" + uverbs_name(device);
    tree.file(path + "/ibdev", device.name);
    tree.file(path + "/dev_name", uverbs_name(device));
    tree.file(path + "/abi_version", "1");
    tree.link(path + "/device", "/sys/class/" + pci_path(device));
}

}  // namespace

std::vector<TreeEntry> sysfs_tree(const std::vector<DeviceFacts>& devices) {
    TreeBuilder tree;
    tree.folder("infiniband");
    tree.file("infiniband_verbs/abi_version", "6");
    for (const DeviceFacts& device : devices) {
        add_pci_function(tree, device);
        add_device(tree, device);
        add_uverbs(tree, device);
    }
    return tree.take();
}

std::string print_cpu_mask(std::uint32_t cpu_count) {
    constexpr std::uint32_t kGroup = 32;
    std::uint32_t first_bits = cpu_count % kGroup;
    std::string text;
    if (first_bits > 0) text = fmt::format("{:x}", (std::uint64_t{1} << first_bits) - 1);
    for (std::uint32_t i = 0; i < cpu_count / kGroup; ++i) {
        text += text.empty() ? "ffffffff" : ",ffffffff";
    }
    return text;
}

std::string print_guid(std::uint64_t guid) {
    return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff,
                       guid >> 16 & 0xffff, guid & 0xffff);
}

std::string print_raw_gid(const Gid& gid) {
    std::string text;
    for (std::size_t i = 0; i < gid.bytes.size(); i += 2) {
        text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", gid.bytes[i], gid.bytes[i + 1]);
    }
    return text;
}

}  // namespace rdmalab::launcher
