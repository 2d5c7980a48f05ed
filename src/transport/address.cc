#include "transport/address.h"

#include <cerrno>

namespace rdmalab::transport {
namespace {

constexpr std::uint8_t kCnpTrafficClass = 48 << 2;
// An address vector with hop limit 0 was filled in by a program that does not know RoCEv2; a packet
// with that value could not leave.
constexpr std::uint8_t kDefaultHopLimit = 64;

}  // namespace

Result<wire::Path> resolve_path(const Core& core, const AddressVector& av, Qpn local, Qpn remote) {
    if (!av.is_global || av.gid_index >= core.gids.size()) return Error{EINVAL, {}};
    const Gid& source = core.gids[av.gid_index];
    if (source.is_zero() || av.destination.is_zero()) return Error{EINVAL, {}};
    if (source.is_ipv4() != av.destination.is_ipv4()) return Error{EINVAL, {}};
    wire::Path path;
    path.source_mac = core.config.mac;
    path.destination_mac = av.destination_mac;
    path.source = source;
    path.destination = av.destination;
    path.traffic_class =
        static_cast<std::uint8_t>((av.traffic_class & ~wire::kEcnMask) | wire::kEcnEct0);
    path.hop_limit = av.hop_limit == 0 ? kDefaultHopLimit : av.hop_limit;
    path.flow_label = av.flow_label & 0xf'ffff;
    path.source_port = wire::source_port_for(path.flow_label, local, remote);
    return path;
}

wire::Path notification_path(wire::Path path) {
    path.traffic_class = kCnpTrafficClass;
    return path;
}

}  // namespace rdmalab::transport
