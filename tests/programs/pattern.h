// A seeded byte pattern: byte `i` of message `m` depends on seed, m and i, so a byte from another
// message, another place or another run is noticed. Works on 8-byte words (splitmix64), fast enough
// to check gigabytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rdmalab::programs {

class Pattern {
public:
    Pattern(std::uint64_t seed, std::uint64_t message) : base_(mix(seed ^ mix(message + 1))) {}

    void fill(std::byte* out, std::size_t length) const {
        for (std::size_t offset = 0; offset < length; offset += 8) {
            const std::uint64_t value = word(offset);
            std::memcpy(out + offset, &value, length - offset < 8 ? length - offset : 8);
        }
    }
    // Offset of the first wrong byte, or `length`.
    std::size_t first_difference(const std::byte* data, std::size_t length) const {
        for (std::size_t offset = 0; offset < length; offset += 8) {
            const std::uint64_t expected = word(offset);
            const std::size_t count = length - offset < 8 ? length - offset : 8;
            if (std::memcmp(data + offset, &expected, count) == 0) continue;
            for (std::size_t i = 0; i < count; ++i) {
                if (data[offset + i] != byte(offset + i)) return offset + i;
            }
        }
        return length;
    }
    std::byte byte(std::size_t offset) const {
        return static_cast<std::byte>(word(offset & ~std::size_t{7}) >> (8 * (offset & 7)));
    }

private:
    static std::uint64_t mix(std::uint64_t x) {
        x += 0x9e3779b97f4a7c15;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
        x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
        return x ^ (x >> 31);
    }
    std::uint64_t word(std::size_t offset) const { return mix(base_ + offset); }

    std::uint64_t base_;
};

}  // namespace rdmalab::programs
