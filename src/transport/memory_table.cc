#include "transport/memory_table.h"

#include <cerrno>

namespace rdmalab::transport {
namespace {

constexpr std::uint32_t kKnownAccess = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
                                       kAccessRemoteAtomic | kAccessMwBind | kAccessZeroBased |
                                       kAccessOnDemand | kAccessRelaxedOrdering;

bool overflows(std::uint64_t start, std::uint64_t length) { return start + length < start; }

// ibv_reg_mr(3): remote write and atomic rights need the local write right.
int check_init(const MrInit& init) {
    if ((init.access & ~kKnownAccess) != 0) return EINVAL;
    if ((init.access & (kAccessRemoteWrite | kAccessRemoteAtomic)) != 0 &&
        (init.access & kAccessLocalWrite) == 0)
        return EINVAL;
    if (overflows(init.address, init.length) || overflows(init.iova, init.length)) return EINVAL;
    return 0;
}

}  // namespace

Result<std::uint32_t> MemoryTable::take_slot() {
    std::uint32_t index;
    if (!free_.empty()) {
        index = free_.back();
        free_.pop_back();
    } else {
        if (regions_.size() > limits::kMrMax) return Error{ENOMEM, {}};
        index = static_cast<std::uint32_t>(regions_.size());
        regions_.emplace_back().tag = static_cast<std::uint8_t>(prng_.next());
    }
    ++live_;
    return index;
}

void MemoryTable::free_slot(std::uint32_t index) {
    regions_[index].is_live = false;
    free_.push_back(index);
    --live_;
}

Result<MrKeys> MemoryTable::insert(const MrInit& init) {
    if (const int error = check_init(init)) return Error{error, {}};
    const Result<std::uint32_t> index = take_slot();
    if (!index) return index.error();
    Region& region = regions_[*index];
    const auto tag = static_cast<std::uint8_t>(region.tag + 1);
    const bool zero_based = (init.access & kAccessZeroBased) != 0;
    const bool is_null = init.kind == MrKind::kNull;
    region = {};
    region.owner = init.owner;
    region.space = is_null ? kNullSpace : init.space;
    region.pd = init.pd;
    region.address = init.address;
    region.length = init.length;
    region.iova = zero_based ? 0 : init.iova;
    region.access = init.access;
    region.tag = tag;
    region.kind = is_null ? Kind::kNullRegion : Kind::kRegion;
    region.is_live = true;
    region.is_remote_valid = !is_null;
    const std::uint32_t key = *index << 8 | tag;
    return MrKeys{Lkey{key}, Rkey{key}};
}

MemoryTable::Region* MemoryTable::find_of(OwnerId owner, Lkey lkey) {
    const std::uint32_t index = lkey.value >> 8;
    if (index >= regions_.size()) return nullptr;
    Region& region = regions_[index];
    const bool matches = region.is_live && !region.is_window() && region.owner == owner &&
                         region.tag == (lkey.value & 0xff);
    return matches ? &region : nullptr;
}

//= IBA 10.6.7.2: a region that windows are bound to is in use
int MemoryTable::erase(OwnerId owner, Lkey lkey, PdId& pd) {
    const Region* const region = find_of(owner, lkey);
    if (region == nullptr) return EINVAL;
    if (region->windows > 0) return EBUSY;
    pd = region->pd;
    free_slot(lkey.value >> 8);
    return 0;
}

// The key stays, also for work that is on its way.
int MemoryTable::change(OwnerId owner, Lkey lkey, const MrChange& change) {
    Region* const region = find_of(owner, lkey);
    if (region == nullptr || region->kind != Kind::kRegion) return EINVAL;
    if (region->windows > 0) return EBUSY;
    MrInit next{.owner = owner,
                .space = region->space,
                .pd = change.pd.value_or(region->pd),
                .address = region->address,
                .length = region->length,
                .iova = region->iova,
                .access = change.access.value_or(region->access)};
    if (change.place) {
        next.space = change.place->space;
        next.address = change.place->address;
        next.length = change.place->length;
        next.iova = change.place->iova;
    }
    if (const int error = check_init(next)) return error;
    region->space = next.space;
    region->pd = next.pd;
    region->address = next.address;
    region->length = next.length;
    region->iova = (next.access & kAccessZeroBased) != 0 ? 0 : next.iova;
    region->access = next.access;
    return 0;
}

std::optional<MrFacts> MemoryTable::facts(OwnerId owner, Lkey lkey) const {
    const Region* const region = const_cast<MemoryTable*>(this)->find_of(owner, lkey);
    if (region == nullptr) return std::nullopt;
    return MrFacts{region->pd, region->address, region->length, region->iova, region->access};
}

// --- Windows

Result<Rkey> MemoryTable::insert_window(OwnerId owner, PdId pd, WindowType type) {
    const Result<std::uint32_t> index = take_slot();
    if (!index) return index.error();
    Region& window = regions_[*index];
    const auto tag = static_cast<std::uint8_t>(window.tag + 1);
    window = {};
    window.owner = owner;
    window.pd = pd;
    window.tag = tag;
    window.kind = type == WindowType::kType1 ? Kind::kWindow1 : Kind::kWindow2;
    window.is_live = true;
    return Rkey{*index << 8 | tag};
}

MemoryTable::Region* MemoryTable::find_window(OwnerId owner, std::uint32_t index) {
    if (index >= regions_.size()) return nullptr;
    Region& window = regions_[index];
    return window.is_live && window.is_window() && window.owner == owner ? &window : nullptr;
}

bool MemoryTable::erase_window(OwnerId owner, std::uint32_t index, PdId& pd) {
    Region* const window = find_window(owner, index);
    if (window == nullptr) return false;
    pd = window->pd;
    unbind(*window);
    free_slot(index);
    return true;
}

void MemoryTable::unbind(Region& window) {
    if (window.base != 0) --regions_[window.base].windows;
    window.base = 0;
    window.is_remote_valid = false;
    window.qpn = {};
}

//= IBA 10.6.7.2.4: what a bind must agree with
bool MemoryTable::may_bind(const Region& window, const Region& region,
                           const WindowRequest& request) const {
    constexpr std::uint32_t kWindowAccess = kAccessLocalWrite | kAccessRemoteWrite |
                                            kAccessRemoteRead | kAccessRemoteAtomic |
                                            kAccessZeroBased;
    constexpr std::uint32_t kChanges = kAccessRemoteWrite | kAccessRemoteAtomic;
    const std::uint32_t access = request.bind.access;
    if (region.kind != Kind::kRegion || (region.access & kAccessMwBind) == 0) return false;
    if ((access & ~kWindowAccess) != 0) return false;
    if ((access & kChanges) != 0 && (region.access & kAccessLocalWrite) == 0) return false;
    // Type 1 knows no addresses of its own.
    if ((access & kAccessZeroBased) != 0 && window.kind == Kind::kWindow1) return false;
    return translate(region, request.address, request.bind.length, 0).ok;
}

bool MemoryTable::bind(const WindowRequest& request) {
    const std::uint32_t index = request.rkey.value >> 8;
    if (index >= regions_.size()) return false;
    Region& window = regions_[index];
    if (!window.is_live || !window.is_window() || window.pd != request.pd) return false;
    const bool is_type2 = window.kind == Kind::kWindow2;
    //= IBA 10.6.7.2.2: a bound window of type 2 must be invalidated first
    if (is_type2 && window.is_remote_valid) return false;
    if (request.bind.length == 0) {
        if (is_type2) return false;
        unbind(window);
        window.tag = static_cast<std::uint8_t>(request.rkey.value);
        return true;
    }
    const Region* const region = find(request.bind.region.value, request.pd);
    if (region == nullptr || !may_bind(window, *region, request)) return false;
    const Translation at = translate(*region, request.address, request.bind.length, 0);
    unbind(window);
    window.tag = static_cast<std::uint8_t>(request.rkey.value);
    window.space = at.space;
    window.address = at.address;
    window.length = request.bind.length;
    window.iova = (request.bind.access & kAccessZeroBased) != 0 ? 0 : request.address;
    window.access = request.bind.access | (region->access & kAccessOnDemand);
    window.is_remote_valid = true;
    if (is_type2) window.qpn = request.qpn;
    window.base = request.bind.region.value >> 8;
    ++regions_[window.base].windows;
    return true;
}

void MemoryTable::erase_of(OwnerId owner) {
    for (std::uint32_t i = 0; i < regions_.size(); ++i) {
        if (!regions_[i].is_live || regions_[i].owner != owner) continue;
        regions_[i].windows = 0;
        free_slot(i);
    }
}

const MemoryTable::Region* MemoryTable::find(std::uint32_t key, PdId pd) const {
    const std::uint32_t index = key >> 8;
    if (index >= regions_.size()) return nullptr;
    const Region& region = regions_[index];
    const bool matches = region.is_live && region.tag == (key & 0xff) && region.pd == pd;
    return matches ? &region : nullptr;
}

//= IBA 10.6.3.5
Translation MemoryTable::translate(const Region& region, std::uint64_t iova, std::uint64_t length,
                                   std::uint32_t access) {
    if ((region.access & access) != access) return {};
    const std::uint64_t offset = iova - region.iova;
    if (iova < region.iova || length > region.length || offset > region.length - length) return {};
    return {true, (region.access & kAccessOnDemand) != 0, region.space, region.address + offset};
}

Translation MemoryTable::local(Lkey lkey, PdId pd, std::uint64_t iova, std::uint64_t length,
                               std::uint32_t access) const {
    const Region* const region = find(lkey.value, pd);
    if (region == nullptr || region->is_window()) return {};
    return translate(*region, iova, length, access);
}

Translation MemoryTable::remote(Rkey rkey, PdId pd, Qpn qpn, std::uint64_t iova,
                                std::uint64_t length, std::uint32_t access) const {
    const Region* const region = find(rkey.value, pd);
    if (region == nullptr || !region->is_remote_valid) return {};
    //= IBA 10.6.7.2.3: a window of type 2 works for the QP that bound it
    if (region->qpn.value != 0 && region->qpn != qpn) return {};
    return translate(*region, iova, length, access);
}

bool MemoryTable::invalidate(Rkey rkey, PdId pd, Qpn qpn) {
    const Region* const window = find(rkey.value, pd);
    if (window == nullptr || window->kind != Kind::kWindow2 || window->qpn != qpn) return false;
    unbind(regions_[rkey.value >> 8]);
    return true;
}

}  // namespace rdmalab::transport
