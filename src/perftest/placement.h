// Which core each process runs on, and which NUMA node its buffers lie on (hwloc).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "perftest/plan.h"

namespace rdmalab::perftest {

struct Placement {
    // One per process; none: left to the scheduler, because too few cores are free for pinning.
    std::vector<std::optional<int>> cores;
};

// Cores of the device's NUMA node first, one hardware thread per core, core 0 left alone, never one
// of `taken` (cores of another process of this test on this host). Throws Failure for cores that do
// not exist.
Placement place(const std::string& device, const Side& side, std::uint32_t processes,
                const std::vector<int>& taken);

// NUMA node of the device; of `core` when the device has none; nothing on a machine without.
std::optional<int> buffer_node(const std::string& device, std::optional<int> core);

void pin_to(int core);
// Best effort: where binding is not permitted the pages stay where they are.
void bind_memory(void* address, std::size_t length, int numa_node);

}  // namespace rdmalab::perftest
