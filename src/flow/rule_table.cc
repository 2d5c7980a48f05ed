#include "flow/rule_table.h"

#include <algorithm>
#include <bit>

namespace rdmalab::flow {

RuleTable::Group::Group(const RuleWords& mask) {
    for (std::size_t i = 0; i < mask.size(); ++i) {
        if (mask[i] == 0) continue;
        places.push_back(static_cast<std::uint8_t>(i));
        masks.push_back(mask[i]);
    }
    table = KeyTable(places.size());
}

RuleTable::Order RuleTable::order_of(const RuleMatch& match, std::uint16_t priority) {
    Order order;
    order.priority = priority;
    order.layers = match.layers;
    order.mask = words_of(match.mask);
    std::uint32_t fixed = 0;
    for (const std::uint64_t word : order.mask) fixed += static_cast<unsigned>(std::popcount(word));
    order.free_bits = kRuleWords * 64 - fixed;
    order.free_layers = 32 - static_cast<unsigned>(std::popcount(match.layers));
    return order;
}

std::uint32_t RuleTable::cell_for(Group& group, const RuleWords& value) {
    std::array<std::uint64_t, kRuleWords> key;
    group.pick(value, key);
    if (const std::uint32_t slot = group.table.find(key.data()); slot != KeyTable::kNone)
        return slot;
    std::uint32_t slot = 0;
    if (group.free_cells.empty()) {
        slot = static_cast<std::uint32_t>(group.cells.size());
        group.cells.emplace_back();
    } else {
        slot = group.free_cells.back();
        group.free_cells.pop_back();
    }
    group.table.insert({key.data(), group.places.size()}, slot);
    return slot;
}

RuleId RuleTable::add(const RuleMatch& match, std::uint16_t priority, bool traps,
                      std::uint64_t target) {
    const Order order = order_of(match, priority);
    const auto group = groups_.try_emplace(order, order.mask).first;
    const std::uint32_t cell = cell_for(group->second, words_of(match.value));
    while (++last_id_ == 0 || rules_.contains(last_id_)) {
    }
    const RuleId id{last_id_};
    group->second.cells[cell].members.push_back({id, traps, target});
    ++group->second.used;
    rules_.emplace(id.value, Place{group, cell});
    return id;
}

bool RuleTable::remove(RuleId rule) {
    const auto found = rules_.find(rule.value);
    if (found == rules_.end()) return false;
    const auto [at, cell] = found->second;
    Group& group = at->second;
    std::vector<Member>& members = group.cells[cell].members;
    std::erase_if(members, [&](const Member& member) { return member.rule == rule; });
    if (members.empty()) {
        group.table.erase(cell);
        group.free_cells.push_back(cell);
    }
    rules_.erase(found);
    if (--group.used == 0) groups_.erase(at);
    return true;
}

}  // namespace rdmalab::flow
