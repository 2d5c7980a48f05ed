// Follows a pcapng file that somebody else is writing: how many packets are complete, and where the
// last complete block ends.
#pragma once

#include <cstdint>

namespace rdmalab::launcher {

class PcapngCounter {
public:
    // Looks at what was appended since the last call, but not beyond `packets_max` packets.
    void advance(int file, std::uint64_t packets_max);
    std::uint64_t packets() const { return packets_; }
    std::uint64_t end() const { return end_; }  // bytes that belong to complete blocks

private:
    std::uint64_t packets_ = 0;
    std::uint64_t end_ = 0;
};

}  // namespace rdmalab::launcher
