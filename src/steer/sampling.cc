#include "steer/sampling.h"

#include <algorithm>
#include <cmath>

namespace rdmalab::steer {

namespace {

constexpr std::uint32_t kRandomBits = 16;

}  // namespace

double Sampler::probability() const {
    switch (kind) {
        case Kind::kNever:
            return 0;
        case Kind::kAlways:
            return 1;
        case Kind::kRandom:
            return std::ldexp(1.0, -static_cast<int>(bits));
    }
    return 0;
}

std::uint16_t Sampler::mask(bool random_hash_uses_bit_0) const {
    const std::uint32_t low = (1u << bits) - 1;
    return static_cast<std::uint16_t>(random_hash_uses_bit_0 ? low << 1 : low);
}

double selected_percent(double intended_percent, std::uint32_t paths) {
    return std::min(100.0, intended_percent * paths);
}

Sampler make_sampler(double selected) {
    if (selected >= 100) return {Sampler::Kind::kAlways, 0};
    if (!(selected > 0)) return {Sampler::Kind::kNever, 0};
    std::uint32_t bits = 1;
    while (bits < kRandomBits && 50 / std::ldexp(1.0, static_cast<int>(bits) - 1) > selected) {
        ++bits;
    }
    return {Sampler::Kind::kRandom, bits};
}

}  // namespace rdmalab::steer
