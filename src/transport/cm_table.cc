#include "transport/cm_table.h"

namespace rdmalab::transport {
namespace {

std::uint64_t mix(std::uint64_t value) {
    value ^= value >> 31;
    value *= 0x9e37'79b9'7f4a'7c15;
    return value ^ value >> 29;
}

}  // namespace

CmPeerKey CmPeerKey::sidr(std::uint32_t request_id, const Gid& gid) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(gid.bytes.data());
    return {Kind::kSidr, request_id, load_bytes<Be64>(bytes), load_bytes<Be64>(bytes + 8)};
}

std::size_t CmPeerKeyHash::operator()(const CmPeerKey& key) const noexcept {
    const std::uint64_t kind_number =
        std::uint64_t{static_cast<std::uint8_t>(key.kind)} << 32 | key.number;
    return mix(mix(mix(kind_number) + key.high) + key.low);
}

CmConnection* CmTable::create() {
    if (size() >= capacity_) return nullptr;
    std::uint32_t slot;
    if (free_slots_.empty()) {
        slot = static_cast<std::uint32_t>(slots_.size());
        slots_.emplace_back().id.value = slot;
    } else {
        slot = free_slots_.front();
        free_slots_.pop_front();
    }
    std::uint32_t value = slots_[slot].id.value;
    // Generation 0 means free, communication id 0 means none.
    do value += 1u << kSlotBits;
    while (value >> kSlotBits == 0 || (value ^ scramble_) == 0);
    CmConnection& connection = slots_[slot];
    connection = CmConnection{};
    connection.id.value = value;
    connection.local_comm_id = value ^ scramble_;
    return &connection;
}

void CmTable::free(CmConnection& connection) {
    set_deadline(connection, Instant::never());
    connection.local_comm_id = 0;
    free_slots_.push_back(slot_of(connection));
}

const CmConnection* CmTable::find(CmConnId id) const {
    const std::uint32_t slot = id.value & kSlotMask;
    if (slot >= slots_.size()) return nullptr;
    const CmConnection& connection = slots_[slot];
    return connection.id == id && connection.local_comm_id != 0 ? &connection : nullptr;
}

CmConnection* CmTable::find(CmConnId id) {
    return const_cast<CmConnection*>(std::as_const(*this).find(id));
}

CmConnection* CmTable::find_local(std::uint32_t comm_id) {
    return comm_id == 0 ? nullptr : find(CmConnId{comm_id ^ scramble_});
}

bool CmTable::link(const CmPeerKey& key, const CmConnection& connection) {
    return peers_.try_emplace(key, connection.id).second;
}

CmConnection* CmTable::find_peer(const CmPeerKey& key) {
    const auto found = peers_.find(key);
    return found == peers_.end() ? nullptr : find(found->second);
}

void CmTable::unlink(const CmPeerKey& key, const CmConnection& connection) {
    const auto found = peers_.find(key);
    if (found != peers_.end() && found->second == connection.id) peers_.erase(found);
}

void CmTable::set_deadline(CmConnection& connection, Instant deadline) {
    if (connection.deadline == deadline) return;
    if (!connection.deadline.is_never()) timers_.erase({connection.deadline, slot_of(connection)});
    connection.deadline = deadline;
    if (!deadline.is_never()) timers_.insert({deadline, slot_of(connection)});
}

Instant CmTable::next_deadline() const {
    return timers_.empty() ? Instant::never() : timers_.begin()->first;
}

CmConnection* CmTable::next_due(Instant now) {
    if (timers_.empty() || timers_.begin()->first > now) return nullptr;
    return &slots_[timers_.begin()->second];
}

}  // namespace rdmalab::transport
