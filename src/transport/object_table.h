// Objects of one kind by index: PDs, CQs, SRQs, AHs. A slot is found by one array access, is freed
// and reused, and belongs to an owner; another owner's handle is answered like one that never was.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace rdmalab::transport {

// `Id` is a StrongId over std::uint32_t; `Object` has a member `owner`.
template <class Id, class Object>
class ObjectTable {
public:
    explicit ObjectTable(std::uint32_t max) : max_(max) {}

    // nullopt when the table is full.
    std::optional<Id> insert(Object object) {
        if (!free_.empty()) {
            const std::uint32_t index = free_.back();
            free_.pop_back();
            slots_[index].emplace(std::move(object));
            return Id{index};
        }
        if (slots_.size() >= max_) return std::nullopt;
        slots_.emplace_back(std::move(object));
        return Id{static_cast<std::uint32_t>(slots_.size() - 1)};
    }
    void erase(Id id) {
        slots_[id.value].reset();
        free_.push_back(id.value);
    }
    Object* find(Id id) {
        return id.value < slots_.size() && slots_[id.value] ? &*slots_[id.value] : nullptr;
    }
    const Object* find(Id id) const { return const_cast<ObjectTable*>(this)->find(id); }
    Object* find(OwnerId owner, Id id) {
        Object* const object = find(id);
        return object != nullptr && object->owner == owner ? object : nullptr;
    }
    const Object* find(OwnerId owner, Id id) const {
        return const_cast<ObjectTable*>(this)->find(owner, id);
    }
    std::uint32_t slot_count() const { return static_cast<std::uint32_t>(slots_.size()); }
    std::uint32_t size() const { return static_cast<std::uint32_t>(slots_.size() - free_.size()); }
    void erase_of(OwnerId owner) {
        for (std::uint32_t i = 0; i < slots_.size(); ++i)
            if (find(owner, Id{i}) != nullptr) erase(Id{i});
    }

private:
    std::vector<std::optional<Object>> slots_;
    std::vector<std::uint32_t> free_;
    std::uint32_t max_;
};

}  // namespace rdmalab::transport
