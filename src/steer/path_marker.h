// The private mark that tells the paths of one cable apart: bits of the ToS byte that the sender's
// switch writes and the receiver's switch clears. They belong to the DSCP, which RoCEv2's ICRC does
// not cover. Two paths need one bit, ToS 0x04; sixteen need four, ToS 0x3c.
#pragma once

#include <bit>
#include <cstdint>

namespace rdmalab::steer {

inline constexpr unsigned kMarkerShift = 2;
inline constexpr std::uint8_t kCe = 0x03;

class PathMarker {
public:
    explicit constexpr PathMarker(std::uint32_t paths)
        : mask_(static_cast<std::uint8_t>((std::bit_ceil(paths) - 1) << kMarkerShift)) {}
    // No bits: the paths are told apart by the port they come in at.
    static constexpr PathMarker none() { return PathMarker(1); }
    constexpr std::uint8_t mask() const { return mask_; }
    constexpr std::uint8_t value(std::uint32_t path) const {
        return static_cast<std::uint8_t>(path << kMarkerShift) & mask_;
    }

private:
    std::uint8_t mask_;
};

}  // namespace rdmalab::steer
