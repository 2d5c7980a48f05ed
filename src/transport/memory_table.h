// Memory regions and memory windows by key. A key is index << 8 | tag; the tag changes each time a
// slot is reused, so a stale key finds nothing. One key serves as lkey and as rkey, as on common
// adapters. The tag of a window is the consumer's: he chooses a new one with each bind.
//
// A bound window holds the place and the rights itself, so a remote access costs the same by a
// window as by a region. Its region counts the windows and stays until the last is unbound.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/prng.h"
#include "base/result.h"
#include "transport/engine.h"

namespace rdmalab::transport {

// The space of a null region: copies to it are not made, and what it holds is zero.
inline constexpr SpaceId kNullSpace{0xffff'ffff};

// Where an address of a region lies. `ok` false: the access is not permitted.
struct Translation {
    bool ok = false;
    bool is_on_demand = false;  // pages may be missing, and only the card finds out
    SpaceId space;
    std::uint64_t address = 0;
};

struct WindowRequest {
    Rkey rkey;  // of the window, with its new tag
    WindowBind bind;
    std::uint64_t address = 0;  // in the region's terms
    PdId pd;                    // of the QP that binds, and the QP
    Qpn qpn;
};

class MemoryTable {
public:
    explicit MemoryTable(std::uint64_t seed) : prng_(seed) {}

    Result<MrKeys> insert(const MrInit& init);
    // EINVAL when there is no such region of this owner, EBUSY when windows are bound to it. `pd`
    // is set to the region's PD.
    int erase(OwnerId owner, Lkey lkey, PdId& pd);
    int change(OwnerId owner, Lkey lkey, const MrChange& change);
    std::optional<MrFacts> facts(OwnerId owner, Lkey lkey) const;
    void erase_of(OwnerId owner);

    Result<Rkey> insert_window(OwnerId owner, PdId pd, WindowType type);
    bool erase_window(OwnerId owner, std::uint32_t index, PdId& pd);
    bool bind(const WindowRequest& request);
    std::uint32_t size() const { return live_; }

    // May `length` bytes at `iova` be accessed with these rights from a QP of this PD? The length
    // is not zero: a zero-length access touches no memory and is never checked (IBTA 10.6.7.2).
    Translation local(Lkey lkey, PdId pd, std::uint64_t iova, std::uint64_t length,
                      std::uint32_t access) const;
    // `qpn` is that of the QP the request came to: windows of type 2 work for theirs only.
    Translation remote(Rkey rkey, PdId pd, Qpn qpn, std::uint64_t iova, std::uint64_t length,
                       std::uint32_t access) const;
    // A bound window of type 2 becomes free (send with invalidate, local invalidate). False: the
    // key names no such window. Regions are not invalidated: nothing could make them valid again.
    bool invalidate(Rkey rkey, PdId pd, Qpn qpn);

private:
    enum class Kind : std::uint8_t { kRegion, kNullRegion, kWindow1, kWindow2 };
    struct Region {
        OwnerId owner;
        SpaceId space;
        PdId pd;
        std::uint64_t address = 0, length = 0, iova = 0;
        std::uint32_t access = 0;
        std::uint8_t tag = 0;
        Kind kind = Kind::kRegion;
        bool is_live = false;
        bool is_remote_valid = false;  // a window: is bound
        Qpn qpn;                       // of a bound window of type 2; else 0
        std::uint32_t base = 0;        // of a bound window: the slot of its region
        std::uint32_t windows = 0;     // of a region: those bound to it

        bool is_window() const { return kind >= Kind::kWindow1; }
    };
    Result<std::uint32_t> take_slot();
    void free_slot(std::uint32_t index);
    Region* find_of(OwnerId owner, Lkey lkey);
    Region* find_window(OwnerId owner, std::uint32_t index);
    const Region* find(std::uint32_t key, PdId pd) const;
    bool may_bind(const Region& window, const Region& region, const WindowRequest& request) const;
    void unbind(Region& window);
    static Translation translate(const Region& region, std::uint64_t iova, std::uint64_t length,
                                 std::uint32_t access);

    std::vector<Region> regions_{1};  // slot 0 stays empty: key 0 is never valid
    std::vector<std::uint32_t> free_;
    std::uint32_t live_ = 0;
    Prng prng_;
};

}  // namespace rdmalab::transport
