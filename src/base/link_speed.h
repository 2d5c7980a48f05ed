// Link speeds as InfiniBand names them (IBTA vol. 1, 14.2.5.6): what verbs and sysfs tell of a
// port, for a rate that may be any.
#pragma once

#include <cstdint>
#include <iterator>

namespace rdmalab {

struct LinkSpeed {
    std::uint64_t bits_per_second;
    std::uint8_t width, speed;  // encodings of PortInfo, as in ibv_query_port(3)
    const char* text;           // as in sysfs, file `rate`
};

namespace link {
inline constexpr std::uint8_t k1x = 1, k4x = 2;
inline constexpr std::uint8_t kSdr = 1, kQdr = 4, kEdr = 32, kHdr = 64, kNdr = 128;
inline constexpr std::uint64_t kGiga = 1'000'000'000;
inline constexpr LinkSpeed kSpeeds[] = {
    {5 * kGiga / 2, k1x, kSdr, "2.5 Gb/sec (1X SDR)"},
    {10 * kGiga, k1x, kQdr, "10 Gb/sec (1X QDR)"},
    {25 * kGiga, k1x, kEdr, "25 Gb/sec (1X EDR)"},
    {40 * kGiga, k4x, kQdr, "40 Gb/sec (4X QDR)"},
    {50 * kGiga, k1x, kHdr, "50 Gb/sec (1X HDR)"},
    {100 * kGiga, k4x, kEdr, "100 Gb/sec (4X EDR)"},
    {200 * kGiga, k4x, kHdr, "200 Gb/sec (4X HDR)"},
    {400 * kGiga, k4x, kNdr, "400 Gb/sec (4X NDR)"},
};
inline constexpr std::uint64_t kUnlimitedShownAs = 100 * kGiga;
}  // namespace link

// The slowest kind of link that carries the rate; 0 is a port without a limit.
constexpr const LinkSpeed& link_speed_for(std::uint64_t rate_bps) {
    const std::uint64_t rate = rate_bps == 0 ? link::kUnlimitedShownAs : rate_bps;
    for (const LinkSpeed& speed : link::kSpeeds)
        if (rate <= speed.bits_per_second) return speed;
    return *std::prev(std::end(link::kSpeeds));
}

}  // namespace rdmalab
