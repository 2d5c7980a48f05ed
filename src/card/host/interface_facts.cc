#include "card/host/interface_facts.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

#include "card/host/descriptor.h"

namespace rdmalab::card::host {
namespace {

// IPv6, UDP, BTH, XRCETH, AtomicETH, ICRC: what stands around the payload at most.
constexpr std::uint32_t kHeadersMax = 40 + 8 + 12 + 4 + 28 + 4;
constexpr std::uint32_t kMtus[] = {4096, 2048, 1024, 512, 256};

struct FreeList {
    void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};
using AddressList = std::unique_ptr<ifaddrs, FreeList>;

AddressList list_addresses() {
    ifaddrs* list = nullptr;
    return AddressList(::getifaddrs(&list) == 0 ? list : nullptr);
}

template <class Byte>
std::uint8_t count_ones(const Byte* bytes, std::size_t length) {
    int ones = 0;
    for (std::size_t i = 0; i < length; ++i)
        ones += std::popcount(static_cast<std::uint8_t>(bytes[i]));
    return static_cast<std::uint8_t>(ones);
}

InterfaceFacts::Address address_of(const ifaddrs& entry) {
    InterfaceFacts::Address out;
    if (entry.ifa_addr->sa_family == AF_INET) {
        sockaddr_in address, mask;
        std::memcpy(&address, entry.ifa_addr, sizeof address);
        std::memcpy(&mask, entry.ifa_netmask, sizeof mask);
        out.gid = Gid::from_ipv4(ntohl(address.sin_addr.s_addr));
        out.prefix_length = static_cast<std::uint8_t>(std::popcount(mask.sin_addr.s_addr));
    } else {
        sockaddr_in6 address, mask;
        std::memcpy(&address, entry.ifa_addr, sizeof address);
        std::memcpy(&mask, entry.ifa_netmask, sizeof mask);
        std::copy_n(address.sin6_addr.s6_addr, out.gid.bytes.size(), out.gid.bytes.begin());
        out.prefix_length = count_ones(mask.sin6_addr.s6_addr, sizeof mask.sin6_addr.s6_addr);
    }
    return out;
}

std::vector<InterfaceFacts::Address> addresses_of(const std::string& name) {
    std::vector<InterfaceFacts::Address> out;
    const AddressList list = list_addresses();
    for (const int family : {AF_INET, AF_INET6}) {
        for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
            if (name != entry->ifa_name || entry->ifa_addr == nullptr ||
                entry->ifa_addr->sa_family != family || entry->ifa_netmask == nullptr)
                continue;
            const auto address = address_of(*entry);
            if (!address.gid.is_link_local()) out.push_back(address);
        }
    }
    return out;
}

std::string interface_names() {
    std::string text;
    struct if_nameindex* const names = ::if_nameindex();
    for (auto* name = names; name != nullptr && name->if_index != 0; ++name) {
        if (std::strcmp(name->if_name, "lo") == 0) continue;
        text += (text.empty() ? "" : ", ") + std::string(name->if_name);
    }
    ::if_freenameindex(names);
    return text.empty() ? "none" : text;
}

}  // namespace

bool is_up(std::uint32_t flags) { return (flags & IFF_UP) != 0 && (flags & IFF_RUNNING) != 0; }

std::uint32_t roce_mtu_for(std::uint32_t interface_mtu) {
    const auto fits = [&](std::uint32_t mtu) { return mtu + kHeadersMax <= interface_mtu; };
    const auto* const found = std::find_if(std::begin(kMtus), std::end(kMtus), fits);
    return found == std::end(kMtus) ? 0 : *found;
}

Result<InterfaceFacts> find_interface(const std::string& name) {
    InterfaceFacts facts;
    facts.index = static_cast<int>(::if_nametoindex(name.c_str()));
    if (facts.index == 0 || name.size() >= IFNAMSIZ) {
        return Error{ENODEV, fmt::format("expected a network interface, found no \"{}\" (there "
                                         "are: {})",
                                         name, interface_names())};
    }
    const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    const auto ask = [&](unsigned long what) { return ::ioctl(fd.value(), what, &request) == 0; };
    if (!ask(SIOCGIFFLAGS)) return system_error(fmt::format("cannot look at {}", name));
    facts.is_up = is_up(static_cast<std::uint16_t>(request.ifr_flags));
    if (!ask(SIOCGIFMTU)) return system_error(fmt::format("cannot look at {}", name));
    facts.mtu = static_cast<std::uint32_t>(request.ifr_mtu);
    if (!ask(SIOCGIFHWADDR)) return system_error(fmt::format("cannot look at {}", name));
    facts.is_ethernet = request.ifr_hwaddr.sa_family == ARPHRD_ETHER;
    std::memcpy(facts.mac.bytes.data(), request.ifr_hwaddr.sa_data, facts.mac.bytes.size());
    facts.addresses = addresses_of(name);
    return facts;
}

}  // namespace rdmalab::card::host
