// Flows by id. An id names the unit that sends (a function of the card) in its high 8 bits and its
// number there in the low 24, of which the low 16 are dense: they are a place in a table, the rest
// tells apart those that have had the place one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace rdmalab::pcc {

using FlowId = std::uint32_t;

constexpr FlowId make_flow_id(std::uint32_t unit, std::uint32_t number) {
    return unit << 24 | (number & 0xff'ffff);
}
constexpr std::uint32_t unit_of(FlowId id) { return id >> 24; }
constexpr std::uint32_t number_of(FlowId id) { return id & 0xff'ffff; }

// `Flow` has a member `id`.
template <class Flow>
class FlowTable {
public:
    Flow* find(FlowId id) {
        if (unit_of(id) >= units_.size()) return nullptr;
        const auto& unit = units_[unit_of(id)];
        const std::uint32_t place = id & 0xffff;
        Flow* const flow = place < unit.size() ? unit[place].get() : nullptr;
        return flow != nullptr && flow->id == id ? flow : nullptr;
    }
    // The flow, or a new one in its place.
    Flow& find_or_add(FlowId id) {
        if (Flow* const found = find(id)) return *found;
        if (unit_of(id) >= units_.size()) units_.resize(unit_of(id) + 1);
        auto& unit = units_[unit_of(id)];
        const std::uint32_t place = id & 0xffff;
        if (place >= unit.size()) unit.resize(place + 1);
        if (unit[place] == nullptr) ++size_;
        unit[place] = std::make_unique<Flow>();
        unit[place]->id = id;
        return *unit[place];
    }
    void erase(FlowId id) {
        if (find(id) == nullptr) return;
        units_[unit_of(id)][id & 0xffff].reset();
        --size_;
    }
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (const auto& unit : units_)
            for (const auto& flow : unit)
                if (flow != nullptr) visit(*flow);
    }
    std::uint32_t size() const { return size_; }

private:
    std::vector<std::vector<std::unique_ptr<Flow>>> units_;
    std::uint32_t size_ = 0;
};

}  // namespace rdmalab::pcc
