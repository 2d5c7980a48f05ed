// Which network the control traffic of MPI takes. Left alone, Open MPI tries every interface that
// two hosts seem to share, and hangs when that is a docker0 with the same address on each.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rdmalab::perftest {

struct InterfaceAddress {
    std::string interface, address;  // IPv4 in dots
    unsigned prefix = 0;
};

std::vector<InterfaceAddress> own_addresses();
// "10.0.0.0/24" contains "10.0.0.7".
bool contains(const std::string& cidr, const std::string& address);
// The networks or interface names of a list that this host has none of: "" = it has one.
std::string missing_interface(const std::string& list, const std::vector<InterfaceAddress>& have);
// The network of ours in which all those hosts' addresses are; nothing when there is none.
std::optional<std::string> common_network(const std::vector<std::string>& addresses,
                                          const std::vector<InterfaceAddress>& have);
// IPv4 address of a host's name; nothing when it has none.
std::optional<std::string> address_of(const std::string& host);

}  // namespace rdmalab::perftest
