// The headers of a RoCEv2 frame. Each has a *view struct* with the wire's own layout (big-endian
// integer types, alignment 1, size proven by static_assert), to be laid over checked bytes with
// `header_at`.
//
// Sources: Ethernet IEEE 802.3, IPv4 RFC 791, IPv6 RFC 8200, UDP RFC 768, BTH and extension headers
// IBTA vol. 1 chapter 9, RoCEv2 IBTA annex A17.
#pragma once

#include <cassert>
#include <optional>

#include "base/address.h"
#include "base/bytes.h"
#include "base/ids.h"
#include "wire/frame.h"
#include "wire/opcode.h"

namespace rdmalab::wire {

inline constexpr std::uint16_t kRoceUdpPort = 4791;
inline constexpr std::uint16_t kEtherTypeIpv4 = 0x0800;
inline constexpr std::uint16_t kEtherTypeArp = 0x0806;
inline constexpr std::uint16_t kEtherTypeVlan = 0x8100;
inline constexpr std::uint16_t kEtherTypeIpv6 = 0x86dd;
inline constexpr std::uint8_t kIpProtocolIcmp = 1, kIpProtocolTcp = 6, kIpProtocolUdp = 17,
                              kIpProtocolIcmp6 = 58;

// ECN code points: the low two bits of the IPv4 ToS / IPv6 traffic class (RFC 3168).
inline constexpr std::uint8_t kEcnMask = 3, kEcnNotEct = 0, kEcnEct1 = 1, kEcnEct0 = 2, kEcnCe = 3;

struct EthernetHeader {
    std::array<std::uint8_t, 6> destination;
    std::array<std::uint8_t, 6> source;
    Be16 type;
};
struct VlanTag {
    Be16 tci;
    Be16 type;
};
struct Ipv4Header {
    std::uint8_t version_ihl;
    std::uint8_t tos;
    Be16 total_length;
    Be16 identification;
    Be16 flags_fragment;
    std::uint8_t ttl;
    std::uint8_t protocol;
    Be16 checksum;
    Be32 source;
    Be32 destination;
};
struct Ipv6Header {
    Be32 version_class_label;  // 4 bits version, 8 traffic class, 20 flow label
    Be16 payload_length;
    std::uint8_t next_header;
    std::uint8_t hop_limit;
    std::array<std::uint8_t, 16> source;
    std::array<std::uint8_t, 16> destination;
};
struct UdpHeader {
    Be16 source_port;
    Be16 destination_port;
    Be16 length;
    Be16 checksum;  // 0 for RoCEv2 over IPv4 and IPv6 alike (A17.3.2)
};
struct Bth {
    std::uint8_t opcode;
    std::uint8_t
        flags;  // solicited event 0x80, migration request 0x40, pad count 0x30, version 0x0f
    Be16 pkey;
    std::uint8_t resv8a;  // FECN 0x80, BECN 0x40; a variant field of the ICRC
    Be24 destination_qp;
    std::uint8_t ack_request;  // 0x80, the rest reserved
    Be24 psn;

    bool solicited() const { return (flags & 0x80) != 0; }
    std::uint8_t pad_count() const { return (flags >> 4) & 3; }
    bool wants_ack() const { return (ack_request & 0x80) != 0; }
};
struct Reth {
    Be64 virtual_address;
    Be32 rkey;
    Be32 length;
};
struct AtomicEth {
    Be64 virtual_address;
    Be32 rkey;
    Be64 swap_or_add;
    Be64 compare;
};
struct Aeth {
    std::uint8_t syndrome;
    Be24 msn;
};
struct AtomicAckEth {
    Be64 original;
};
struct ImmDt {
    Be32 immediate;
};
struct Ieth {
    Be32 rkey;
};
struct Deth {
    Be32 qkey;
    std::uint8_t reserved;
    Be24 source_qp;
};
struct Xrceth {
    std::uint8_t reserved;
    Be24 srq;
};
static_assert(sizeof(EthernetHeader) == 14 && sizeof(VlanTag) == 4 && sizeof(Ipv4Header) == 20);
static_assert(sizeof(Ipv6Header) == 40 && sizeof(UdpHeader) == 8 && sizeof(Bth) == 12);
static_assert(sizeof(Reth) == 16 && sizeof(AtomicEth) == 28 && sizeof(Aeth) == 4);
static_assert(sizeof(AtomicAckEth) == 8 && sizeof(ImmDt) == 4 && sizeof(Ieth) == 4);
static_assert(sizeof(Deth) == 8 && sizeof(Xrceth) == 4 && alignof(AtomicEth) == 1);

inline constexpr std::size_t kIcrcLength = 4;

// AETH syndromes (IBTA vol. 1, 9.7.5.2): 0x00..0x1f ACK with credits (0x1f: credits not in use),
// 0x20..0x3f RNR NAK with the timer code, 0x60.. NAK with its code.
inline constexpr std::uint8_t kSyndromeAck = 0x1f, kSyndromeRnr = 0x20, kSyndromeNak = 0x60;
enum class NakCode : std::uint8_t {
    kPsnSequence = 0,
    kInvalidRequest = 1,
    kRemoteAccess = 2,
    kRemoteOperational = 3,
    kInvalidRd = 4,
};

template <class Header>
Header* header_at(Frame& frame, std::size_t offset) {
    assert(offset + sizeof(Header) <= Frame::kHeaderMax);
    return reinterpret_cast<Header*>(frame.header.data() + offset);
}
template <class Header>
const Header* header_at(const Frame& frame, std::size_t offset) {
    assert(offset + sizeof(Header) <= Frame::kHeaderMax);
    return reinterpret_cast<const Header*>(frame.header.data() + offset);
}

// Everything below the BTH that one direction of a QP or an address handle fixes once. `Path` is
// prepared when the address is resolved; `emit_lower` then costs a copy and the length fields.
struct Path {
    MacAddress source_mac, destination_mac;
    Gid source, destination;         // both IPv4-mapped, or both IPv6
    std::uint8_t traffic_class = 0;  // DSCP and ECN; data packets carry ECT(0)
    std::uint8_t hop_limit = 64;
    std::uint32_t flow_label = 0;  // 20 bits
    std::uint16_t source_port = 0xc000;

    bool is_ipv4() const { return destination.is_ipv4(); }
};

// The UDP source port for a flow label (A17 and the later "flow label to source port" rule): folds
// the 20 bits into 0xc000..0xffff. A zero flow label is derived from the two QPNs first.
std::uint16_t source_port_for(std::uint32_t flow_label, Qpn local, Qpn remote);

// A complete header template made from a path: emit copies it and patches the lengths.
struct LowerTemplate {
    std::array<std::byte, 64> bytes;
    std::uint8_t length = 0;
    std::uint8_t l3_offset = 0;
    std::uint8_t l4_offset = 0;
};
LowerTemplate make_lower_template(const Path& path);

// Starts `frame`: lower headers and a BTH of `info` with room for its extension headers (which the
// caller fills through header_at(frame, frame.bth_offset + sizeof(Bth) + ...)). Payload segments
// are added afterwards, then `finish_roce` writes pad count, lengths and the IPv4 header checksum.
void start_roce(Frame& frame, const LowerTemplate& lower, const OpcodeInfo& info);
void finish_roce(Frame& frame);

// RoCE payload is padded to whole words of 4 bytes.
inline std::uint32_t pad_length(const Frame& frame) { return (0u - frame.payload_length) & 3; }
// Bytes of the whole frame on the wire with pad and ICRC, without preamble and FCS.
inline std::size_t wire_length(const Frame& frame) {
    const std::size_t length = std::size_t{frame.header_length} + frame.payload_length;
    return frame.bth_offset != 0 ? length + pad_length(frame) + kIcrcLength : length;
}

// Why a frame is not what it claims to be.
enum class ParseError : std::uint8_t {
    kNone,
    kTooShort,
    kBadLength,
    kBadIpVersion,
    kBadIpChecksum,
    kFragment,
    kBadUdpLength,
    kUnknownOpcode,
    kBadTransportVersion,
    kBadPad,
    kTooLong,
    kIpOptions,
};
const char* to_string(ParseError error);

// Takes a frame apart: `bytes` is a whole Ethernet frame (no FCS), `where` tells which memory it
// lies in (for the payload segment). On success offsets, payload segment and ICRC value are set. A
// frame that is not RoCEv2 parses as an Ethernet/IP frame with bth_offset 0 and icrc_state kNone.
ParseError parse_frame(ByteView bytes, PayloadSegment where, Frame& out);

// The same for a frame that somebody made by hand and of which only the first bytes are looked at:
// `head` has min(length, Frame::kHeaderMax) bytes of `length`. It is never RoCEv2 for the card, and
// what is not well formed is left to the payload; `out` has no payload yet, which starts at
// header_length. True: the frame says that it is RoCEv2 (and parse_frame knows whether it is
// right).
bool parse_head(ByteView head, std::size_t length, Frame& out);

// True when the frame is well formed as RoCEv2: the checks a receiver makes before it looks at the
// QP.
inline bool is_roce(const Frame& frame) { return frame.bth_offset != 0; }

// Getters and setters on the L3 header that work for both families; setters keep the IPv4 checksum
// right and call keep_emitted_header() first.
std::uint8_t traffic_class(const Frame& frame);
std::uint8_t hop_limit(const Frame& frame);
std::uint8_t ip_protocol(const Frame& frame);  // or IPv6 next header
Gid source_gid(const Frame& frame);
Gid destination_gid(const Frame& frame);
void set_traffic_class(Frame& frame, std::uint8_t value);
inline std::uint8_t ecn(const Frame& frame) { return traffic_class(frame) & kEcnMask; }
void set_ecn(Frame& frame, std::uint8_t code_point);
MacAddress source_mac(const Frame& frame);
MacAddress destination_mac(const Frame& frame);

// A congestion notification packet (A17.9.3): BTH opcode 0x81, BECN set, 16 zero bytes, as payload
// segment in card memory with static lifetime.
void emit_cnp(Frame& frame, const LowerTemplate& lower, Qpn destination);

}  // namespace rdmalab::wire
