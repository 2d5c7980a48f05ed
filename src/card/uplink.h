// What leaves the card by an uplink: frames become bytes with their ICRC, and runs of frames of one
// flow become bursts (wire/burst.h).
//
// A frame that is added leaves its headers here at once, while its payload is read by the memory
// port together with all other copies of the round. `seal`, after the flush, computes the CRCs and
// forms bursts; the host sends them, and what it cannot take yet waits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "transport/ports.h"
#include "wire/burst.h"
#include "wire/frame.h"
#include "wire/icrc.h"

namespace rdmalab::card {

// Ready to leave: `head`, then `payload`. `segment_length` 0: one frame.
struct UplinkBurst {
    ByteView head, payload;
    std::uint32_t segment_length = 0;
    std::uint8_t l4_offset = 0;
    bool is_ipv6 = false;
};

class UplinkQueue {
public:
    // Twice what a round of the card makes.
    static constexpr std::size_t kFramesMax = 512;
    static constexpr std::size_t kBytesMax = 2u << 20;

    UplinkQueue(transport::MemoryPort& memory, bool may_burst);

    // False: there is no room, or the payload cannot be read.
    bool add(const wire::Frame& frame, std::vector<transport::CopyFault>& faults);
    // After the flush whose faults these are. The views live until the burst is popped.
    void seal(std::span<const transport::CopyFault> faults);
    std::span<const UplinkBurst> bursts() const { return std::span(bursts_).subspan(popped_); }
    void pop(std::size_t count);
    bool is_empty() const { return records_.empty(); }
    // Bursts are waiting for the host. Whoever makes frames for this uplink should wait as well.
    bool is_blocked() const { return popped_ < bursts_.size(); }
    void forbid_bursts() { may_burst_ = false; }

private:
    struct Record {
        std::size_t begin = 0, length = 0;  // in bytes_; of RoCE from the BTH to the ICRC
        wire::LowerHead head;               // of RoCE; else empty
        // Where the ICRC comes from. Only a frame whose header nobody has touched may be given
        // another identification.
        enum class Icrc : std::uint8_t { kNone, kOfHead, kAsEmitted, kAsReceived } icrc{};
        std::optional<wire::Icrc> emitted;
        std::uint32_t received = 0;
        std::uint32_t payload_length = 0;  // with its pad
        std::uint64_t origin = 0;
        bool is_lost = false;
    };
    void place_headers(const wire::Frame& frame, Record& record);
    bool place_payload(const wire::Frame& frame, ByteSpan out,
                       std::vector<transport::CopyFault>& faults);
    std::size_t run_from(std::size_t first) const;
    void seal_run(std::size_t first, std::size_t count);
    bool joins(const Record& record, const Record& first) const;
    void write_icrc(const Record& record, std::uint16_t index);
    void blank_lost(std::span<const transport::CopyFault> faults);

    transport::MemoryPort& memory_;
    bool may_burst_;
    std::unique_ptr<std::byte[]> bytes_;
    std::size_t used_ = 0;
    std::vector<Record> records_;
    std::size_t sealed_ = 0;  // records that are in bursts
    std::vector<wire::LowerHead> heads_;
    std::vector<UplinkBurst> bursts_;
    std::size_t popped_ = 0;
};

}  // namespace rdmalab::card
