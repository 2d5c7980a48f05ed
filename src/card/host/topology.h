// Topology files: TOML text -> CardConfig. rdmalab-topology(5) describes the format.
//
//   seed, mtu, cnp_interval, computed_icrc, netdev_mtu  of the card
//   [[port]]      name, pf
//   [[function]]  device, kind ("pf", "vf", "sf"), pf, representor, pci, mac, ips, netns, netdev,
//                 flow_steering
//   [[cable]]     name, a, b; impairments: rate, delay, jitter, loss, reorder, duplicate, corrupt,
//                 ce, verify_icrc, for both directions or in the tables both, a_to_b, b_to_a
//   [[uplink]]    port, netdev, bursts; impairments as of a cable from the port to the interface
//
// All errors of a file are collected, so that one run shows what is to be mended.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "card/config.h"

namespace rdmalab::card::host {

struct TopologyError {
    std::string file;
    std::uint32_t line = 0;  // 0: the file as a whole
    std::string field;       // "function[2].mac"; empty: not about one field
    std::string expected, found;

    // loopback.toml:12: function[2].mac: expected a unicast MAC address ..., found "x"
    std::string to_string() const;
};

struct Topology {
    CardConfig config;
    std::vector<TopologyError> errors;  // when there are any, `config` is not to be used
    bool ok() const { return errors.empty(); }
};

// `file` names the text in errors.
Topology parse_topology(std::string_view text, std::string_view file);

// A name of a built-in topology, or the path of a file (whatever has a '/' or ends in ".toml").
Topology load_topology(const std::string& name_or_file);

// A card of one PF per interface, each behind an uplink: mlx5_0, mlx5_1, ...
Topology uplink_topology(const std::vector<std::string>& netdevs);

std::vector<std::string_view> builtin_topologies();

}  // namespace rdmalab::card::host
