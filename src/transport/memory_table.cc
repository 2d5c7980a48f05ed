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

Result<MrKeys> MemoryTable::insert(const MrInit& init) {
    if (const int error = check_init(init)) return Error{error, {}};
    std::uint32_t index;
    if (!free_.empty()) {
        index = free_.back();
        free_.pop_back();
    } else {
        if (regions_.size() > limits::kMrMax) return Error{ENOMEM, {}};
        index = static_cast<std::uint32_t>(regions_.size());
        regions_.emplace_back().tag = static_cast<std::uint8_t>(prng_.next());
    }
    Region& region = regions_[index];
    const auto tag = static_cast<std::uint8_t>(region.tag + 1);
    const bool zero_based = (init.access & kAccessZeroBased) != 0;
    region = {.owner = init.owner,
              .space = init.space,
              .pd = init.pd,
              .address = init.address,
              .length = init.length,
              .iova = zero_based ? 0 : init.iova,
              .access = init.access,
              .tag = tag,
              .is_live = true,
              .is_remote_valid = true};
    ++live_;
    const std::uint32_t key = index << 8 | tag;
    return MrKeys{Lkey{key}, Rkey{key}};
}

bool MemoryTable::erase(OwnerId owner, Lkey lkey, PdId& pd) {
    const std::uint32_t index = lkey.value >> 8;
    if (index >= regions_.size()) return false;
    Region& region = regions_[index];
    if (!region.is_live || region.owner != owner || region.tag != (lkey.value & 0xff)) return false;
    pd = region.pd;
    region.is_live = false;
    free_.push_back(index);
    --live_;
    return true;
}

void MemoryTable::erase_of(OwnerId owner) {
    PdId pd;
    for (std::uint32_t i = 0; i < regions_.size(); ++i)
        if (regions_[i].is_live) erase(owner, Lkey{i << 8 | regions_[i].tag}, pd);
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
    return {true, region.space, region.address + offset};
}

Translation MemoryTable::local(Lkey lkey, PdId pd, std::uint64_t iova, std::uint64_t length,
                               std::uint32_t access) const {
    const Region* const region = find(lkey.value, pd);
    return region == nullptr ? Translation{} : translate(*region, iova, length, access);
}

Translation MemoryTable::remote(Rkey rkey, PdId pd, std::uint64_t iova, std::uint64_t length,
                                std::uint32_t access) const {
    const Region* const region = find(rkey.value, pd);
    if (region == nullptr || !region->is_remote_valid) return {};
    return translate(*region, iova, length, access);
}

bool MemoryTable::invalidate(Rkey rkey, PdId pd) {
    const Region* const region = find(rkey.value, pd);
    if (region == nullptr || !region->is_remote_valid) return false;
    regions_[rkey.value >> 8].is_remote_valid = false;
    return true;
}

}  // namespace rdmalab::transport
