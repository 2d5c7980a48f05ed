#include "rdmalab/pcapng_count.h"

#include <sys/stat.h>
#include <unistd.h>

namespace rdmalab::launcher {

namespace {

constexpr std::uint32_t kEnhancedPacketBlock = 6;
constexpr std::uint32_t kBlockLengthMin = 12;

struct BlockHead {
    std::uint32_t type;
    std::uint32_t length;  // of the whole block
};

}  // namespace

void PcapngCounter::advance(int file, std::uint64_t packets_max) {
    struct stat facts {};
    if (fstat(file, &facts) != 0) return;
    std::uint64_t size = static_cast<std::uint64_t>(facts.st_size);
    BlockHead head{};
    while (packets_ < packets_max && end_ + sizeof head <= size) {
        if (pread(file, &head, sizeof head, static_cast<off_t>(end_)) != sizeof head) return;
        if (head.length < kBlockLengthMin || end_ + head.length > size) return;
        end_ += head.length;
        if (head.type == kEnhancedPacketBlock) ++packets_;
    }
}

}  // namespace rdmalab::launcher
