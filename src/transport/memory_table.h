// Memory regions by key. A key is index << 8 | tag; the tag changes each time a slot is reused, so
// a stale key finds nothing. One key serves as lkey and as rkey, as on common adapters.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/prng.h"
#include "base/result.h"
#include "transport/engine.h"

namespace rdmalab::transport {

// Where an address of a region lies. `ok` false: the access is not permitted.
struct Translation {
    bool ok = false;
    SpaceId space;
    std::uint64_t address = 0;
};

class MemoryTable {
public:
    explicit MemoryTable(std::uint64_t seed) : prng_(seed) {}

    Result<MrKeys> insert(const MrInit& init);
    // False when there is no such region of this owner. `pd` is set to the region's PD.
    bool erase(OwnerId owner, Lkey lkey, PdId& pd);
    void erase_of(OwnerId owner);
    std::uint32_t size() const { return live_; }

    // May `length` bytes at `iova` be accessed with these rights from a QP of this PD? The length
    // is not zero: a zero-length access touches no memory and is never checked (IBTA 10.6.7.2).
    Translation local(Lkey lkey, PdId pd, std::uint64_t iova, std::uint64_t length,
                      std::uint32_t access) const;
    Translation remote(Rkey rkey, PdId pd, std::uint64_t iova, std::uint64_t length,
                       std::uint32_t access) const;
    // The key stops to work for remote access (send with invalidate, local invalidate).
    bool invalidate(Rkey rkey, PdId pd);

private:
    struct Region {
        OwnerId owner;
        SpaceId space;
        PdId pd;
        std::uint64_t address = 0, length = 0, iova = 0;
        std::uint32_t access = 0;
        std::uint8_t tag = 0;
        bool is_live = false;
        bool is_remote_valid = false;
    };
    const Region* find(std::uint32_t key, PdId pd) const;
    static Translation translate(const Region& region, std::uint64_t iova, std::uint64_t length,
                                 std::uint32_t access);

    std::vector<Region> regions_{1};  // slot 0 stays empty: key 0 is never valid
    std::vector<std::uint32_t> free_;
    std::uint32_t live_ = 0;
    Prng prng_;
};

}  // namespace rdmalab::transport
