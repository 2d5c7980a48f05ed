#include "card/address_book.h"

#include <algorithm>
#include <cerrno>

#include "base/limits.h"

namespace rdmalab::card {

namespace {

bool has_uplink(const CardConfig& config, const FunctionConfig& function) {
    return std::any_of(config.ports.begin(), config.ports.end(), [&](const PortConfig& port) {
        return !port.uplink.empty() && port.pf_device == function.pf_device;
    });
}

}  // namespace

AddressBook::AddressBook(const CardConfig& config, NeighbourPort& neighbours)
    : neighbours_(&neighbours) {
    for (const FunctionConfig& function : config.functions) {
        std::vector<Gid>& gids = gids_.emplace_back();
        gids.push_back(Gid::link_local(function.mac));
        for (const Gid& ip : function.ips) {
            if (gids.size() < limits::kGidMax) gids.push_back(ip);
        }
        has_uplink_.push_back(has_uplink(config, function));
        for (const Gid& gid : gids) owners_.emplace(gid, function.mac);
    }
}

int AddressBook::resolve(std::uint32_t function, transport::AddressVector& av) const {
    // RoCE has no LIDs: every address is a global one.
    if (!av.is_global || av.port != 1 || av.gid_index >= gids_[function].size()) return EINVAL;
    const Gid& source = gids_[function][av.gid_index];
    if (av.destination.is_multicast()) {
        if (av.destination.is_ipv4() && !source.is_ipv4()) return EINVAL;
        av.destination_mac = av.destination.multicast_mac();
        return 0;
    }
    const auto found = owners_.find(av.destination);
    if (found == owners_.end() && !has_uplink_[function]) return EHOSTUNREACH;
    if (av.destination.is_ipv4() != source.is_ipv4()) return EINVAL;
    if (found != owners_.end()) {
        av.destination_mac = found->second;
        return 0;
    }
    const auto mac = neighbours_->find_neighbour(function, source, av.destination);
    if (!mac.ok()) return mac.error().code;
    av.destination_mac = *mac;
    return 0;
}

}  // namespace rdmalab::card
