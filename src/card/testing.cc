#include "card/testing.h"

#include <algorithm>
#include <cstdlib>

namespace rdmalab::card::testing {

// --- FakeHost

FakeHost::~FakeHost() {
    for (const auto& [offset, region] : regions_) std::free(region.base);
}

Result<MappedRegion> FakeHost::allocate_region(OwnerId, std::uint64_t length) {
    if (allocations_left == 0 || length > region_length_max) return Error{ENOMEM, "no memory left"};
    --allocations_left;
    MappedRegion region;
    region.base = static_cast<std::byte*>(std::aligned_alloc(4096, length));
    std::memset(region.base, 0, length);
    region.region = {next_offset_, length};
    next_offset_ += length;
    regions_.emplace(region.region.offset, region);
    return region;
}
void FakeHost::free_region(OwnerId, const MappedRegion& region) {
    std::free(regions_.at(region.region.offset).base);
    regions_.erase(region.region.offset);
}
void FakeHost::notify_channel(OwnerId owner, std::uint32_t channel,
                              const abi::CompletionEvent& event) {
    channel_notes.push_back({owner, channel, event});
}
void FakeHost::notify_async(OwnerId owner, const abi::AsyncEventRecord& event) {
    async_notes.push_back({owner, event});
}
void FakeHost::wake(std::atomic<std::uint32_t>&) { ++wakes; }
void FakeHost::captured(TapPoint point, const wire::Frame& frame, bool inbound) {
    if (on_capture) return on_capture(point, const_cast<wire::Frame&>(frame), inbound);
    captures.push_back({point, frame, inbound});
}

bool FakeHost::deliver_to_netdev(std::uint32_t function, const wire::Frame& frame) {
    if (!netdevs.contains(function)) return false;
    const ByteView header = frame.header_bytes();
    std::vector<std::byte> bytes(header.begin(), header.end());
    for (unsigned i = 0; i < frame.segment_count; ++i) {
        const auto* const start = reinterpret_cast<const std::byte*>(frame.segments[i].address);
        bytes.insert(bytes.end(), start, start + frame.segments[i].length);
    }
    netdev_frames.push_back({function, std::move(bytes)});
    return true;
}

// --- DirectMemory

std::size_t FakeHost::send_by_uplink(std::uint32_t, std::span<const UplinkBurst> bursts) {
    const std::size_t count = std::min(bursts.size(), uplink_room);
    uplink_room -= count;
    for (const UplinkBurst& burst : bursts.first(count)) {
        UplinkBytes& sent = uplink_sent.emplace_back();
        sent.segment_length = burst.segment_length;
        sent.bytes.assign(burst.head.begin(), burst.head.end());
        sent.bytes.insert(sent.bytes.end(), burst.payload.begin(), burst.payload.end());
    }
    return count;
}

Result<MacAddress> FakeHost::find_neighbour(std::uint32_t, const Gid&, const Gid& peer) {
    const auto found = neighbours.find(peer);
    if (found != neighbours.end()) return found->second;
    return Error{answers ? EHOSTUNREACH : kAwaitsNeighbour, ""};
}

bool DirectMemory::is_there(SpaceId space, std::uint64_t address, std::uint64_t length) const {
    if (space == kCardSpace) return true;
    const auto ranges = ranges_.find(space.value);
    if (ranges == ranges_.end()) return false;
    return std::any_of(ranges->second.begin(), ranges->second.end(), [&](ByteSpan range) {
        const auto start = reinterpret_cast<std::uintptr_t>(range.data());
        return address >= start && length <= range.size() &&
               address - start <= range.size() - length;
    });
}

void DirectMemory::copy(SpaceId target, std::uint64_t target_address,
                        const transport::PayloadSegment& source, transport::CopyOwner owner) {
    queue_.push_back({target, target_address, source, owner});
}

void DirectMemory::carry_out() {
    for (const Copy& copy : queue_) {
        if (!is_there(copy.source.space, copy.source.address, copy.source.length)) {
            faults_.push_back({copy.owner, true});
        } else if (!is_there(copy.target, copy.target_address, copy.source.length)) {
            faults_.push_back({copy.owner, false});
        } else if (copy.source.length > 0) {
            std::memmove(reinterpret_cast<void*>(copy.target_address),
                         reinterpret_cast<const void*>(copy.source.address), copy.source.length);
        }
    }
    queue_.clear();
}

bool DirectMemory::read(SpaceId space, std::uint64_t address, ByteSpan out) {
    carry_out();
    if (!is_there(space, address, out.size())) return false;
    std::memcpy(out.data(), reinterpret_cast<const void*>(address), out.size());
    return true;
}
bool DirectMemory::write(SpaceId space, std::uint64_t address, ByteView bytes) {
    carry_out();
    if (!is_there(space, address, bytes.size())) return false;
    std::memcpy(reinterpret_cast<void*>(address), bytes.data(), bytes.size());
    return true;
}
void DirectMemory::flush(std::vector<transport::CopyFault>& faults) {
    carry_out();
    faults.insert(faults.end(), faults_.begin(), faults_.end());
    faults_.clear();
}

CardConfig loopback_config() {
    CardConfig config;
    config.ports = {{"p0", "mlx5_0"}, {"p1", "mlx5_1"}};
    const auto function = [](FunctionKind kind, const char* device, const char* pf,
                             const char* representor, const char* pci, const char* mac,
                             const char* ip) {
        FunctionConfig made;
        made.kind = kind;
        made.device = device;
        made.pf_device = pf;
        made.representor = representor;
        made.pci = pci;
        made.mac = *MacAddress::parse(mac);
        if (*ip != 0) made.ips.push_back(*Gid::parse(ip));
        return made;
    };
    config.functions = {
        function(FunctionKind::kPf, "mlx5_0", "mlx5_0", "", "0000:03:00.0", "02:00:00:00:00:10",
                 ""),
        function(FunctionKind::kPf, "mlx5_1", "mlx5_1", "", "0000:03:00.1", "02:00:00:00:00:11",
                 ""),
        function(FunctionKind::kSf, "mlx5_2", "mlx5_0", "pf0sf0", "", "02:00:00:00:00:12",
                 "10.0.0.1"),
        function(FunctionKind::kSf, "mlx5_3", "mlx5_1", "pf1sf0", "", "02:00:00:00:00:13",
                 "10.0.0.2"),
        function(FunctionKind::kSf, "mlx5_4", "mlx5_0", "pf0sf4", "", "02:00:00:00:00:14",
                 "10.0.0.11"),
    };
    config.cables = {{"cable0", "p0", "p1", {}, {}}};
    return config;
}

}  // namespace rdmalab::card::testing
