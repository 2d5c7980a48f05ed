// What the card's tests and its fuzzer share: a host without a kernel, memory without processes.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "card/card.h"

namespace rdmalab::card::testing {

// Regions on the heap; notifications and captured frames in vectors.
class FakeHost final : public HostPort {
public:
    ~FakeHost() override;
    Result<MappedRegion> allocate_region(OwnerId owner, std::uint64_t length) override;
    void free_region(OwnerId owner, const MappedRegion& region) override;
    void notify_channel(OwnerId owner, std::uint32_t channel,
                        const abi::CompletionEvent& event) override;
    void notify_async(OwnerId owner, const abi::AsyncEventRecord& event) override;
    void wake(std::atomic<std::uint32_t>& word) override;
    void captured(TapPoint point, const wire::Frame& frame, bool inbound) override;
    bool deliver_to_netdev(std::uint32_t function, const wire::Frame& frame) override;
    std::size_t send_by_uplink(std::uint32_t port, std::span<const UplinkBurst> bursts) override;
    Result<MacAddress> find_neighbour(std::uint32_t function, const Gid& source,
                                      const Gid& peer) override;

    std::byte* map(const abi::Region& region) const { return regions_.at(region.offset).base; }
    std::size_t region_count() const { return regions_.size(); }
    const std::map<std::uint64_t, MappedRegion>& regions() const { return regions_; }

    struct ChannelNote {
        OwnerId owner;
        std::uint32_t channel;
        abi::CompletionEvent event;
    };
    struct AsyncNote {
        OwnerId owner;
        abi::AsyncEventRecord event;
    };
    struct Capture {
        TapPoint point;
        wire::Frame frame;
        bool inbound;
    };
    struct NetdevFrame {
        std::uint32_t function;
        std::vector<std::byte> bytes;
    };
    std::set<std::uint32_t> netdevs;  // functions that have a network interface
    std::vector<NetdevFrame> netdev_frames;
    struct UplinkBytes {
        std::vector<std::byte> bytes;
        std::uint32_t segment_length;
    };
    std::vector<UplinkBytes> uplink_sent;
    std::size_t uplink_room = SIZE_MAX;  // bursts that the interface still takes
    std::map<Gid, MacAddress> neighbours;
    bool answers = true;  // what is not a neighbour is unreachable; else it has not answered yet
    std::vector<ChannelNote> channel_notes;
    std::vector<AsyncNote> async_notes;
    std::vector<Capture> captures;
    std::size_t wakes = 0;
    // Allocations that still succeed, and how large they may be.
    std::size_t allocations_left = SIZE_MAX;
    std::uint64_t region_length_max = UINT64_MAX;
    // Called in place of keeping a copy. It stands where a pipe of the e-switch could, and may
    // rewrite the frame as one.
    std::function<void(TapPoint point, wire::Frame& frame, bool inbound)> on_capture;

private:
    std::map<std::uint64_t, MappedRegion> regions_;  // by offset
    std::uint64_t next_offset_ = 4096;
};

// Addresses are pointers. Application memory is there only where a test has added it.
class DirectMemory final : public transport::MemoryPort {
public:
    void add(SpaceId space, ByteSpan range) { ranges_[space.value].push_back(range); }
    void remove(SpaceId space) { ranges_.erase(space.value); }

    void copy(SpaceId target, std::uint64_t target_address, const transport::PayloadSegment& source,
              transport::CopyOwner owner) override;
    bool read(SpaceId space, std::uint64_t address, ByteSpan out) override;
    bool write(SpaceId space, std::uint64_t address, ByteView bytes) override;
    void flush(std::vector<transport::CopyFault>& faults) override;

private:
    struct Copy {
        SpaceId target;
        std::uint64_t target_address;
        transport::PayloadSegment source;
        transport::CopyOwner owner;
    };
    bool is_there(SpaceId space, std::uint64_t address, std::uint64_t length) const;
    void carry_out();

    std::map<std::uint32_t, std::vector<ByteSpan>> ranges_;
    std::vector<Copy> queue_;
    std::vector<transport::CopyFault> faults_;
};

// Two PFs with a port each, joined by cable0; three SFs as in the default topology: mlx5_2 and
// mlx5_4 behind p0 (indexes 2 and 4), mlx5_3 behind p1 (index 3).
CardConfig loopback_config();

}  // namespace rdmalab::card::testing
