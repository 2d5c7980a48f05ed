// BTH opcodes as a table (IBTA vol. 1, 9.2, table 38 of release 1.3): the parser, the printer, the
// validator, the engine and the tests read the same rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rdmalab::wire {

// Transport service: the upper three bits of the opcode.
enum class Service : std::uint8_t { kRc = 0, kUc = 1, kRd = 2, kUd = 3, kCnp = 4, kXrc = 5 };

enum class PacketKind : std::uint8_t {
    kSend,
    kWrite,
    kReadRequest,
    kReadResponse,
    kAck,
    kAtomicAck,
    kCompareSwap,
    kFetchAdd,
    kCnp,
    kAtomicWrite,
};

enum class Position : std::uint8_t { kOnly, kFirst, kMiddle, kLast };

// Extension headers, as bits; they follow the BTH in this order.
enum ExtensionBits : std::uint8_t {
    kHasXrceth = 1,
    kHasDeth = 2,
    kHasReth = 4,
    kHasAtomicEth = 8,
    kHasAeth = 16,
    kHasAtomicAckEth = 32,
    kHasImmDt = 64,
    kHasIeth = 128,
};

struct OpcodeInfo {
    std::uint8_t opcode;
    std::string_view name;  // "RC RDMA WRITE First"
    Service service;
    PacketKind kind;
    Position position;
    std::uint8_t extensions;        // ExtensionBits
    std::uint8_t extension_length;  // bytes
    bool carries_payload;
};

// nullptr for an opcode that RoCEv2 does not define or the card does not know.
const OpcodeInfo* find_opcode(std::uint8_t opcode);
// Value of an opcode by its parts; the combination must exist (checked by assertion).
std::uint8_t opcode_value(Service service, PacketKind kind, Position position,
                          bool immediate = false, bool invalidate = false);

inline constexpr std::uint8_t kOpcodeCnp = 0x81;

}  // namespace rdmalab::wire
