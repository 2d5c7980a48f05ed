#include "perftest/cluster/link_counters.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>

#include "perftest/failure.h"

namespace rdmalab::perftest {

LinkCounters::LinkCounters(std::size_t links)
    : length_((links + 1) * sizeof(std::atomic<std::uint64_t>)) {
    // Anonymous pages are zero, as the counters are.
    void* memory =
        mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw Failure(fmt::format("mmap: {}", strerror(errno)));
    counters_ = static_cast<std::atomic<std::uint64_t>*>(memory);
}

LinkCounters::~LinkCounters() { munmap(counters_, length_); }

}  // namespace rdmalab::perftest
