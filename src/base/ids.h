// Strong types for numbers that look alike, and the arithmetic of packet sequence numbers.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace rdmalab {

template <class Tag, class Rep = std::uint32_t>
struct StrongId {
    Rep value{};
    constexpr auto operator<=>(const StrongId&) const = default;
};

using Qpn = StrongId<struct QpnTag>;    // 24 bits; 1 is the general services interface (CM)
using Lkey = StrongId<struct LkeyTag>;  // index << 8 | tag
using Rkey = StrongId<struct RkeyTag>;
using CqId = StrongId<struct CqIdTag>;  // index of a CQ within its engine
using SrqId = StrongId<struct SrqIdTag>;
using XrcdId = StrongId<struct XrcdIdTag>;  // XRC domain
using PdId = StrongId<struct PdIdTag>;
using AhId = StrongId<struct AhIdTag>;
using OwnerId = StrongId<struct OwnerIdTag>;  // one attachment (context) of a client process
// An address space that payload lies in. kCardSpace is the card's own memory: the address is a
// pointer.
using SpaceId = StrongId<struct SpaceIdTag>;
using VportId = StrongId<struct VportIdTag, std::uint16_t>;  // a port of an e-switch domain

inline constexpr SpaceId kCardSpace{0};

// Packet sequence number: 24 bits, compared only through windows of half the space
// (IBTA vol. 1, 9.7.1: 2^23 is the largest distance that can be ordered).
class Psn {
public:
    static constexpr std::uint32_t kMask = 0xff'ffff;
    constexpr Psn() = default;
    constexpr explicit Psn(std::uint32_t value) : value_(value & kMask) {}
    constexpr std::uint32_t value() const { return value_; }
    constexpr bool operator==(const Psn&) const = default;
    constexpr Psn operator+(std::uint32_t n) const { return Psn(value_ + n); }
    constexpr Psn operator-(std::uint32_t n) const { return Psn(value_ - n); }
    constexpr Psn& operator++() { return *this = *this + 1; }
    // Signed distance from `other` to this one, in (-2^23, 2^23].
    constexpr std::int32_t distance_from(Psn other) const {
        std::uint32_t d = (value_ - other.value_) & kMask;
        return d > 0x80'0000 ? static_cast<std::int32_t>(d) - 0x100'0000
                             : static_cast<std::int32_t>(d);
    }
    constexpr bool is_before(Psn other) const { return distance_from(other) < 0; }
    // True when this is one of `first`, first+1, ... first+count-1.
    constexpr bool in_window(Psn first, std::uint32_t count) const {
        return ((value_ - first.value_) & kMask) < count;
    }

private:
    std::uint32_t value_ = 0;
};

}  // namespace rdmalab

template <class Tag, class Rep>
struct std::hash<rdmalab::StrongId<Tag, Rep>> {
    std::size_t operator()(rdmalab::StrongId<Tag, Rep> id) const noexcept {
        return std::hash<Rep>{}(id.value);
    }
};
