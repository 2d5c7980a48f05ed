// The invariant CRC of RoCEv2 (IBTA annex A17.3.3 with vol. 1, 7.8.1): CRC-32 of the Ethernet
// polynomial over 8 bytes of ones, the L3 header on, with the fields that a router may change taken
// as ones (IPv4 ToS, TTL, header checksum; IPv6 traffic class, flow label, hop limit; UDP checksum;
// BTH resv8a).
#pragma once

#include "base/bytes.h"
#include "wire/frame.h"

namespace rdmalab::wire {

// Incremental: feed the headers once, then the payload piece by piece, then the pad.
class Icrc {
public:
    explicit Icrc(const Frame& frame);  // masked headers from L3 to the last extension header
    static Icrc as_emitted(const Frame& frame);  // the same over the header as it was emitted
    // Of headers that are not in a frame: from L3 to the BTH, without extension headers.
    static Icrc of_head(ByteView l3_to_bth, bool ipv6);
    void add(ByteView payload);
    // The four bytes as they stand on the wire are this value, least significant byte first.
    std::uint32_t value() const;

private:
    explicit Icrc(std::uint32_t state) : state_(state) {}
    std::uint32_t state_;
};

// ICRC of a whole L3 packet in one piece (starts at the IP header, ends before the ICRC).
std::uint32_t icrc_of_packet(ByteView l3_packet, bool ipv6);

// For a frame with an elided ICRC: are the invariant header bytes still those that were emitted?
bool invariants_unchanged(const Frame& frame);

// Writes the whole frame (headers, payload as given, pad, ICRC) to `out` and returns the bytes
// written, 0 if it does not fit. `payload` are the frame's payload bytes, contiguous. An elided
// ICRC is computed from the header *as emitted*, so a frame whose invariants were rewritten leaves
// with the wrong value, as it must.
std::size_t write_frame(const Frame& frame, ByteView payload, ByteSpan out);

}  // namespace rdmalab::wire
