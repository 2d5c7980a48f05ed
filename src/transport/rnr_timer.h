// The RNR NAK timer codes (IBTA vol. 1, 9.7.5.2.8, table 45 of release 1.3).
#pragma once

#include <array>
#include <cstdint>

#include "base/units.h"

namespace rdmalab::transport {

// Code 0 is the longest; the rest grow.
inline constexpr std::array<std::int64_t, 32> kRnrTimerMicroseconds{
    655'360, 10,     20,     30,     40,     60,      80,      120,     160,     240,    320,
    480,     640,    960,    1'280,  1'920,  2'560,   3'840,   5'120,   7'680,   10'240, 15'360,
    20'480,  30'720, 40'960, 61'440, 81'920, 122'880, 163'840, 245'760, 327'680, 491'520};

//= IBA 9.7.5.2.8
constexpr Duration rnr_timer(std::uint8_t code) {
    return microseconds(kRnrTimerMicroseconds[code & 0x1f]);
}

}  // namespace rdmalab::transport
