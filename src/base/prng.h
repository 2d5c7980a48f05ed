// Seeded pseudo-random numbers (xoshiro256**, seeded by splitmix64; Blackman and Vigna). Small
// state, the same sequence on every machine, so a seed replays a run.
#pragma once

#include <bit>
#include <cstdint>

namespace rdmalab {

class Prng {
public:
    explicit Prng(std::uint64_t seed) {
        for (auto& word : state_) {
            seed += 0x9e37'79b9'7f4a'7c15;
            std::uint64_t z = seed;
            z = (z ^ (z >> 30)) * 0xbf58'476d'1ce4'e5b9;
            z = (z ^ (z >> 27)) * 0x94d0'49bb'1331'11eb;
            word = z ^ (z >> 31);
        }
    }
    std::uint64_t next() {
        const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
        const std::uint64_t t = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= t;
        state_[3] = std::rotl(state_[3], 45);
        return result;
    }
    // Uniform in [0, bound); bound > 0. The bias is below 2^-32 for bounds below 2^32.
    std::uint64_t below(std::uint64_t bound) {
        return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
    }
    // True with probability p in [0, 1].
    bool chance(double p) { return static_cast<double>(next() >> 11) * 0x1p-53 < p; }

private:
    std::uint64_t state_[4];
};

}  // namespace rdmalab
