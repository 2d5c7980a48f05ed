// The second look at a topology: what holds between its parts (names and addresses that clash,
// references to nothing), and the values that follow from the others (MACs, PCI addresses).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "card/host/toml_reader.h"

namespace rdmalab::card::host {

// Where the fields of the configuration stand in the file; same order as CardConfig.
struct TopologyLines {
    struct Port {
        std::string path;
        std::uint32_t name, pf;
    };
    struct Function {
        std::string path;
        std::uint32_t device, pf, representor, pci, mac, ips, netdev;
        bool kind_known;
    };
    struct Cable {
        std::string path;
        std::uint32_t name, a, b;
    };
    // Becomes a cable when it has been checked.
    struct Uplink {
        std::string path;
        CableConfig cable;
        bool bursts = true;
        std::uint32_t port_line = 0, netdev_line = 0;
    };
    std::vector<Port> ports;
    std::vector<Function> functions;
    std::vector<Cable> cables;
    std::vector<Uplink> uplinks;
};

// Linux names network interfaces with up to 15 characters.
inline constexpr std::size_t kNetdevNameMax = 15;

// Notes the errors and fills in what was left out. Fields that are empty because they were wrong
// have been noted already and are passed over.
void check_topology(CardConfig& config, const TopologyLines& lines, ErrorList& errors);

}  // namespace rdmalab::card::host
