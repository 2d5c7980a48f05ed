// Payload between frames and lists of SGEs. Nothing is moved here: gather turns SGEs into
// references that a frame carries, scatter queues the copies of such references to SGEs.
#pragma once

#include <span>

#include "transport/core.h"

namespace rdmalab::transport {

enum class Placed : std::uint8_t { kOk, kTooLong, kProtection };

// May the first `length` bytes of the list be accessed with these rights? kOnDemand: they may, but
// pages of them may be missing, so nobody but the card must touch them.
enum class SgeCheck : std::uint8_t { kRefused, kValid, kOnDemand };
SgeCheck check_sges(const Core& core, PdId pd, std::span<const Sge> sges, std::uint64_t length,
                    std::uint32_t access);

// Adds the next `length` bytes of the list to the frame. False: a region is no longer there.
bool gather(const Core& core, PdId pd, std::span<const Sge> sges, SgeCursor& place,
            std::uint32_t length, wire::Frame& frame);

// Queues copies of `source` to the next bytes of the list.
Placed scatter(Core& core, PdId pd, std::span<const Sge> sges, SgeCursor& place,
               std::span<const PayloadSegment> source, const CopyOwner& owner);

// The place `offset` bytes into the list.
SgeCursor seek_sges(std::span<const Sge> sges, std::uint64_t offset);

std::uint64_t total_length(std::span<const Sge> sges);

inline std::span<const PayloadSegment> payload_of(const wire::Frame& frame) {
    return {frame.segments.data(), frame.segment_count};
}
// Queues copies of `source` to consecutive addresses.
void copy_to(Core& core, SpaceId space, std::uint64_t address,
             std::span<const PayloadSegment> source, const CopyOwner& owner);

}  // namespace rdmalab::transport
