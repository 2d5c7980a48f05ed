#include "perftest/cluster/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <charconv>

namespace rdmalab::perftest {

namespace {

std::optional<std::uint32_t> ipv4(const std::string& text) {
    in_addr address{};
    if (inet_pton(AF_INET, text.c_str(), &address) != 1) return std::nullopt;
    return ntohl(address.s_addr);
}

std::string text_of(std::uint32_t address) {
    in_addr network{.s_addr = htonl(address)};
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &network, text, sizeof text);
    return text;
}

std::uint32_t mask_of(unsigned prefix) {
    return prefix == 0 ? 0 : ~std::uint32_t{0} << (32 - prefix);
}

std::vector<std::string> items_of(const std::string& list) {
    std::vector<std::string> out;
    for (std::size_t at = 0; at <= list.size();) {
        std::size_t comma = std::min(list.find(',', at), list.size());
        if (comma > at) out.push_back(list.substr(at, comma - at));
        at = comma + 1;
    }
    return out;
}

}  // namespace

std::vector<InterfaceAddress> own_addresses() {
    std::vector<InterfaceAddress> out;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return out;
    for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
        bool is_ipv4 = each->ifa_addr != nullptr && each->ifa_addr->sa_family == AF_INET;
        if (!is_ipv4 || each->ifa_netmask == nullptr) continue;
        auto address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr.s_addr;
        auto mask = reinterpret_cast<const sockaddr_in*>(each->ifa_netmask)->sin_addr.s_addr;
        out.push_back(
            {each->ifa_name, text_of(ntohl(address)), static_cast<unsigned>(std::popcount(mask))});
    }
    freeifaddrs(list);
    return out;
}

bool contains(const std::string& cidr, const std::string& address) {
    std::size_t slash = cidr.find('/');
    std::optional<std::uint32_t> network = ipv4(cidr.substr(0, slash)), one = ipv4(address);
    unsigned prefix = 32;
    if (slash != std::string::npos) {
        auto [end, error] =
            std::from_chars(cidr.data() + slash + 1, cidr.data() + cidr.size(), prefix);
        if (error != std::errc() || end != cidr.data() + cidr.size() || prefix > 32) return false;
    }
    return network && one && (*network & mask_of(prefix)) == (*one & mask_of(prefix));
}

std::string missing_interface(const std::string& list, const std::vector<InterfaceAddress>& have) {
    for (const std::string& item : items_of(list)) {
        for (const InterfaceAddress& each : have) {
            if (each.interface == item || contains(item, each.address)) return "";
        }
    }
    std::string known;
    for (const InterfaceAddress& each : have) {
        known += fmt::format("{}{} {}/{}", known.empty() ? "" : ", ", each.interface, each.address,
                             each.prefix);
    }
    return fmt::format("no interface in {}; there are: {}", list, known);
}

std::optional<std::string> common_network(const std::vector<std::string>& addresses,
                                          const std::vector<InterfaceAddress>& have) {
    for (const InterfaceAddress& each : have) {
        std::optional<std::uint32_t> own = ipv4(each.address);
        if (!own || *own >> 24 == 127) continue;
        std::string cidr = fmt::format("{}/{}", text_of(*own & mask_of(each.prefix)), each.prefix);
        bool all = !addresses.empty() &&
                   std::all_of(addresses.begin(), addresses.end(),
                               [&](const std::string& address) { return contains(cidr, address); });
        if (all) return cidr;
    }
    return std::nullopt;
}

std::optional<std::string> address_of(const std::string& host) {
    addrinfo hints{}, *list = nullptr;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return std::nullopt;
    std::string text =
        text_of(ntohl(reinterpret_cast<const sockaddr_in*>(list->ai_addr)->sin_addr.s_addr));
    freeaddrinfo(list);
    return text;
}

}  // namespace rdmalab::perftest
