#include "card/cm_ports.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace rdmalab::card {

bool CmPorts::conflicts(const CmPortClaim& a, const CmPortClaim& b, bool may_reuse) {
    if ((a.devices & b.devices) == 0) return false;
    if (may_reuse && a.allows_reuse && b.allows_reuse) return false;
    if (a.family_only && b.family_only && a.address.family != b.address.family) return false;
    return a.address.is_wildcard() || b.address.is_wildcard() ||
           a.address.address == b.address.address;
}

bool CmPorts::is_free_for(const CmPortClaim& claim, bool may_reuse) const {
    const auto holders = claims_.find(key(claim));
    return holders == claims_.end() ||
           std::none_of(holders->second.begin(), holders->second.end(),
                        [&](const CmPortClaim* other) {
                            return other != &claim && conflicts(claim, *other, may_reuse);
                        });
}

int CmPorts::claim(CmPortClaim& claim) {
    if (claim.address.port == 0) {
        if (!take_ephemeral(claim)) return EADDRNOTAVAIL;
    } else if (!is_free_for(claim, true)) {
        return EADDRINUSE;
    }
    claims_[key(claim)].push_back(&claim);
    claim.is_claimed = true;
    return 0;
}

bool CmPorts::is_exclusive(const CmPortClaim& claim) const { return is_free_for(claim, false); }

void CmPorts::release(CmPortClaim& claim) {
    if (!claim.is_claimed) return;
    claim.is_claimed = false;
    const auto holders = claims_.find(key(claim));
    std::erase(holders->second, &claim);
    if (!holders->second.empty()) return;
    claims_.erase(holders);
    const std::uint16_t port = claim.address.port;
    if (port < kEphemeralFirst) return;
    Ephemeral& ephemeral = ephemeral_of(claim.port_space);
    const std::size_t index = port - kEphemeralFirst;
    if (ephemeral.is_queued[index]) return;
    ephemeral.is_queued[index] = true;
    ephemeral.queue.push_back(port);
}

CmPorts::Ephemeral::Ephemeral(Prng& prng) {
    for (std::uint32_t port = kEphemeralFirst; port <= kEphemeralLast; ++port)
        queue.push_back(static_cast<std::uint16_t>(port));
    for (std::size_t i = queue.size(); i > 1; --i) std::swap(queue[i - 1], queue[prng.below(i)]);
    is_queued.set();
}

CmPorts::Ephemeral& CmPorts::ephemeral_of(std::uint16_t port_space) {
    return ephemeral_.try_emplace(port_space, prng_).first->second;
}

bool CmPorts::take_ephemeral(CmPortClaim& claim) {
    Ephemeral& ephemeral = ephemeral_of(claim.port_space);
    while (!ephemeral.queue.empty()) {
        claim.address.port = ephemeral.queue.front();
        ephemeral.queue.pop_front();
        ephemeral.is_queued[claim.address.port - kEphemeralFirst] = false;
        // One that an application asked for by number comes back when it is released.
        if (!claims_.contains(key(claim))) return true;
    }
    claim.address.port = 0;
    return false;
}

std::size_t CmPorts::claimed_count() const {
    std::size_t count = 0;
    for (const auto& [port, holders] : claims_) count += holders.size();
    return count;
}

}  // namespace rdmalab::card
