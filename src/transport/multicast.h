// Which QPs of this function listen to which multicast group (IBTA vol. 1, 10.5).
#pragma once

#include <map>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/ids.h"

namespace rdmalab::transport {

inline constexpr Qpn kMulticastQpn{0xff'ffff};

class MulticastTable {
public:
    // 0 or an errno value. Attaching twice is no error and has no effect.
    int attach(const Gid& group, Qpn qpn, bool& is_new);
    int detach(const Gid& group, Qpn qpn);
    void detach_all(Qpn qpn);
    std::span<const Qpn> members(const Gid& group) const;

private:
    std::map<Gid, std::vector<Qpn>> groups_;
};

}  // namespace rdmalab::transport
