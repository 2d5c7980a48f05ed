// Big-endian integers as types, and views over bytes. A header struct made of these has the layout
// of the wire on any machine; reading a field is a conversion, never a cast.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace rdmalab {

using ByteView = std::span<const std::byte>;
using ByteSpan = std::span<std::byte>;

// An unsigned integer of `Width` bytes in network byte order. `Host` is the type it converts to.
template <std::unsigned_integral Host, std::size_t Width>
class BigEndian {
    static_assert(Width <= sizeof(Host));

public:
    constexpr BigEndian() = default;
    constexpr BigEndian(Host value) { store(value); }   // NOLINT(google-explicit-constructor)
    constexpr operator Host() const { return load(); }  // NOLINT(google-explicit-constructor)

private:
    constexpr Host load() const {
        Host value = 0;
        for (std::size_t i = 0; i < Width; ++i) value = static_cast<Host>((value << 8) | bytes_[i]);
        return value;
    }
    constexpr void store(Host value) {
        for (std::size_t i = Width; i-- > 0;) {
            bytes_[i] = static_cast<std::uint8_t>(value);
            if constexpr (sizeof(Host) > 1) value = static_cast<Host>(value >> 8);
        }
    }
    std::array<std::uint8_t, Width> bytes_{};
};

using Be16 = BigEndian<std::uint16_t, 2>;
using Be24 = BigEndian<std::uint32_t, 3>;
using Be32 = BigEndian<std::uint32_t, 4>;
using Be64 = BigEndian<std::uint64_t, 8>;
static_assert(sizeof(Be16) == 2 && sizeof(Be24) == 3 && sizeof(Be32) == 4 && sizeof(Be64) == 8);

// Copies a trivially copyable value out of, or into, the start of a byte range that is long enough.
template <class T>
T load_bytes(const std::byte* from) {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
template <class T>
void store_bytes(std::byte* to, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memcpy(to, &value, sizeof value);
}

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

}  // namespace rdmalab
