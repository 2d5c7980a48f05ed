// The IPv4 header checksum (RFC 1071) and its incremental update (RFC 1624). For this room and the
// pipes that rewrite headers.
#pragma once

#include <bit>
#include <cstdint>

#include "base/bytes.h"

namespace rdmalab::wire {

constexpr std::uint16_t fold_checksum(std::uint64_t sum) {
    sum = (sum >> 32) + (sum & 0xffff'ffff);
    sum = (sum >> 32) + (sum & 0xffff'ffff);
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    return static_cast<std::uint16_t>(sum);
}

// The one's complement sum over `words` 32-bit words, as a number in network order: 0xffff means
// that a header with its checksum in place is right. The sum of swapped words is the swapped sum,
// so whole machine words are added.
inline std::uint16_t checksum_sum(const std::byte* bytes, std::size_t words) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < words; ++i) sum += load_bytes<std::uint32_t>(bytes + 4 * i);
    const std::uint16_t folded = fold_checksum(sum);
    if constexpr (std::endian::native == std::endian::big) return folded;
    return static_cast<std::uint16_t>(folded << 8 | folded >> 8);
}

// The checksum after one 16-bit word of the header has changed (RFC 1624, equation 3).
constexpr std::uint16_t updated_checksum(std::uint16_t checksum, std::uint16_t old_word,
                                         std::uint16_t new_word) {
    std::uint32_t sum = static_cast<std::uint16_t>(~checksum);
    sum += static_cast<std::uint16_t>(~old_word);
    sum += new_word;
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    return static_cast<std::uint16_t>(~sum);
}

}  // namespace rdmalab::wire
