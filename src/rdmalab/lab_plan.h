// What a lab consists of: hosts node01, node02, ... , each with an interface and a device per rail.
// Rail r is one switch and the network 10.(88 + r).0.0/24, in which host n has the address .n.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rdmalab/json_access.h"

namespace rdmalab::launcher {

inline constexpr unsigned kLabHostMax = 250, kLabRailMax = 8;
inline constexpr unsigned kLabMtuMin = 1'280, kLabMtuMax = 65'000;

// A process, told from a later one of the same number by the time of its start.
struct ProcessIdentity {
    pid_t pid = 0;
    std::uint64_t start = 0;  // in clock ticks since the machine's
    bool operator==(const ProcessIdentity&) const = default;
};
ProcessIdentity identify_process(pid_t pid);  // start 0: there is none
bool is_alive(const ProcessIdentity& process);

struct LabHost {
    std::string name;
    unsigned number = 0;   // from 1
    ProcessIdentity init;  // its pid 1, as this machine sees it
};

struct Lab {
    unsigned rails = 1;
    unsigned mtu = 9'000;
    bool has_cards = true, has_ssh = true;
    ProcessIdentity keeper;  // of the switches; its end is the end of the lab
    std::vector<LabHost> hosts;

    static Lab of(unsigned host_count, unsigned rails);
    std::string address(const LabHost& host, unsigned rail) const;
    const LabHost* find(std::string_view name) const;
    // "node01 to node16"
    std::string names() const;

    Json to_json() const;
    static std::optional<Lab> from_json(const Json& json);
};

// The interface of a host, and what is at the switch's end of its wire.
std::string lab_interface(unsigned rail);                  // eth0
std::string lab_port(const LabHost& host, unsigned rail);  // n3r0
std::string lab_switch(unsigned rail);                     // switch0
// The address of the one who has joined the lab from outside.
std::string lab_guest_address(unsigned rail);
inline constexpr char kLabGuestInterface[] = "rdmalab";  // and the number of the rail

// Commands of `ip -batch`, in the network namespace of the switches and of a host.
std::string switch_commands(const Lab& lab);
std::string wire_commands(const Lab& lab);
std::string host_commands(const Lab& lab, const LabHost& host);

// Files that all hosts share.
std::string hosts_file(const Lab& lab);
std::string sshd_config(const std::string& path_variable);
std::string ssh_config();

}  // namespace rdmalab::launcher
