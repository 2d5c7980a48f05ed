#include "transport/placement.h"

#include <algorithm>
#include <array>

namespace rdmalab::transport {
namespace {

// Steps over SGEs that are used up. False: the list has ended.
bool skip_full_sges(std::span<const Sge> sges, SgeCursor& place) {
    while (place.index < sges.size() && place.offset == sges[place.index].length) {
        ++place.index;
        place.offset = 0;
    }
    return place.index < sges.size();
}

// What a null region holds. No frame is longer.
PayloadSegment zeros(std::uint32_t length) {
    static constexpr std::array<std::byte, limits::kRawFrameMax> kZeros{};
    return {kCardSpace, length, reinterpret_cast<std::uint64_t>(kZeros.data())};
}

}  // namespace

SgeCheck check_sges(const Core& core, PdId pd, std::span<const Sge> sges, std::uint64_t length,
                    std::uint32_t access) {
    SgeCheck result = SgeCheck::kValid;
    for (const Sge& sge : sges) {
        const std::uint64_t piece = std::min<std::uint64_t>(sge.length, length);
        if (piece == 0) continue;
        const Translation at = core.regions.local(sge.lkey, pd, sge.address, piece, access);
        if (!at.ok) return SgeCheck::kRefused;
        if (at.is_on_demand) result = SgeCheck::kOnDemand;
        length -= piece;
    }
    return length == 0 ? result : SgeCheck::kRefused;
}

bool gather(const Core& core, PdId pd, std::span<const Sge> sges, SgeCursor& place,
            std::uint32_t length, wire::Frame& frame) {
    while (length > 0) {
        if (!skip_full_sges(sges, place)) return false;
        if (frame.segment_count == wire::Frame::kSegmentMax) return false;
        const Sge& sge = sges[place.index];
        const std::uint32_t piece = std::min(length, sge.length - place.offset);
        const Translation at =
            core.regions.local(sge.lkey, pd, sge.address + place.offset, piece, 0);
        if (!at.ok) return false;
        frame.add_segment(at.space == kNullSpace ? zeros(piece)
                                                 : PayloadSegment{at.space, piece, at.address});
        place.offset += piece;
        length -= piece;
    }
    return true;
}

Placed scatter(Core& core, PdId pd, std::span<const Sge> sges, SgeCursor& place,
               std::span<const PayloadSegment> source, const CopyOwner& owner) {
    for (PayloadSegment rest : source) {
        while (rest.length > 0) {
            if (!skip_full_sges(sges, place)) return Placed::kTooLong;
            const Sge& sge = sges[place.index];
            const std::uint32_t piece = std::min(rest.length, sge.length - place.offset);
            const Translation at = core.regions.local(sge.lkey, pd, sge.address + place.offset,
                                                      piece, kAccessLocalWrite);
            if (!at.ok) return Placed::kProtection;
            if (at.space != kNullSpace)
                core.memory.copy(at.space, at.address, {rest.space, piece, rest.address}, owner);
            place.offset += piece;
            rest.address += piece;
            rest.length -= piece;
        }
    }
    return Placed::kOk;
}

SgeCursor seek_sges(std::span<const Sge> sges, std::uint64_t offset) {
    SgeCursor place;
    while (place.index < sges.size() && offset >= sges[place.index].length) {
        offset -= sges[place.index].length;
        ++place.index;
    }
    place.offset = static_cast<std::uint32_t>(offset);
    if (place.index == sges.size()) place.offset = 0;
    return place;
}

std::uint64_t total_length(std::span<const Sge> sges) {
    std::uint64_t total = 0;
    for (const Sge& sge : sges) total += sge.length;
    return total;
}

void copy_to(Core& core, SpaceId space, std::uint64_t address,
             std::span<const PayloadSegment> source, const CopyOwner& owner) {
    for (const PayloadSegment& segment : source) {
        if (segment.length == 0) continue;
        core.memory.copy(space, address, segment, owner);
        address += segment.length;
    }
}

}  // namespace rdmalab::transport
