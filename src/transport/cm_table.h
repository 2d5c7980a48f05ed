// The connections of one Cm, and the three ways to find one: by our own communication id (slot and
// generation, scrambled: no hash needed), by what the peer calls it (hash), and by its deadline
// (ordered set). None of them grows with the number of connections by more than its logarithm.
#pragma once

#include <deque>
#include <set>
#include <unordered_map>
#include <utility>

#include "transport/cm_state.h"
#include "transport/cm_types.h"
#include "wire/headers.h"

namespace rdmalab::transport {

struct CmConnection {
    CmConnId id;
    CmState state = CmState::kIdle;
    bool is_active = false;
    bool is_abandoned = false;  // nobody owns the id any more: no events, freed when idle
    std::uint32_t local_comm_id = 0, remote_comm_id = 0;
    std::uint64_t remote_ca_guid = 0;
    std::uint64_t transaction_id = 0;
    std::uint64_t service_id = 0;
    CmListenerId listener;
    wire::LowerTemplate lower;
    Qpn local_qpn;
    CmQpFacts facts;

    wire::MadBytes last_mad;  // what is sent again
    std::uint8_t retries_left = 0, retries_max = 0;
    Duration retry_interval;
    Duration linger;  // how long the peer may still repeat itself when all is over
    Instant deadline = Instant::never();
};

// What the peer's messages name a connection by.
struct CmPeerKey {
    enum class Kind : std::uint8_t { kCommId, kQpn, kSidr };
    Kind kind;
    std::uint32_t number;     // communication id, QPN, request id
    std::uint64_t high, low;  // CA GUID, or the GID of a SIDR request
    bool operator==(const CmPeerKey&) const = default;

    static CmPeerKey comm_id(std::uint32_t id, std::uint64_t guid) {
        return {Kind::kCommId, id, guid, 0};
    }
    static CmPeerKey qpn(Qpn qpn, std::uint64_t guid) { return {Kind::kQpn, qpn.value, guid, 0}; }
    static CmPeerKey sidr(std::uint32_t request_id, const Gid& gid);
};
struct CmPeerKeyHash {
    std::size_t operator()(const CmPeerKey& key) const noexcept;
};

class CmTable {
public:
    // `scramble` makes communication ids of two runs differ.
    CmTable(std::uint32_t capacity, std::uint32_t scramble)
        : capacity_(capacity), scramble_(scramble) {}

    CmConnection* create();  // nullptr: full
    void free(CmConnection& connection);
    CmConnection* find(CmConnId id);
    const CmConnection* find(CmConnId id) const;
    CmConnection* find_local(std::uint32_t comm_id);

    // False: the key is taken.
    bool link(const CmPeerKey& key, const CmConnection& connection);
    CmConnection* find_peer(const CmPeerKey& key);
    // Removes the key if it is this connection's.
    void unlink(const CmPeerKey& key, const CmConnection& connection);

    void set_deadline(CmConnection& connection, Instant deadline);
    Instant next_deadline() const;
    CmConnection* next_due(Instant now);  // nullptr: none

    std::size_t size() const { return slots_.size() - free_slots_.size(); }
    std::size_t key_count() const { return peers_.size(); }
    std::size_t timer_count() const { return timers_.size(); }

private:
    static constexpr std::uint32_t kSlotBits = 17, kSlotMask = (1u << kSlotBits) - 1;
    static_assert(limits::kCmConnectionMax <= 1u << kSlotBits);
    static std::uint32_t slot_of(const CmConnection& c) { return c.id.value & kSlotMask; }

    std::uint32_t capacity_, scramble_;
    std::deque<CmConnection> slots_;
    std::deque<std::uint32_t> free_slots_;  // oldest first, so that ids come back late
    std::unordered_map<CmPeerKey, CmConnId, CmPeerKeyHash> peers_;
    std::set<std::pair<Instant, std::uint32_t>> timers_;
};

}  // namespace rdmalab::transport
