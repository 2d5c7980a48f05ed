#include "card/address_book.h"

#include <cerrno>

#include "base/limits.h"

namespace rdmalab::card {

AddressBook::AddressBook(const CardConfig& config) {
    for (const FunctionConfig& function : config.functions) {
        std::vector<Gid>& gids = gids_.emplace_back();
        gids.push_back(Gid::link_local(function.mac));
        for (const Gid& ip : function.ips) {
            if (gids.size() < limits::kGidMax) gids.push_back(ip);
        }
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
    if (found == owners_.end()) return EHOSTUNREACH;
    if (av.destination.is_ipv4() != source.is_ipv4()) return EINVAL;
    av.destination_mac = found->second;
    return 0;
}

}  // namespace rdmalab::card
