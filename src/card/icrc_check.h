// The ICRC of a frame that came from bytes; the engine looks after those whose ICRC is elided. The
// CRC covers the pad too, which stands right behind the payload.
#pragma once

#include "wire/headers.h"
#include "wire/icrc.h"

namespace rdmalab::card {

inline bool icrc_is_right(const wire::Frame& frame) {
    if (frame.icrc_state != wire::IcrcState::kPresent) return true;
    wire::Icrc icrc(frame);
    for (unsigned i = 0; i < frame.segment_count; ++i) {
        const wire::PayloadSegment& segment = frame.segments[i];
        if (segment.space != kCardSpace) return false;
        const std::size_t pad = i + 1 == frame.segment_count ? (0u - frame.payload_length) & 3 : 0;
        icrc.add({reinterpret_cast<const std::byte*>(segment.address), segment.length + pad});
    }
    return icrc.value() == frame.icrc;
}

}  // namespace rdmalab::card
