// Addresses of the card as the connection manager sees them: which device has one, and which way
// leads to it. The rules stand in cm_abi.h ("Which device").
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/limits.h"
#include "base/result.h"
#include "card/cm_abi.h"
#include "card/config.h"
#include "card/neighbour_port.h"

namespace rdmalab::card {

// Bit i stands for device i.
using DeviceSet = std::uint64_t;
static_assert(limits::kFunctionMax <= 64);

inline constexpr std::uint16_t kFamilyIpv4 = 2, kFamilyIpv6 = 10;  // AF_INET, AF_INET6

// A socket address of an application.
struct CmEndpoint {
    std::uint16_t family = 0;  // 0: none
    std::uint16_t port = 0;
    std::uint32_t scope_id = 0;
    Gid address;

    bool is_given() const { return family != 0; }
    bool is_wildcard() const;
    bool is_loopback() const;

    // nullopt: not a family, or an IPv4 family with an IPv6 address.
    static std::optional<CmEndpoint> from_abi(const abi::CmAddress& address);
    abi::CmAddress to_abi() const;
    static CmEndpoint wildcard(std::uint16_t family, std::uint16_t port);
    std::string to_string() const;
};

class CmDirectory {
public:
    CmDirectory(const CardConfig& config, NeighbourPort& neighbours);

    struct Place {
        std::uint32_t device = 0;
        std::uint8_t gid_index = 0;
        Gid gid;
    };
    struct Way {
        Place source;
        Gid peer;
        MacAddress peer_mac;
    };

    // The device that a local address (not a wildcard) picks. EADDRNOTAVAIL.
    Result<Place> find_local(DeviceSet visible, const CmEndpoint& local) const;
    // The way to `destination`, from `source` if that is given. EHOSTUNREACH, EINVAL when the
    // families differ, ENODEV when no visible device has an address to send from; kAwaitsNeighbour.
    // A loopback destination is sought among all devices of the client's `host` (0: those visible).
    Result<Way> find_way(DeviceSet visible, const std::optional<Place>& source,
                         const CmEndpoint& destination, DeviceSet host = 0) const;
    // The address of a device from which `peer` is reached.
    std::optional<Place> source_for(std::uint32_t device, const Gid& peer) const;
    std::optional<MacAddress> mac_of(const Gid& gid) const;
    std::optional<Place> place_of(std::uint32_t device, const Gid& gid) const;

    const std::vector<Gid>& gids(std::uint32_t device) const { return devices_[device].gids; }
    DeviceSet all() const;

private:
    struct Device {
        std::string name;
        MacAddress mac;
        std::vector<Gid> gids;  // 0: link-local
    };
    Result<Way> find_way_out(DeviceSet visible, const std::optional<Place>& source,
                             const Gid& peer) const;
    std::optional<Place> loopback(DeviceSet visible, const CmEndpoint& address) const;
    std::optional<Place> first_source(DeviceSet visible, const Gid& peer) const;
    std::string describe(DeviceSet visible) const;
    Error not_local(DeviceSet visible, const CmEndpoint& local) const;

    std::string card_;
    NeighbourPort& neighbours_;
    bool has_uplink_ = false;
    std::vector<Device> devices_;
    std::map<Gid, Place> owners_;
};

}  // namespace rdmalab::card
