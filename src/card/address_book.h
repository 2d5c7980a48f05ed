// Which GIDs the functions of a card have, and which MAC answers to a GID. The card knows all its
// neighbours, so resolving an address needs no protocol.
#pragma once

#include <map>
#include <vector>

#include "card/config.h"
#include "transport/types.h"

namespace rdmalab::card {

class AddressBook {
public:
    explicit AddressBook(const CardConfig& config);

    // Index 0 is the link-local GID, made from the MAC; the configured addresses follow.
    const std::vector<Gid>& gids(std::uint32_t function) const { return gids_[function]; }

    // Checks what a client gives as address vector and fills in the destination MAC: 0, EINVAL, or
    // EHOSTUNREACH when nobody has that GID.
    int resolve(std::uint32_t function, transport::AddressVector& av) const;

private:
    std::vector<std::vector<Gid>> gids_;
    std::map<Gid, MacAddress> owners_;
};

}  // namespace rdmalab::card
