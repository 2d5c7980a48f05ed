#include "wire/opcode.h"

#include <array>
#include <cassert>

namespace rdmalab::wire {
namespace {

struct ExtensionLength {
    std::uint8_t bit;
    std::uint8_t length;
};
constexpr std::array<ExtensionLength, 8> kExtensionLengths{{{kHasXrceth, 4},
                                                            {kHasDeth, 8},
                                                            {kHasReth, 16},
                                                            {kHasAtomicEth, 28},
                                                            {kHasAeth, 4},
                                                            {kHasAtomicAckEth, 8},
                                                            {kHasImmDt, 4},
                                                            {kHasIeth, 4}}};

constexpr std::uint8_t extension_length(std::uint8_t extensions) {
    std::uint8_t length = 0;
    for (const auto& row : kExtensionLengths)
        if ((extensions & row.bit) != 0) length = static_cast<std::uint8_t>(length + row.length);
    return length;
}

constexpr OpcodeInfo row(std::uint8_t opcode, std::string_view name, PacketKind kind,
                         Position position, int extensions, bool carries_payload) {
    const auto bits = static_cast<std::uint8_t>(extensions);
    return {opcode,
            name,
            static_cast<Service>(opcode >> 5),
            kind,
            position,
            bits,
            extension_length(bits),
            carries_payload};
}

using enum PacketKind;
using enum Position;
constexpr int kNo = 0, kImm = kHasImmDt, kInv = kHasIeth, kXrc = kHasXrceth;

constexpr std::array kRows{
    row(0x00, "RC SEND First", kSend, kFirst, kNo, true),
    row(0x01, "RC SEND Middle", kSend, kMiddle, kNo, true),
    row(0x02, "RC SEND Last", kSend, kLast, kNo, true),
    row(0x03, "RC SEND Last with Immediate", kSend, kLast, kImm, true),
    row(0x04, "RC SEND Only", kSend, kOnly, kNo, true),
    row(0x05, "RC SEND Only with Immediate", kSend, kOnly, kImm, true),
    row(0x06, "RC RDMA WRITE First", kWrite, kFirst, kHasReth, true),
    row(0x07, "RC RDMA WRITE Middle", kWrite, kMiddle, kNo, true),
    row(0x08, "RC RDMA WRITE Last", kWrite, kLast, kNo, true),
    row(0x09, "RC RDMA WRITE Last with Immediate", kWrite, kLast, kImm, true),
    row(0x0a, "RC RDMA WRITE Only", kWrite, kOnly, kHasReth, true),
    row(0x0b, "RC RDMA WRITE Only with Immediate", kWrite, kOnly, kHasReth | kImm, true),
    row(0x0c, "RC RDMA READ Request", kReadRequest, kOnly, kHasReth, false),
    row(0x0d, "RC RDMA READ Response First", kReadResponse, kFirst, kHasAeth, true),
    row(0x0e, "RC RDMA READ Response Middle", kReadResponse, kMiddle, kNo, true),
    row(0x0f, "RC RDMA READ Response Last", kReadResponse, kLast, kHasAeth, true),
    row(0x10, "RC RDMA READ Response Only", kReadResponse, kOnly, kHasAeth, true),
    row(0x11, "RC Acknowledge", kAck, kOnly, kHasAeth, false),
    row(0x12, "RC ATOMIC Acknowledge", kAtomicAck, kOnly, kHasAeth | kHasAtomicAckEth, false),
    row(0x13, "RC CmpSwap", kCompareSwap, kOnly, kHasAtomicEth, false),
    row(0x14, "RC FetchAdd", kFetchAdd, kOnly, kHasAtomicEth, false),
    row(0x16, "RC SEND Last with Invalidate", kSend, kLast, kInv, true),
    row(0x17, "RC SEND Only with Invalidate", kSend, kOnly, kInv, true),
    row(0x1d, "RC ATOMIC WRITE", kAtomicWrite, kOnly, kHasReth, true),

    row(0x20, "UC SEND First", kSend, kFirst, kNo, true),
    row(0x21, "UC SEND Middle", kSend, kMiddle, kNo, true),
    row(0x22, "UC SEND Last", kSend, kLast, kNo, true),
    row(0x23, "UC SEND Last with Immediate", kSend, kLast, kImm, true),
    row(0x24, "UC SEND Only", kSend, kOnly, kNo, true),
    row(0x25, "UC SEND Only with Immediate", kSend, kOnly, kImm, true),
    row(0x26, "UC RDMA WRITE First", kWrite, kFirst, kHasReth, true),
    row(0x27, "UC RDMA WRITE Middle", kWrite, kMiddle, kNo, true),
    row(0x28, "UC RDMA WRITE Last", kWrite, kLast, kNo, true),
    row(0x29, "UC RDMA WRITE Last with Immediate", kWrite, kLast, kImm, true),
    row(0x2a, "UC RDMA WRITE Only", kWrite, kOnly, kHasReth, true),
    row(0x2b, "UC RDMA WRITE Only with Immediate", kWrite, kOnly, kHasReth | kImm, true),

    row(0x64, "UD SEND Only", kSend, kOnly, kHasDeth, true),
    row(0x65, "UD SEND Only with Immediate", kSend, kOnly, kHasDeth | kImm, true),

    row(kOpcodeCnp, "CNP", kCnp, kOnly, kNo, true),

    row(0xa0, "XRC SEND First", kSend, kFirst, kXrc, true),
    row(0xa1, "XRC SEND Middle", kSend, kMiddle, kXrc, true),
    row(0xa2, "XRC SEND Last", kSend, kLast, kXrc, true),
    row(0xa3, "XRC SEND Last with Immediate", kSend, kLast, kXrc | kImm, true),
    row(0xa4, "XRC SEND Only", kSend, kOnly, kXrc, true),
    row(0xa5, "XRC SEND Only with Immediate", kSend, kOnly, kXrc | kImm, true),
    row(0xa6, "XRC RDMA WRITE First", kWrite, kFirst, kXrc | kHasReth, true),
    row(0xa7, "XRC RDMA WRITE Middle", kWrite, kMiddle, kXrc, true),
    row(0xa8, "XRC RDMA WRITE Last", kWrite, kLast, kXrc, true),
    row(0xa9, "XRC RDMA WRITE Last with Immediate", kWrite, kLast, kXrc | kImm, true),
    row(0xaa, "XRC RDMA WRITE Only", kWrite, kOnly, kXrc | kHasReth, true),
    row(0xab, "XRC RDMA WRITE Only with Immediate", kWrite, kOnly, kXrc | kHasReth | kImm, true),
    row(0xac, "XRC RDMA READ Request", kReadRequest, kOnly, kXrc | kHasReth, false),
    row(0xad, "XRC RDMA READ Response First", kReadResponse, kFirst, kHasAeth, true),
    row(0xae, "XRC RDMA READ Response Middle", kReadResponse, kMiddle, kNo, true),
    row(0xaf, "XRC RDMA READ Response Last", kReadResponse, kLast, kHasAeth, true),
    row(0xb0, "XRC RDMA READ Response Only", kReadResponse, kOnly, kHasAeth, true),
    row(0xb1, "XRC Acknowledge", kAck, kOnly, kHasAeth, false),
    row(0xb2, "XRC ATOMIC Acknowledge", kAtomicAck, kOnly, kHasAeth | kHasAtomicAckEth, false),
    row(0xb3, "XRC CmpSwap", kCompareSwap, kOnly, kXrc | kHasAtomicEth, false),
    row(0xb4, "XRC FetchAdd", kFetchAdd, kOnly, kXrc | kHasAtomicEth, false),
    row(0xb6, "XRC SEND Last with Invalidate", kSend, kLast, kXrc | kInv, true),
    row(0xb7, "XRC SEND Only with Invalidate", kSend, kOnly, kXrc | kInv, true),
    row(0xbd, "XRC ATOMIC WRITE", kAtomicWrite, kOnly, kXrc | kHasReth, true),
};

constexpr auto kByOpcode = [] {
    std::array<const OpcodeInfo*, 256> table{};
    for (const OpcodeInfo& info : kRows) table[info.opcode] = &info;
    return table;
}();

// 0x15 is reserved in every service, so it can stand for "no such combination".
constexpr std::uint8_t kNoOpcode = 0x15;
constexpr std::size_t kServices = 6, kKinds = 10, kPositions = 4, kVariants = 4;

constexpr std::size_t parts_index(Service service, PacketKind kind, Position position,
                                  bool immediate, bool invalidate) {
    const std::size_t variant = (immediate ? 1u : 0u) + (invalidate ? 2u : 0u);
    return ((static_cast<std::size_t>(service) * kKinds + static_cast<std::size_t>(kind)) *
                kPositions +
            static_cast<std::size_t>(position)) *
               kVariants +
           variant;
}

constexpr auto kByParts = [] {
    std::array<std::uint8_t, kServices * kKinds * kPositions * kVariants> table{};
    table.fill(kNoOpcode);
    for (const OpcodeInfo& info : kRows)
        table[parts_index(info.service, info.kind, info.position,
                          (info.extensions & kHasImmDt) != 0, (info.extensions & kHasIeth) != 0)] =
            info.opcode;
    return table;
}();

}  // namespace

const OpcodeInfo* find_opcode(std::uint8_t opcode) { return kByOpcode[opcode]; }

std::uint8_t opcode_value(Service service, PacketKind kind, Position position, bool immediate,
                          bool invalidate) {
    const std::uint8_t opcode =
        kByParts[parts_index(service, kind, position, immediate, invalidate)];
    assert(opcode != kNoOpcode);
    return opcode;
}

}  // namespace rdmalab::wire
