#include "card/cm_directory.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rdmalab::card {
namespace {

constexpr std::uint32_t kLoopbackNet = 127;

bool contains(DeviceSet set, std::size_t device) { return (set >> device & 1) != 0; }

Gid ipv6_loopback() {
    Gid gid;
    gid.bytes[15] = 1;
    return gid;
}

}  // namespace

// --- Endpoints

bool CmEndpoint::is_wildcard() const {
    return address.is_ipv4() ? address.ipv4() == 0 : address.is_zero();
}

bool CmEndpoint::is_loopback() const {
    return address.is_ipv4() ? address.ipv4() >> 24 == kLoopbackNet : address == ipv6_loopback();
}

std::optional<CmEndpoint> CmEndpoint::from_abi(const abi::CmAddress& from) {
    CmEndpoint to;
    if (from.family == 0) return to;
    to.family = from.family;
    to.port = from.port;
    to.scope_id = from.scope_id;
    std::memcpy(to.address.bytes.data(), from.address, sizeof from.address);
    if (from.family == kFamilyIpv4) return to.address.is_ipv4() ? std::optional(to) : std::nullopt;
    return from.family == kFamilyIpv6 ? std::optional(to) : std::nullopt;
}

abi::CmAddress CmEndpoint::to_abi() const {
    abi::CmAddress to{};
    to.family = family;
    to.port = port;
    to.scope_id = scope_id;
    std::memcpy(to.address, address.bytes.data(), sizeof to.address);
    return to;
}

CmEndpoint CmEndpoint::wildcard(std::uint16_t family, std::uint16_t port) {
    CmEndpoint endpoint;
    endpoint.family = family;
    endpoint.port = port;
    if (family == kFamilyIpv4) endpoint.address = Gid::from_ipv4(0);
    return endpoint;
}

std::string CmEndpoint::to_string() const { return address.to_string(); }

// --- Directory

CmDirectory::CmDirectory(const CardConfig& config, NeighbourPort& neighbours)
    : card_(config.name), neighbours_(neighbours) {
    for (const PortConfig& port : config.ports) has_uplink_ |= !port.uplink.empty();
    for (const FunctionConfig& function : config.functions) {
        Device& device = devices_.emplace_back();
        device.name = function.device;
        device.mac = function.mac;
        device.gids.push_back(Gid::link_local(function.mac));
        for (const Gid& ip : function.ips)
            if (device.gids.size() < limits::kGidMax) device.gids.push_back(ip);
        const auto index = static_cast<std::uint32_t>(devices_.size() - 1);
        for (std::size_t k = 0; k < device.gids.size(); ++k)
            owners_.emplace(device.gids[k],
                            Place{index, static_cast<std::uint8_t>(k), device.gids[k]});
    }
}

DeviceSet CmDirectory::all() const {
    return devices_.size() == 64 ? ~DeviceSet{0} : (DeviceSet{1} << devices_.size()) - 1;
}

std::optional<MacAddress> CmDirectory::mac_of(const Gid& gid) const {
    const auto owner = owners_.find(gid);
    if (owner == owners_.end()) return std::nullopt;
    return devices_[owner->second.device].mac;
}

std::optional<CmDirectory::Place> CmDirectory::place_of(std::uint32_t device,
                                                        const Gid& gid) const {
    const std::vector<Gid>& gids = devices_[device].gids;
    const auto found = std::find(gids.begin(), gids.end(), gid);
    if (found == gids.end()) return std::nullopt;
    return Place{device, static_cast<std::uint8_t>(found - gids.begin()), gid};
}

std::optional<CmDirectory::Place> CmDirectory::source_for(std::uint32_t device,
                                                          const Gid& peer) const {
    const std::vector<Gid>& gids = devices_[device].gids;
    const auto fits = [&](const Gid& gid) {
        if (peer.is_ipv4() || gid.is_ipv4()) return peer.is_ipv4() && gid.is_ipv4();
        return peer.is_link_local() == gid.is_link_local();
    };
    const auto found = std::find_if(gids.begin(), gids.end(), fits);
    if (found == gids.end()) return std::nullopt;
    return Place{device, static_cast<std::uint8_t>(found - gids.begin()), *found};
}

std::optional<CmDirectory::Place> CmDirectory::first_source(DeviceSet visible,
                                                            const Gid& peer) const {
    for (std::uint32_t device = 0; device < devices_.size(); ++device) {
        if (!contains(visible, device)) continue;
        if (auto place = source_for(device, peer)) return place;
    }
    return std::nullopt;
}

// 127.0.0.1: the first device with an IPv4 address. ::1: the first with a global IPv6 address, else
// the link-local address of the first that has an address at all.
std::optional<CmDirectory::Place> CmDirectory::loopback(DeviceSet visible,
                                                        const CmEndpoint& address) const {
    if (auto place = first_source(visible, address.address)) return place;
    if (address.address.is_ipv4()) return std::nullopt;
    std::optional<std::uint32_t> bare;
    for (std::uint32_t device = 0; device < devices_.size(); ++device) {
        if (!contains(visible, device)) continue;
        if (devices_[device].gids.size() > 1) return Place{device, 0, devices_[device].gids[0]};
        if (!bare) bare = device;
    }
    if (!bare) return std::nullopt;
    return Place{*bare, 0, devices_[*bare].gids[0]};
}

Result<CmDirectory::Place> CmDirectory::find_local(DeviceSet visible,
                                                   const CmEndpoint& local) const {
    if (local.is_loopback()) {
        if (auto place = loopback(visible, local)) return *place;
        return not_local(visible, local);
    }
    const auto owner = owners_.find(local.address);
    if (owner == owners_.end() || !contains(visible, owner->second.device))
        return not_local(visible, local);
    return owner->second;
}

Result<CmDirectory::Way> CmDirectory::find_way(DeviceSet visible,
                                               const std::optional<Place>& source,
                                               const CmEndpoint& destination,
                                               DeviceSet host) const {
    std::optional<Place> target;
    Way way;
    if (destination.address.is_multicast()) {
        way.peer = destination.address;
        way.peer_mac = way.peer.multicast_mac();
    } else if (destination.is_loopback() || destination.is_wildcard()) {
        target = loopback(host != 0 ? host : visible, destination);
    } else if (const auto owner = owners_.find(destination.address); owner != owners_.end()) {
        target = owner->second;
    }
    if (target) {
        way.peer = target->gid;
        way.peer_mac = devices_[target->device].mac;
    } else if (!destination.address.is_multicast()) {
        if (has_uplink_) return find_way_out(visible, source, destination.address);
        return Error{EHOSTUNREACH, destination.to_string() + " belongs to no device of card " +
                                       card_ + "; this process sees " + describe(visible)};
    }
    if (source) {
        if (source->gid.is_ipv4() != way.peer.is_ipv4())
            return Error{EINVAL, "the way from " + source->gid.to_string() + " (" +
                                     devices_[source->device].name + ") to " +
                                     destination.to_string() + " mixes IPv4 and IPv6"};
        way.source = *source;
    } else if (target && contains(visible, target->device)) {
        way.source = *target;
    } else if (const auto first = first_source(visible, way.peer)) {
        way.source = *first;
    } else {
        return Error{ENODEV, "no device to reach " + destination.to_string() +
                                 " from; this process sees " + describe(visible)};
    }
    return way;
}

// To a peer that is none of this card's devices.
Result<CmDirectory::Way> CmDirectory::find_way_out(DeviceSet visible,
                                                   const std::optional<Place>& source,
                                                   const Gid& peer) const {
    Way way;
    way.peer = peer;
    if (source) {
        way.source = *source;
    } else {
        const auto route = neighbours_.find_route(peer);
        if (!route || !contains(visible, route->function))
            return Error{EHOSTUNREACH, peer.to_string() + " belongs to no device of card " + card_ +
                                           ", and no uplink of this process leads to it; it sees " +
                                           describe(visible)};
        auto place = place_of(route->function, route->source);
        if (!place) place = source_for(route->function, peer);
        if (!place)
            return Error{ENODEV, devices_[route->function].name + " has no address from which " +
                                     peer.to_string() + " can be reached"};
        way.source = *place;
    }
    if (way.source.gid.is_ipv4() != peer.is_ipv4())
        return Error{EINVAL, "the way from " + way.source.gid.to_string() + " (" +
                                 devices_[way.source.device].name + ") to " + peer.to_string() +
                                 " mixes IPv4 and IPv6"};
    const auto mac = neighbours_.find_neighbour(way.source.device, way.source.gid, peer);
    if (!mac.ok()) return mac.error();
    way.peer_mac = *mac;
    return way;
}

Error CmDirectory::not_local(DeviceSet visible, const CmEndpoint& local) const {
    const auto owner = owners_.find(local.address);
    std::string text = local.to_string();
    if (owner == owners_.end())
        text += " belongs to no device of card " + card_;
    else
        text += " belongs to " + devices_[owner->second.device].name +
                ", which this process does not see";
    return {EADDRNOTAVAIL, text + "; it sees " + describe(visible)};
}

// "mlx5_2 (10.0.0.1), mlx5_3 (10.0.0.2)"
std::string CmDirectory::describe(DeviceSet visible) const {
    std::string text;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
        const Device& device = devices_[i];
        if (!contains(visible, i) || device.gids.size() == 1) continue;
        text += (text.empty() ? "" : ", ") + device.name + " (";
        for (std::size_t k = 1; k < device.gids.size(); ++k)
            text += (k > 1 ? ", " : "") + device.gids[k].to_string();
        text += ")";
    }
    return text.empty() ? "no device with an address" : text;
}

}  // namespace rdmalab::card
