// Time, rate and size as types. Inside the card all time is nanoseconds of one monotonic clock that
// the host (or a test) passes in; no room below card/host reads a clock.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace rdmalab {

struct Duration {
    std::int64_t ns = 0;
    constexpr auto operator<=>(const Duration&) const = default;
    constexpr Duration operator+(Duration other) const { return {ns + other.ns}; }
    constexpr Duration operator-(Duration other) const { return {ns - other.ns}; }
    constexpr Duration operator*(std::int64_t factor) const { return {ns * factor}; }
};

constexpr Duration nanoseconds(std::int64_t n) { return {n}; }
constexpr Duration microseconds(std::int64_t n) { return {n * 1'000}; }
constexpr Duration milliseconds(std::int64_t n) { return {n * 1'000'000}; }
constexpr Duration seconds(std::int64_t n) { return {n * 1'000'000'000}; }

// A point of the monotonic clock. `Instant::never()` is later than all others.
struct Instant {
    std::int64_t ns = 0;
    static constexpr Instant never() { return {std::numeric_limits<std::int64_t>::max()}; }
    constexpr bool is_never() const { return ns == std::numeric_limits<std::int64_t>::max(); }
    constexpr auto operator<=>(const Instant&) const = default;
    constexpr Instant operator+(Duration d) const { return {ns + d.ns}; }
    constexpr Instant operator-(Duration d) const { return {ns - d.ns}; }
    constexpr Duration operator-(Instant other) const { return {ns - other.ns}; }
};

// Bits per second; 0 means "not limited".
struct Rate {
    std::uint64_t bits_per_second = 0;
    constexpr auto operator<=>(const Rate&) const = default;
    constexpr bool is_unlimited() const { return bits_per_second == 0; }
    // Time that `bytes` take at this rate.
    constexpr Duration time_for(std::uint64_t bytes) const {
        if (is_unlimited()) return {0};
        return {static_cast<std::int64_t>(static_cast<unsigned __int128>(bytes) * 8 *
                                          1'000'000'000 / bits_per_second)};
    }
};

}  // namespace rdmalab
