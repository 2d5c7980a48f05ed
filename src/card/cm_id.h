// The objects of CM sessions: ids with what an application has set on them, and who waits for whom.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "card/cm_directory.h"
#include "card/cm_host.h"
#include "card/cm_ports.h"
#include "transport/cm.h"

namespace rdmalab::card {

struct CmSession {
    CmSessionId id;
    DeviceSet host = 0;     // the devices of the client's network namespace
    DeviceSet visible = 0;  // those of them that the client restricts itself to
    std::set<std::uint32_t> ids;
    std::unordered_map<std::uint32_t, std::size_t> channels;  // handle -> ids that use it
    std::uint32_t next_channel = 1;
};

// As rdma_cm's own: what an id may be asked to do next.
enum class CmIdState : std::uint8_t {
    kIdle,
    kBound,
    kAddrResolved,
    kRouteResolved,
    kListening,
    kRequested,   // passive, not answered yet
    kConnecting,  // active from connect on, passive from accept on; established and after, too
};

struct CmMulticast {
    std::uint64_t cookie = 0;
    std::uint32_t events_sent = 0;
};

struct CmId {
    std::uint32_t handle = 0;
    CmSession* session = nullptr;
    std::uint64_t cookie = 0;
    std::uint32_t channel = abi::kCmNone;
    std::uint8_t qp_type = 0;  // enum ibv_qp_type
    CmIdState state = CmIdState::kIdle;

    // Addresses as the application knows them; the port of `claim.address` is the local one.
    CmPortClaim claim;
    CmEndpoint peer;
    std::optional<CmDirectory::Place> place;  // bound to a device
    Gid peer_gid;
    MacAddress peer_mac;
    std::uint32_t remote_qkey = 0;

    // Options.
    std::uint8_t traffic_class = 0, ack_timeout = 0;
    std::optional<bool> family_only;

    std::optional<transport::CmConnId> connection;  // of the Cm of place->device

    // A listener: its backlog, the requests that nobody has adopted yet, where it listens.
    std::uint32_t backlog = 0;
    std::set<std::uint32_t> waiting;
    DeviceSet listens_on = 0;

    // A new id that waits to be adopted: its listener, if that is still there, and the events that
    // came meanwhile.
    bool is_adopted = true;
    std::uint32_t listener = abi::kCmNone;
    std::vector<abi::CmEventRecord> held;

    std::uint32_t events_sent = 0;  // records in the channel or read, but those of multicasts
    std::map<std::uint32_t, CmMulticast> multicasts;

    bool is_datagram() const { return qp_type == kQpTypeUd; }
    static constexpr std::uint8_t kQpTypeUd = 4;
};

}  // namespace rdmalab::card
