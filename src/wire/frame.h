// A frame on its way through the card. The headers are real bytes, exactly as they stand on the
// wire; the payload is a list of references that are read once, when the frame is placed, captured
// or leaves the card. So a frame that stays inside one card moves its payload with no intermediate
// copy.
//
// ICRC. A frame made inside the card has its ICRC *elided*: it is defined as right for the
// invariant header bytes as emitted. Whoever rewrites a header first calls `keep_emitted_header()`;
// the receiver compares the invariant bytes of both (wire/icrc.h) and drops the frame if they
// differ, exactly as if the CRC had been computed and checked. A frame that came from bytes (a
// delayed or impaired link, an uplink) carries the CRC value that stood there, and the receiver
// computes and compares.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"
#include "base/ids.h"

namespace rdmalab::wire {

// `length` bytes at `address` of `space`.
struct PayloadSegment {
    SpaceId space;
    std::uint32_t length = 0;
    std::uint64_t address = 0;
};

enum class IcrcState : std::uint8_t {
    kElided,   // right by definition for the header as emitted
    kPresent,  // `icrc` holds the value that was received; not yet checked
    kNone,     // not a RoCE frame: there is no ICRC
};

struct Frame {
    static constexpr std::size_t kHeaderMax =
        128;  // Eth 14 + 2 VLAN 8 + IPv6 40 + UDP 8 + BTH 12 + 36
    static constexpr std::size_t kSegmentMax = 32;

    std::array<std::byte, kHeaderMax> header;  // from the Ethernet header to the last BTH extension
    std::uint16_t header_length = 0;
    // Offsets into `header`; 0 = absent. L4 is UDP, TCP or ICMP. A frame whose L4 is not UDP port
    // 4791 has bth_offset 0 and its payload starts behind the parsed headers (TCP and ICMP: behind
    // the fixed part).
    std::uint16_t l3_offset = 0;
    std::uint16_t l4_offset = 0;
    std::uint16_t bth_offset = 0;
    IcrcState icrc_state = IcrcState::kElided;
    bool header_kept = false;  // emitted_header is valid
    std::uint8_t segment_count = 0;
    std::uint32_t payload_length = 0;  // sum of the segments; without pad and ICRC
    std::uint32_t icrc = 0;            // host-order CRC value when kPresent
    // Who emitted the frame, in the emitter's own terms (transport/ports.h); 0: nobody of this
    // card. start_roce and parse_frame reset it.
    // It never stands on the wire: it is for blame when the payload turns out to be unreadable.
    std::uint64_t origin = 0;
    std::array<PayloadSegment, kSegmentMax> segments;
    std::array<std::byte, kHeaderMax> emitted_header;

    Frame() {}  // the arrays are left uninitialised on purpose: a frame is made for every packet
    Frame(const Frame& other) { copy_from(other); }
    Frame& operator=(const Frame& other) {
        if (this != &other) copy_from(other);
        return *this;
    }

    ByteView header_bytes() const { return {header.data(), header_length}; }
    ByteSpan header_bytes() { return {header.data(), header_length}; }
    void keep_emitted_header() {
        if (header_kept || icrc_state != IcrcState::kElided) return;
        std::memcpy(emitted_header.data(), header.data(), header_length);
        header_kept = true;
    }
    void add_segment(const PayloadSegment& segment) {
        segments[segment_count++] = segment;
        payload_length += segment.length;
    }

private:
    void copy_from(const Frame& other);  // copies only what is used
};

}  // namespace rdmalab::wire
