// From an address vector to the bytes below the BTH.
#pragma once

#include "transport/core.h"

namespace rdmalab::transport {

// The path that an address vector describes; EINVAL when it cannot be one of RoCEv2: no GRH, no
// such source GID, or GIDs of two families.
Result<wire::Path> resolve_path(const Core& core, const AddressVector& av, Qpn local, Qpn remote);

// The same path for congestion notifications: their own DSCP, not ECN-capable (A17.9.3).
wire::Path notification_path(wire::Path path);

}  // namespace rdmalab::transport
