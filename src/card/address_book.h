// Which GIDs the functions of a card have, and which MAC answers to a GID. The card knows its own
// functions; peers beyond an uplink are the host's knowledge.
#pragma once

#include <map>
#include <vector>

#include "card/config.h"
#include "card/neighbour_port.h"
#include "transport/types.h"

namespace rdmalab::card {

class AddressBook {
public:
    AddressBook(const CardConfig& config, NeighbourPort& neighbours);

    // Index 0 is the link-local GID, made from the MAC; the configured addresses follow.
    const std::vector<Gid>& gids(std::uint32_t function) const { return gids_[function]; }

    // Checks what a client gives as address vector and fills in the destination MAC: 0, EINVAL, or
    // EHOSTUNREACH when nobody has that GID; kAwaitsNeighbour.
    int resolve(std::uint32_t function, transport::AddressVector& av) const;

private:
    NeighbourPort* neighbours_;
    std::vector<std::vector<Gid>> gids_;
    std::vector<bool> has_uplink_;
    std::map<Gid, MacAddress> owners_;
};

}  // namespace rdmalab::card
