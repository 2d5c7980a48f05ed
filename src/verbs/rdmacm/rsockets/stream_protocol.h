// What stream sockets say to each other over an RC connection.
//
// ## Data
// Each side has a ring of bytes in registered memory and tells the other where it lies (Hello, in
// the private data of the connection's REQ and REP). The sender of a stream writes its bytes there
// by RDMA write with immediate, one after the other, never across the end of the ring: where the
// next byte goes follows from how many were sent. The immediate says how many bytes have come; it
// consumes one receive WR (a *slot*) of the receiver, which posts it again at once.
//
// ## Grants
// A sender never runs into RNR and never overwrites what has not been read: it counts the slots and
// the bytes that it has used up, and the receiver grants them back by messages of kind kGrant, a
// slot when the message was taken from the CQ, bytes when the program has read them. Grants are
// sent when half of either has accumulated.
//
// Grants use up slots of the peer, too. Data stop kSlotsReserved slots short of the end, so that
// two sides that have filled each other's slots with data can still send grants. Two slots for
// these are enough: of the messages that fill up all slots the last one is a grant, and when it is
// taken from the CQ the peer can go on; the rest is for kShutdown and kClose, sent once each.
//
// ## The end
// kShutdown: no more data will come. kClose: nor will any be taken; the QP goes away as soon as the
// message is acknowledged. A connection that ends without it was reset.
//
// ## I/O mappings
// Each side has a table of IomapEntry, as many as its program has asked for (RDMA_IOMAPSIZE), which
// the peer fills in by RDMA writes when its program maps a buffer. It is looked up by riowrite,
// which writes into the peer's buffer without telling it.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace rdmalab::rdmacm::stream {

inline constexpr std::uint8_t kVersion = 1;

struct Hello {
    std::uint8_t version = kVersion;
    std::uint8_t reserved = 0;
    Be16 slots;
    Be32 ring_length;
    Be64 ring_address;
    Be32 ring_key;
    Be32 iomap_count;
    Be64 iomap_address;
    Be32 iomap_key;
};
static_assert(sizeof(Hello) == 36);

// Kind and value share the 32 bits of the immediate.
enum class Kind : std::uint32_t { kData, kGrant, kShutdown, kClose };
inline constexpr unsigned kKindShift = 29;
inline constexpr std::uint32_t kValueMask = (1u << kKindShift) - 1;

// Value of a grant: slots in the low bits, bytes in units above.
inline constexpr unsigned kGrantSlotBits = 11;
inline constexpr std::uint32_t kGrantUnit = 64;

inline constexpr std::uint32_t kSlotsMin = 16, kSlotsMax = (1u << kGrantSlotBits) - 1;
inline constexpr std::uint32_t kSlotsReserved = 4;  // two for grants, two for the end
inline constexpr std::uint32_t kRingMin = 4096;
inline constexpr std::uint32_t kRingMax =
    ((1u << (kKindShift - kGrantSlotBits)) - 1) * kGrantUnit;  // 16 MiB, what one grant can say

constexpr std::uint32_t immediate(Kind kind, std::uint32_t value) {
    return static_cast<std::uint32_t>(kind) << kKindShift | (value & kValueMask);
}
constexpr Kind kind_of(std::uint32_t immediate) {
    return static_cast<Kind>(immediate >> kKindShift);
}
constexpr std::uint32_t value_of(std::uint32_t immediate) { return immediate & kValueMask; }

// One buffer that the peer's program has mapped; length 0: none. Host order: both sides are on the
// same card.
struct IomapEntry {
    std::uint64_t offset = 0;  // as the programs name it
    std::uint64_t length = 0;
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t reserved = 0;
};

}  // namespace rdmalab::rdmacm::stream
