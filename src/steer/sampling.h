// From percentages to marking probabilities that a match on random bits can express.
//
// A path marks only its own probe flow, one of N that share it, so the sampler of that flow uses N
// times the intended percentage of all traffic, at most 100 %. A mask of i bits of
// parser_meta.random that must all be zero hits with probability 2^-i; percentages are rounded down
// to such a power.
#pragma once

#include <cstdint>

namespace rdmalab::steer {

struct Sampler {
    enum class Kind : std::uint8_t { kNever, kAlways, kRandom };
    Kind kind = Kind::kNever;
    std::uint32_t bits = 0;  // of kRandom: 1 to 16
    double probability() const;
    // Bits of parser_meta.random that must be zero. The native RANDOM hash consumes bit 0, so with
    // it the mask stands one bit higher to stay independent of the path; at 16 bits one is lost.
    std::uint16_t mask(bool random_hash_uses_bit_0) const;
    bool operator==(const Sampler&) const = default;
};

// `intended_percent` is literal: 0.025 means 0.025 %.
double selected_percent(double intended_percent, std::uint32_t paths);
Sampler make_sampler(double selected_percent);

}  // namespace rdmalab::steer
