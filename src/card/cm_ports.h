// The ports of RDMA CM: one port space per service (TCP, UDP, IB, IPoIB), shared by all processes.
// A port is claimed for an address on a set of devices; who shares neither may claim it too.
//
// What conflicts follows Linux: the same address, or a wildcard on either side, unless both allow
// reuse, or both keep to their own family and these differ. A listener needs its port for itself
// even when it allowed reuse.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <vector>

#include "base/prng.h"
#include "card/cm_directory.h"

namespace rdmalab::card {

// An id's hold on a port. It must not move while it is claimed.
struct CmPortClaim {
    std::uint16_t port_space = 0;
    CmEndpoint address;  // its port is the one claimed
    DeviceSet devices = 0;
    bool allows_reuse = false, family_only = false;
    bool is_claimed = false;
};

class CmPorts {
public:
    static constexpr std::uint16_t kEphemeralFirst = 49'152, kEphemeralLast = 65'535;

    explicit CmPorts(std::uint64_t seed) : prng_(seed) {}

    // Port 0 asks for an ephemeral one, which is put into the claim. EADDRINUSE, or EADDRNOTAVAIL
    // when no ephemeral port is free.
    int claim(CmPortClaim& claim);
    void release(CmPortClaim& claim);
    // May a claim that is held begin to listen?
    bool is_exclusive(const CmPortClaim& claim) const;

    std::size_t claimed_count() const;

private:
    static constexpr std::size_t kEphemeralCount = kEphemeralLast - kEphemeralFirst + 1;
    struct Ephemeral {
        explicit Ephemeral(Prng& prng);
        std::deque<std::uint16_t> queue;  // candidates, shuffled; used ones are skipped
        std::bitset<kEphemeralCount> is_queued;
    };
    static std::uint32_t key(const CmPortClaim& claim) {
        return std::uint32_t{claim.port_space} << 16 | claim.address.port;
    }
    static bool conflicts(const CmPortClaim& a, const CmPortClaim& b, bool may_reuse);
    bool is_free_for(const CmPortClaim& claim, bool may_reuse) const;
    bool take_ephemeral(CmPortClaim& claim);
    Ephemeral& ephemeral_of(std::uint16_t port_space);

    Prng prng_;
    std::unordered_map<std::uint32_t, std::vector<CmPortClaim*>> claims_;  // by port space and port
    std::map<std::uint16_t, Ephemeral> ephemeral_;                         // by port space
};

}  // namespace rdmalab::card
