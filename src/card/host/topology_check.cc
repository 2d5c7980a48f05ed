#include "card/host/topology_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

namespace rdmalab::card::host {
namespace {

struct Place {
    std::uint32_t line;
    std::string field;
};

// Values that may be there only once. A second use is noted with the place of the first.
class Unique {
public:
    Unique(std::string what, ErrorList& errors) : what_(std::move(what)), errors_(errors) {}
    void claim(const std::string& value, Place place) {
        if (value.empty()) return;
        const auto [first, is_new] = places_.try_emplace(value, place);
        if (is_new) return;
        errors_.add(place.line, place.field, fmt::format("{} that is used once", what_),
                    fmt::format("\"{}\", which is also {} in line {}", value, first->second.field,
                                first->second.line));
    }
    bool has(const std::string& value) const { return places_.contains(value); }

private:
    std::string what_;
    ErrorList& errors_;
    std::map<std::string, Place> places_;
};

class Checker {
public:
    Checker(CardConfig& config, const TopologyLines& lines, ErrorList& errors)
        : config_(config), lines_(lines), errors_(errors) {}

    void run() {
        check_names();
        check_pf_references();
        check_cables();
        fill_macs();
        fill_pci();
        fill_netdevs();
        check_netdevs();
        check_addresses();
    }

private:
    // Ports, representors and devices share one name space: a capture names any of them.
    void check_names() {
        Unique names("a name", errors_);
        for (std::size_t i = 0; i < config_.ports.size(); ++i) {
            const auto& line = lines_.ports[i];
            names.claim(config_.ports[i].name, {line.name, line.path + ".name"});
        }
        for (std::size_t i = 0; i < config_.functions.size(); ++i) {
            const auto& line = lines_.functions[i];
            names.claim(config_.functions[i].device, {line.device, line.path + ".device"});
            names.claim(config_.functions[i].representor,
                        {line.representor, line.path + ".representor"});
        }
        Unique cables("a cable name", errors_);
        for (std::size_t i = 0; i < config_.cables.size(); ++i) {
            const auto& line = lines_.cables[i];
            cables.claim(config_.cables[i].name, {line.name, line.path + ".name"});
        }
        for (const TopologyLines::Uplink& uplink : lines_.uplinks)
            cables.claim(uplink.cable.name, {uplink.netdev_line, uplink.path + ".netdev"});
    }

    const FunctionConfig* find_pf(const std::string& device) const {
        for (std::size_t i = 0; i < config_.functions.size(); ++i) {
            const FunctionConfig& function = config_.functions[i];
            // One of unknown kind might be meant as a PF; its own error is enough.
            const bool may_be_pf =
                function.kind == FunctionKind::kPf || !lines_.functions[i].kind_known;
            if (function.device == device && may_be_pf) return &function;
        }
        return nullptr;
    }

    std::string pf_expected() const {
        std::vector<std::string> names;
        for (const FunctionConfig& function : config_.functions) {
            if (function.kind == FunctionKind::kPf) names.push_back(function.device);
        }
        if (names.empty()) return "the device of a function of kind \"pf\" (there is none)";
        return fmt::format("the device of a function of kind \"pf\" ({})", fmt::join(names, ", "));
    }

    void check_pf_references() {
        for (std::size_t i = 0; i < config_.ports.size(); ++i) {
            const std::string& pf = config_.ports[i].pf_device;
            const auto& line = lines_.ports[i];
            if (!pf.empty() && !find_pf(pf)) {
                errors_.add(line.pf, line.path + ".pf", pf_expected(), fmt::format("\"{}\"", pf));
            }
        }
        for (std::size_t i = 0; i < config_.functions.size(); ++i) check_function_pf(i);
    }

    void check_function_pf(std::size_t index) {
        const FunctionConfig& function = config_.functions[index];
        const auto& line = lines_.functions[index];
        if (!line.kind_known) return;
        if (function.kind == FunctionKind::kPf) {
            if (function.pf_device != function.device && !function.device.empty()) {
                errors_.add(line.pf, line.path + ".pf", "nothing for a PF, or its own device",
                            fmt::format("\"{}\"", function.pf_device));
            }
            if (!function.representor.empty()) {
                errors_.add(line.representor, line.path + ".representor", "nothing for a PF",
                            fmt::format("\"{}\"", function.representor));
            }
        } else if (!function.pf_device.empty() && !find_pf(function.pf_device)) {
            errors_.add(line.pf, line.path + ".pf", pf_expected(),
                        fmt::format("\"{}\"", function.pf_device));
        }
    }

    void check_cables() {
        Unique ends("a port", errors_);
        for (std::size_t i = 0; i < config_.cables.size(); ++i) {
            const auto& line = lines_.cables[i];
            check_cable_end(ends, config_.cables[i].port_a, {line.a, line.path + ".a"});
            check_cable_end(ends, config_.cables[i].port_b, {line.b, line.path + ".b"});
        }
        for (const TopologyLines::Uplink& uplink : lines_.uplinks) {
            check_cable_end(ends, uplink.cable.port_a, {uplink.port_line, uplink.path + ".port"});
            join_uplink(uplink);
        }
    }

    void join_uplink(const TopologyLines::Uplink& uplink) {
        for (PortConfig& port : config_.ports) {
            if (port.name != uplink.cable.port_a || port.name.empty()) continue;
            port.uplink = uplink.cable.port_b;
            port.may_burst = uplink.bursts;
            check_pf_of_uplink(uplink, port.pf_device);
        }
        config_.cables.push_back(uplink.cable);
    }

    // Device and interface are one: the PF alone is behind an uplink, and its MAC is not ours to
    // choose.
    void check_pf_of_uplink(const TopologyLines::Uplink& uplink, const std::string& pf) {
        for (std::size_t i = 0; i < config_.functions.size(); ++i) {
            const FunctionConfig& function = config_.functions[i];
            const auto& line = lines_.functions[i];
            if (function.pf_device != pf || !line.kind_known) continue;
            if (function.kind != FunctionKind::kPf) {
                errors_.add(
                    line.pf, line.path + ".pf",
                    fmt::format("a PF without an uplink (VFs and SFs share no interface "
                                "of the host)"),
                    fmt::format("\"{}\", which has the uplink {}", pf, uplink.cable.port_b));
            } else if (function.mac != MacAddress{}) {
                errors_.add(line.mac, line.path + ".mac",
                            fmt::format("nothing: the PF has the MAC address of its uplink {}",
                                        uplink.cable.port_b),
                            fmt::format("\"{}\"", function.mac.to_string()));
            }
        }
        const auto ports =
            std::count_if(config_.ports.begin(), config_.ports.end(),
                          [&](const PortConfig& port) { return port.pf_device == pf; });
        if (ports > 1) {
            errors_.add(uplink.port_line, uplink.path + ".port", "the only port of its PF",
                        fmt::format("one of {} ports of {}", ports, pf));
        }
    }

    void check_cable_end(Unique& ends, const std::string& port, Place place) {
        if (port.empty()) return;
        std::vector<std::string> names;
        for (const PortConfig& known : config_.ports) names.push_back(known.name);
        if (std::find(names.begin(), names.end(), port) == names.end()) {
            errors_.add(place.line, place.field,
                        names.empty()
                            ? "the name of a port (there is none)"
                            : fmt::format("the name of a port ({})", fmt::join(names, ", ")),
                        fmt::format("\"{}\"", port));
            return;
        }
        ends.claim(port, std::move(place));
    }

    // 02:00:00:00:00:NN, counted in device order; NN that a file gives to another function are
    // passed over.
    void fill_macs() {
        std::set<MacAddress> given;
        for (const FunctionConfig& function : config_.functions) given.insert(function.mac);
        std::uint8_t next = 1;
        for (FunctionConfig& function : config_.functions) {
            if (function.mac != MacAddress{}) continue;
            MacAddress mac{{0x02, 0, 0, 0, 0, next++}};
            while (given.contains(mac)) mac.bytes[5] = next++;
            function.mac = mac;
        }
    }

    // PFs are the functions of one slot, VFs those of the following slots. An SF has no PCI address
    // of its own and shows that of its PF.
    void fill_pci() {
        std::uint32_t pf_count = 0, vf_count = 0;
        for (FunctionConfig& function : config_.functions) {
            std::string pci;
            if (function.kind == FunctionKind::kPf) {
                pci = pci_address(pf_count++);
            } else if (function.kind == FunctionKind::kVf) {
                pci = pci_address(kVfFirst + vf_count++);
            }
            if (function.pci.empty()) function.pci = pci;
        }
        for (FunctionConfig& function : config_.functions) {
            if (function.kind != FunctionKind::kSf || !function.pci.empty()) continue;
            if (const FunctionConfig* pf = find_pf(function.pf_device)) function.pci = pf->pci;
        }
    }

    static constexpr std::uint32_t kVfFirst = 64;  // slot 8 of the bus, behind up to 64 PFs
    static std::string pci_address(std::uint32_t number) {
        return fmt::format("0000:03:{:02x}.{}", number / 8, number % 8);
    }

    // As udev names the interface of such a function: enp3s0f0s4 for the SF behind pf0sf4.
    static std::string netdev_name(const FunctionConfig& function, const std::string& pf_pci) {
        unsigned domain = 0, bus = 0, slot = 0, number = 0;
        if (std::sscanf(pf_pci.c_str(), "%x:%x:%x.%x", &domain, &bus, &slot, &number) != 4)
            return {};
        std::string name = domain == 0 ? "en" : fmt::format("enP{}", domain);
        name += fmt::format("p{}s{}f{}", bus, slot, number);
        const std::string& representor = function.representor;
        const std::size_t digits = representor.find_last_not_of("0123456789") + 1;
        if (function.kind == FunctionKind::kPf) {
            name += fmt::format("np{}", number);
        } else if (digits < representor.size()) {
            name += (function.kind == FunctionKind::kSf ? "s" : "v") + representor.substr(digits);
        } else {
            return {};
        }
        return name.size() <= kNetdevNameMax ? name : "";
    }

    void fill_netdevs() {
        for (std::size_t i = 0; i < config_.functions.size(); ++i) {
            FunctionConfig& function = config_.functions[i];
            if (!function.netdev.empty()) continue;
            const FunctionConfig* const pf = find_pf(function.pf_device);
            function.netdev = netdev_name(function, pf != nullptr ? pf->pci : "");
            if (function.netdev.empty()) function.netdev = fmt::format("rdma{}", i);
        }
    }

    // Interfaces of one namespace differ in name. (Functions without one get no interface.)
    void check_netdevs() {
        std::map<std::string, Unique> namespaces;
        for (std::size_t i = 0; i < config_.functions.size(); ++i) {
            const FunctionConfig& function = config_.functions[i];
            if (function.netns.empty()) continue;
            const auto& line = lines_.functions[i];
            Unique& names =
                namespaces
                    .try_emplace(function.netns,
                                 fmt::format("a name in namespace \"{}\"", function.netns), errors_)
                    .first->second;
            names.claim(function.netdev, {line.netdev, line.path + ".netdev"});
        }
    }

    void check_addresses() {
        Unique macs("a MAC address", errors_);
        Unique ips("an address", errors_);
        Unique pcis("a PCI address", errors_);
        for (std::size_t i = 0; i < config_.functions.size(); ++i) {
            const FunctionConfig& function = config_.functions[i];
            const auto& line = lines_.functions[i];
            macs.claim(function.mac.to_string(), {line.mac, line.path + ".mac"});
            for (const Gid& ip : function.ips) {
                ips.claim(ip.to_string(), {line.ips, line.path + ".ips"});
            }
            if (line.kind_known && function.kind != FunctionKind::kSf) {
                pcis.claim(function.pci, {line.pci, line.path + ".pci"});
            }
        }
        std::set<MacAddress> seen;  // of two that clash one derived address is enough
        for (std::size_t i = 0; i < config_.functions.size(); ++i) {
            if (!seen.insert(config_.functions[i].mac).second) continue;
            ips.claim(Gid::link_local(config_.functions[i].mac).to_string(),
                      {lines_.functions[i].mac, lines_.functions[i].path + ".mac"});
        }
    }

    CardConfig& config_;
    const TopologyLines& lines_;
    ErrorList& errors_;
};

}  // namespace

void check_topology(CardConfig& config, const TopologyLines& lines, ErrorList& errors) {
    Checker(config, lines, errors).run();
}

}  // namespace rdmalab::card::host
