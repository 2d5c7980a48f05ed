#include "transport/multicast.h"

#include <algorithm>
#include <cerrno>

#include "base/limits.h"

namespace rdmalab::transport {

int MulticastTable::attach(const Gid& group, Qpn qpn, bool& is_new) {
    is_new = false;
    const auto found = groups_.find(group);
    if (found == groups_.end()) {
        if (groups_.size() >= limits::kMcastGroupMax) return ENOMEM;
        groups_[group].push_back(qpn);
    } else {
        auto& members = found->second;
        if (std::find(members.begin(), members.end(), qpn) != members.end()) return 0;
        if (members.size() >= limits::kMcastQpMax) return ENOMEM;
        members.push_back(qpn);
    }
    is_new = true;
    return 0;
}

int MulticastTable::detach(const Gid& group, Qpn qpn) {
    const auto found = groups_.find(group);
    if (found == groups_.end()) return EINVAL;
    if (std::erase(found->second, qpn) == 0) return EINVAL;
    if (found->second.empty()) groups_.erase(found);
    return 0;
}

void MulticastTable::detach_all(Qpn qpn) {
    for (auto& [group, members] : groups_) std::erase(members, qpn);
    std::erase_if(groups_, [](const auto& entry) { return entry.second.empty(); });
}

std::span<const Qpn> MulticastTable::members(const Gid& group) const {
    const auto found = groups_.find(group);
    if (found == groups_.end()) return {};
    return found->second;
}

}  // namespace rdmalab::transport
