// Reads what ib_write_bw prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace rdmalab::launcher {

struct BandwidthResult {
    std::uint64_t bytes_per_message = 0;
    std::uint64_t messages = 0;
    double gigabits_per_second = 0;  // average
    std::uint64_t bytes() const { return bytes_per_message * messages; }
};

// Of a run with --report_gbits. Nothing when there is no result line.
std::optional<BandwidthResult> parse_bandwidth(const std::string& output);

}  // namespace rdmalab::launcher
