#include "perftest/placement.h"

#include <errno.h>
#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>
#include <string.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "perftest/failure.h"

namespace rdmalab::perftest {

namespace {

struct BitmapFreer {
    void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapFreer>;

class Topology {
public:
    Topology() {
        hwloc_topology_init(&topology_);
        hwloc_topology_load(topology_);
    }
    ~Topology() { hwloc_topology_destroy(topology_); }
    Topology(const Topology&) = delete;
    Topology& operator=(const Topology&) = delete;
    operator hwloc_topology_t() const { return topology_; }

private:
    hwloc_topology_t topology_{};
};

// Reading it takes tens of milliseconds, and nothing in it changes.
const Topology& this_machine() {
    static const Topology topology;
    return topology;
}

std::optional<int> device_node(const std::string& device) {
    std::ifstream file("/sys/class/infiniband/" + device + "/device/numa_node");
    int node = -1;
    if (!(file >> node) || node < 0) return std::nullopt;
    return node;
}

// One hardware thread of every core that we may run on, near ones first.
std::vector<int> cores_by_distance(const Topology& topology, std::optional<int> node) {
    std::vector<int> near, far;
    hwloc_obj_t home =
        node ? hwloc_get_numanode_obj_by_os_index(topology, static_cast<unsigned>(*node)) : nullptr;
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(topology);
    for (hwloc_obj_t core = nullptr;
         (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr;) {
        Bitmap usable(hwloc_bitmap_alloc());
        hwloc_bitmap_and(usable.get(), core->cpuset, allowed);
        int first = hwloc_bitmap_first(usable.get());
        if (first < 0) continue;
        bool is_near = home == nullptr || hwloc_bitmap_intersects(core->cpuset, home->cpuset);
        (is_near ? near : far).push_back(first);
    }
    near.insert(near.end(), far.begin(), far.end());
    return near;
}

bool may_run_on(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    return core < CPU_SETSIZE && CPU_ISSET(core, &set);
}

}  // namespace

Placement place(const std::string& device, const Side& side, std::uint32_t processes,
                const std::vector<int>& taken) {
    Placement out;
    for (int core : side.cores) {
        if (!may_run_on(core)) {
            throw Failure(
                fmt::format("--cores: core {} does not exist here or may not be used "
                            "by this process",
                            core));
        }
        out.cores.emplace_back(core);
    }
    if (!out.cores.empty()) return out;
    const Topology& topology = this_machine();
    std::vector<int> pool = cores_by_distance(topology, device_node(device));
    auto is_out = [&](int core) {
        auto has = [core](const std::vector<int>& list) {
            return std::find(list.begin(), list.end(), core) != list.end();
        };
        return core == 0 || has(side.excluded_cores) || has(taken) || !may_run_on(core);
    };
    pool.erase(std::remove_if(pool.begin(), pool.end(), is_out), pool.end());
    // With no core to spare, pinning would put us in the way of whoever shares ours.
    bool enough = pool.size() > processes;
    for (std::uint32_t i = 0; i < processes; ++i) {
        out.cores.push_back(enough ? std::optional<int>(pool[i]) : std::nullopt);
    }
    return out;
}

std::optional<int> buffer_node(const std::string& device, std::optional<int> core) {
    if (std::optional<int> node = device_node(device)) return node;
    const Topology& topology = this_machine();
    if (hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) == 1) return 0;
    if (!core) return std::nullopt;
    hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(topology, static_cast<unsigned>(*core));
    if (pu == nullptr) return std::nullopt;
    int node = hwloc_bitmap_first(pu->nodeset);
    return node < 0 ? std::nullopt : std::optional<int>(node);
}

void pin_to(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(core), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        throw Failure(fmt::format("cannot run on core {}: {}", core, strerror(errno)));
    }
}

void bind_memory(void* address, std::size_t length, int numa_node) {
    const Topology& topology = this_machine();
    if (hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) < 2) return;
    Bitmap nodes(hwloc_bitmap_alloc());
    hwloc_bitmap_only(nodes.get(), static_cast<unsigned>(numa_node));
    hwloc_set_area_membind(topology, address, length, nodes.get(), HWLOC_MEMBIND_BIND,
                           HWLOC_MEMBIND_BYNODESET);
}

}  // namespace rdmalab::perftest
