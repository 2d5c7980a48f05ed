// The rules of one function's receive side, as ibv_create_flow(3) describes them, and which of them
// a frame meets.
//
// Order. A lower priority number comes first. Among rules of one priority the one that fixes more
// bits comes first, then the one that demands more headers; so which of two overlapping rules wins
// never depends on the order of creation. Rules that are the same in all of this (priority, mask,
// headers, value) are one rule with several targets: each gets the frame.
//
// The first rule that matches and traps ends the search; rules that do not trap (DONT_TRAP) let it
// go on, and their targets get copies.
//
// Cost. Rules that share priority, mask and headers share one hash table; a look-up costs one probe
// for each such group, however many rules there are in it.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "flow/key_table.h"
#include "flow/rule_fields.h"
#include "flow/rule_parser.h"

namespace rdmalab::flow {

struct RuleId {
    std::uint32_t value = 0;
    auto operator<=>(const RuleId&) const = default;
};

class RuleTable {
public:
    // `target` is the caller's own name for what happens to a frame that meets the rule.
    RuleId add(const RuleMatch& match, std::uint16_t priority, bool traps, std::uint64_t target);
    bool remove(RuleId rule);
    std::size_t size() const { return rules_.size(); }

    // Calls `take(target)` for each rule that the frame meets, in order, up to and including those
    // that trap it. A `take` that answers false says that the rule does not apply. True when one
    // trapped the frame.
    template <class Take>
    bool visit(const FlatFrame& frame, Take&& take) const {
        const RuleWords words = words_of(frame.fields);
        for (const auto& [order, group] : groups_) {
            if ((frame.layers & order.layers) != order.layers) continue;
            const Cell* const cell = group.find(words);
            if (cell == nullptr) continue;
            bool is_trapped = false;
            for (const Member& member : cell->members) {
                if constexpr (std::is_void_v<decltype(take(member.target))>) {
                    take(member.target);
                } else if (!take(member.target)) {
                    continue;
                }
                is_trapped |= member.traps;
            }
            if (is_trapped) return true;
        }
        return false;
    }

private:
    struct Order {
        std::uint16_t priority = 0;
        // More first: kept as the bits and headers that are *not* asked for.
        std::uint32_t free_bits = 0, free_layers = 0;
        std::uint32_t layers = 0;
        RuleWords mask{};
        auto operator<=>(const Order&) const = default;
    };
    struct Member {
        RuleId rule;
        bool traps = true;
        std::uint64_t target = 0;
    };
    struct Cell {  // all rules with one value
        std::vector<Member> members;
    };
    struct Group {
        explicit Group(const RuleWords& mask);
        const Cell* find(const RuleWords& frame) const {
            std::array<std::uint64_t, kRuleWords> key;
            pick(frame, key);
            const std::uint32_t slot = table.find(key.data());
            return slot == KeyTable::kNone ? nullptr : &cells[slot];
        }
        void pick(const RuleWords& from, std::array<std::uint64_t, kRuleWords>& key) const {
            for (std::size_t i = 0; i < places.size(); ++i) key[i] = from[places[i]] & masks[i];
        }

        std::vector<std::uint8_t> places;  // words with a mask
        std::vector<std::uint64_t> masks;
        KeyTable table;
        std::vector<Cell> cells;
        std::vector<std::uint32_t> free_cells;
        std::size_t used = 0;
    };
    using Groups = std::map<Order, Group>;
    struct Place {
        Groups::iterator group;
        std::uint32_t cell = 0;
    };

    static Order order_of(const RuleMatch& match, std::uint16_t priority);
    static std::uint32_t cell_for(Group& group, const RuleWords& value);

    Groups groups_;
    std::unordered_map<std::uint32_t, Place> rules_;
    std::uint32_t last_id_ = 0;
};

}  // namespace rdmalab::flow
