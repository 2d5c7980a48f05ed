// The pcapng format, the part a capture needs: section header, one interface block per tap with its
// name and nanosecond time stamps, enhanced packet blocks. Pure formatting: the caller writes the
// bytes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/units.h"

namespace rdmalab::wire {

std::vector<std::byte> pcapng_header(std::string_view interface_name, std::uint32_t snap_length);
// Appends one packet block. `time` is wall-clock nanoseconds since the epoch; `inbound` goes into
// epb_flags.
void append_pcapng_packet(std::vector<std::byte>& out, std::int64_t epoch_ns, ByteView frame,
                          bool inbound);

}  // namespace rdmalab::wire
