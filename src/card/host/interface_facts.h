// What the kernel says about a network interface of the card's network namespace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/result.h"

namespace rdmalab::card::host {

struct InterfaceFacts {
    int index = 0;
    bool is_up = false;  // and its wire, too
    bool is_ethernet = false;
    std::uint32_t mtu = 0;
    MacAddress mac;
    struct Address {
        Gid gid;
        std::uint8_t prefix_length = 0;
    };
    std::vector<Address> addresses;  // without link-local ones; IPv4 first
};

// ENODEV, with the interfaces that there are.
Result<InterfaceFacts> find_interface(const std::string& name);

// From IFF_* of netdevice(7).
bool is_up(std::uint32_t flags);

// The largest path MTU whose frames fit, with the longest headers; 0: none does.
std::uint32_t roce_mtu_for(std::uint32_t interface_mtu);

}  // namespace rdmalab::card::host
