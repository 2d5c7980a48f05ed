#include "wire/frame.h"

#include <algorithm>

namespace rdmalab::wire {

void Frame::copy_from(const Frame& other) {
    header_length = other.header_length;
    l3_offset = other.l3_offset;
    l4_offset = other.l4_offset;
    bth_offset = other.bth_offset;
    icrc_state = other.icrc_state;
    header_kept = other.header_kept;
    segment_count = other.segment_count;
    payload_length = other.payload_length;
    icrc = other.icrc;
    origin = other.origin;
    std::memcpy(header.data(), other.header.data(), header_length);
    std::copy_n(other.segments.begin(), segment_count, segments.begin());
    if (header_kept) std::memcpy(emitted_header.data(), other.emitted_header.data(), header_length);
}

}  // namespace rdmalab::wire
