// Bursts: frames of one flow as one, in the way in which UDP segmentation offload takes them. The
// lower headers stand once, with lengths that cover everything; behind them lie the UDP payloads of
// the frames (BTH to ICRC), each of `segment_length` bytes, the last one perhaps shorter. Who takes
// a burst apart gives every frame a copy of the lower headers with lengths of its own and *counts
// up the IPv4 identification*. The ICRC covers that field, so the ICRC of a frame depends on its
// place in the burst.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "wire/frame.h"
#include "wire/headers.h"

namespace rdmalab::wire {

// The headers below the BTH with all lengths 0 (and an IPv4 checksum that is right for that): equal
// for all frames of a flow.
struct LowerHead {
    static constexpr std::size_t kMax = 72;  // Ethernet, two tags, IPv6, UDP
    std::array<std::byte, kMax> bytes{};
    std::uint8_t length = 0, l3_offset = 0, l4_offset = 0;

    LowerHead() = default;
    explicit LowerHead(const Frame& roce);
    bool is_ipv6() const { return l4_offset - l3_offset == sizeof(Ipv6Header); }
    bool operator==(const LowerHead& other) const {
        return length == other.length && std::memcmp(bytes.data(), other.bytes.data(), length) == 0;
    }
    // A burst is limited by the length field of IP.
    std::size_t payload_max() const {
        return 65'535 - (is_ipv6() ? sizeof(UdpHeader) : sizeof(Ipv4Header) + sizeof(UdpHeader));
    }
};

// Fills in the lengths for `udp_payload` bytes. A burst also gets the sum over the pseudo header,
// from which the interface makes the UDP checksums of its frames.
void seal(LowerHead& head, std::size_t udp_payload, bool is_burst);

// Of the frame at place `index` of a burst (0: also of a frame that is alone). `udp_payload` ends
// before the ICRC. `head` is not sealed.
std::uint32_t icrc_in_burst(const LowerHead& head, std::uint16_t index, ByteView udp_payload);

// Takes out the frame at place `index`: what parse_frame is for a frame that is alone. nullopt: the
// burst has no such place. When the lower headers are wrong, place 0 alone tells.
std::optional<ParseError> parse_burst(ByteView bytes, std::uint32_t segment_length,
                                      std::uint32_t index, PayloadSegment where, Frame& out);

}  // namespace rdmalab::wire
