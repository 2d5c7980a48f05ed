// What the connection manager of the card needs from its host: the pipes of the event channels, and
// the neighbours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "card/cm_abi.h"
#include "card/neighbour_port.h"

namespace rdmalab::card {

using CmSessionId = StrongId<struct CmSessionIdTag>;  // chosen by the host, never reused

// What the connection manager of a card holds.
struct CmCounts {
    std::size_t sessions, ids, ports, connections;
    bool operator==(const CmCounts&) const = default;
};

class CmHostPort : public NeighbourPort {
public:
    // Record for an event channel, behind all before it. Must not block; what a full pipe does not
    // take is kept.
    virtual void notify_cm(CmSessionId session, std::uint32_t channel,
                           const abi::CmEventRecord& record) = 0;
    // Takes the records of an id (CmEventRecord::id) that the client has not read yet back out of
    // the channel and returns them in order. All others stay, in order.
    virtual std::vector<abi::CmEventRecord> withdraw_cm(CmSessionId session, std::uint32_t channel,
                                                        std::uint32_t id) = 0;
};

}  // namespace rdmalab::card
