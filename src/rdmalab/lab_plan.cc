#include "rdmalab/lab_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

namespace rdmalab::launcher {
namespace {

constexpr unsigned kFirstNet = 88;
constexpr unsigned kGuest = 254;

std::string address_in(unsigned rail, unsigned number) {
    return fmt::format("10.{}.0.{}", kFirstNet + rail, number);
}

Json to_json(const ProcessIdentity& process) {
    return {{"pid", process.pid}, {"start", process.start}};
}

ProcessIdentity identity_from(const Json& json) {
    return {static_cast<pid_t>(number(json, "pid")), number(json, "start")};
}

}  // namespace

// Field 22 of /proc/PID/stat; field 2, the name, may hold anything, so fields count from its end.
ProcessIdentity identify_process(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::size_t end = text.rfind(')');
    if (end == text.npos) return {pid, 0};
    std::istringstream fields(text.substr(end + 1));
    std::string field;
    fields >> field;  // state
    if (field == "Z" || field == "X") return {pid, 0};
    constexpr int kStateField = 3, kStartField = 22;
    for (int i = kStateField; i < kStartField; ++i) fields >> field;
    return {pid, std::strtoull(field.c_str(), nullptr, 10)};
}

bool is_alive(const ProcessIdentity& process) {
    return process.start != 0 && identify_process(process.pid) == process;
}

Lab Lab::of(unsigned host_count, unsigned rails) {
    Lab lab;
    lab.rails = rails;
    for (unsigned i = 1; i <= host_count; ++i)
        lab.hosts.push_back({fmt::format("node{:02}", i), i, {}});
    return lab;
}

std::string Lab::address(const LabHost& host, unsigned rail) const {
    return address_in(rail, host.number);
}

const LabHost* Lab::find(std::string_view name) const {
    const auto found = std::find_if(hosts.begin(), hosts.end(),
                                    [&](const LabHost& host) { return host.name == name; });
    return found == hosts.end() ? nullptr : &*found;
}

std::string Lab::names() const {
    if (hosts.empty()) return "none";
    if (hosts.size() == 1) return hosts.front().name;
    return fmt::format("{} to {}", hosts.front().name, hosts.back().name);
}

Json Lab::to_json() const {
    Json json = {{"keeper", launcher::to_json(keeper)},
                 {"rails", rails},
                 {"mtu", mtu},
                 {"cards", has_cards},
                 {"ssh", has_ssh},
                 {"hosts", Json::array()}};
    for (const LabHost& host : hosts) {
        Json addresses = Json::array();
        for (unsigned rail = 0; rail < rails; ++rail) addresses.push_back(address(host, rail));
        json["hosts"].push_back({{"name", host.name},
                                 {"number", host.number},
                                 {"init", launcher::to_json(host.init)},
                                 {"addresses", addresses}});
    }
    return json;
}

std::optional<Lab> Lab::from_json(const Json& json) {
    if (!json.is_object() || !member(json, "hosts").is_array()) return std::nullopt;
    Lab lab;
    lab.rails = static_cast<unsigned>(number(json, "rails"));
    lab.mtu = static_cast<unsigned>(number(json, "mtu"));
    lab.has_cards = json.value("cards", true);
    lab.has_ssh = json.value("ssh", true);
    lab.keeper = identity_from(member(json, "keeper"));
    for (const Json& host : member(json, "hosts")) {
        lab.hosts.push_back({host.value("name", ""), static_cast<unsigned>(number(host, "number")),
                             identity_from(member(host, "init"))});
    }
    return lab;
}

std::string lab_interface(unsigned rail) { return fmt::format("eth{}", rail); }
std::string lab_port(const LabHost& host, unsigned rail) {
    return fmt::format("n{}r{}", host.number, rail);
}
std::string lab_switch(unsigned rail) { return fmt::format("switch{}", rail); }
std::string lab_guest_address(unsigned rail) { return address_in(rail, kGuest); }

// A switch that learns and floods, and does not wait for a spanning tree.
std::string switch_commands(const Lab& lab) {
    std::string text = "link set lo up\n";
    for (unsigned rail = 0; rail < lab.rails; ++rail) {
        text += fmt::format(
            "link add {0} mtu {1} type bridge forward_delay 0 mcast_snooping 0\n"
            "link set {0} up\n",
            lab_switch(rail), lab.mtu);
    }
    return text;
}

// MACs follow from the number, so that a host keeps its own when the lab is made anew.
std::string wire_commands(const Lab& lab) {
    std::string text;
    for (const LabHost& host : lab.hosts) {
        for (unsigned rail = 0; rail < lab.rails; ++rail) {
            text += fmt::format(
                "link add {0} mtu {1} type veth peer name {2} mtu {1} address "
                "02:88:00:00:{3:02x}:{4:02x} netns {5}\n"
                "link set {0} master {6} up\n",
                lab_port(host, rail), lab.mtu, lab_interface(rail), rail, host.number,
                host.init.pid, lab_switch(rail));
        }
    }
    return text;
}

std::string host_commands(const Lab& lab, const LabHost& host) {
    std::string text = "link set lo up\n";
    for (unsigned rail = 0; rail < lab.rails; ++rail) {
        text += fmt::format("address add {0}/24 brd + dev {1}\nlink set {1} up\n",
                            lab.address(host, rail), lab_interface(rail));
    }
    return text;
}

std::string hosts_file(const Lab& lab) {
    std::string text = "127.0.0.1 localhost\n::1 localhost\n";
    for (const LabHost& host : lab.hosts)
        text += fmt::format("{} {}\n", lab.address(host, 0), host.name);
    for (unsigned rail = 1; rail < lab.rails; ++rail) {
        for (const LabHost& host : lab.hosts)
            text += fmt::format("{} {}-{}\n", lab.address(host, rail), host.name, rail);
    }
    return text;
}

// The key exchange named first is the cheapest by far. Keys lie in a folder that StrictModes would
// not like.
std::string sshd_config(const std::string& path_variable) {
    return fmt::format(
        "Port 22\n"
        "HostKey /run/lab/host_key\n"
        "AuthorizedKeysFile /run/lab/key.pub\n"
        "StrictModes no\n"
        "PermitRootLogin yes\n"
        "PasswordAuthentication no\n"
        "KbdInteractiveAuthentication no\n"
        "UsePAM no\n"
        "UseDNS no\n"
        "PrintMotd no\n"
        "PidFile none\n"
        "LogLevel ERROR\n"
        "MaxStartups 200:30:400\n"
        "MaxSessions 200\n"
        "KexAlgorithms curve25519-sha256\n"
        "Subsystem sftp internal-sftp\n"
        "SetEnv PATH={}\n",
        path_variable);
}

std::string ssh_config() {
    return "Host node* 10.*\n"
           "    IdentityFile /run/lab/key\n"
           "    IdentitiesOnly yes\n"
           "    BatchMode yes\n"
           "    StrictHostKeyChecking no\n"
           "    UserKnownHostsFile /dev/null\n"
           "    LogLevel ERROR\n"
           "    KexAlgorithms curve25519-sha256\n";
}

}  // namespace rdmalab::launcher
