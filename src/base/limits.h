// Every limit of the card, in one place, each with its reason. Device attributes report these.
#pragma once

#include <cstdint>

namespace rdmalab::limits {

inline constexpr std::uint32_t kQpMax = 65'536;  // per function; QPN index is 16 bits
inline constexpr std::uint32_t kCqMax = 65'536;
inline constexpr std::uint32_t kSrqMax = 16'384;
inline constexpr std::uint32_t kMrMax = 1u << 20;
inline constexpr std::uint32_t kXrcdMax = 1'024;
inline constexpr std::uint64_t kDmMax = 4u << 20;  // device memory of a function, in all
inline constexpr std::uint32_t kPdMax = 16'384;
inline constexpr std::uint32_t kAhMax = 65'536;
inline constexpr std::uint32_t kWqeMax = 32'768;     // per queue; perftest and UCX ask up to 16 K
inline constexpr std::uint32_t kCqeMax = 4'194'303;  // libfabric RxM asks for 262,144
inline constexpr std::uint32_t kSgeMax = 32;         // fits a 512-byte area of a WQE
inline constexpr std::uint32_t kInlineMax = 1'024;   // bytes of inline data a QP may ask for
inline constexpr std::uint32_t kSmallPayloadMax =
    256;                                        // at most this much rides in the ring unasked
inline constexpr std::uint32_t kReadsMax = 16;  // RDMA reads and atomics outstanding per QP
inline constexpr std::uint64_t kMessageMax = 1ull << 31;  // 2 GiB, IBTA vol. 1, 9.7.7
inline constexpr std::uint32_t kMtuMax = 4'096;
inline constexpr std::uint32_t kRawFrameMax = 9'216;  // a frame of a raw packet QP: a jumbo frame
inline constexpr std::uint32_t kGidMax = 16;          // entries of a function's GID table
inline constexpr std::uint32_t kFunctionMax = 64;     // functions of one card
inline constexpr std::uint32_t kContextMax = 1'024;   // attachments of one card
inline constexpr std::uint32_t kMcastGroupMax = 8'192;
inline constexpr std::uint32_t kMcastQpMax = 256;  // QPs per group
// CM connections of one function, with those in timewait: one per QP, and more cannot be accepted.
inline constexpr std::uint32_t kCmConnectionMax = 65'536;
// CM ids of one card, with listeners: both ends of as many connections as one function has.
inline constexpr std::uint32_t kCmIdMax = 131'072;
// Flow pipes and entries of one switch domain: far more than any program makes, little enough that
// a program that runs wild does not fill the memory of the card.
inline constexpr std::uint32_t kFlowPipeMax = 1'024;
inline constexpr std::uint32_t kFlowEntryMax = 1u << 18;
inline constexpr std::uint32_t kFlowHashEntryMax = 1u
                                                   << 16;  // of one HASH pipe: room from the start

}  // namespace rdmalab::limits
