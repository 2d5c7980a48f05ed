// What the card asks its host about peers beyond its uplinks. Who they are follows from the host's
// routes and its table of neighbours (ARP, ND): an uplink shares its address with the kernel, which
// asks and answers for both.
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>

#include "base/address.h"
#include "base/result.h"

namespace rdmalab::card {

// The code of an error that passes by itself: the neighbour has been asked and not yet answered. A
// control request that ends with it has changed nothing and is to be repeated.
inline constexpr int kAwaitsNeighbour = EINPROGRESS;

class NeighbourPort {
public:
    virtual ~NeighbourPort() = default;
    struct Route {
        std::uint32_t function = 0;
        Gid source;
    };
    // The function behind the uplink that leads to `peer`, and the address to speak to it from.
    virtual std::optional<Route> find_route(const Gid&) { return std::nullopt; }
    // kAwaitsNeighbour, or EHOSTUNREACH: there is no way, or nobody answers.
    virtual Result<MacAddress> find_neighbour(std::uint32_t, const Gid& /*source*/, const Gid&) {
        return Error{EHOSTUNREACH, "the device has no uplink"};
    }
};

}  // namespace rdmalab::card
