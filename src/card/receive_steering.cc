#include "card/receive_steering.h"

#include <algorithm>
#include <cerrno>

namespace rdmalab::card {
namespace {

// Headers that stand in what a frame of the card has for payload.
constexpr std::uint32_t kInsideLayers = ~0u << flow::kInnerShift | flow::kRuleEsp;

template <class Map>
std::uint32_t next_handle(const Map& map, std::uint32_t& last) {
    while (++last == 0 || map.contains(last)) {
    }
    return last;
}

}  // namespace

std::optional<ReceiveSteering::Stage> ReceiveSteering::stage_of(
    const abi::CreateFlowRequest& request) {
    const bool is_egress = (request.flags & abi::kFlowEgress) != 0;
    switch (request.type) {
        case abi::FlowRuleType::kNormal:
            return is_egress ? Stage::kEgress : Stage::kNormal;
        case abi::FlowRuleType::kAllDefault:
            if (!is_egress) return Stage::kDefault;
            break;
        case abi::FlowRuleType::kMulticastDefault:
            if (!is_egress) return Stage::kMulticastDefault;
            break;
        case abi::FlowRuleType::kSniffer:
            if (!is_egress) return Stage::kSniffer;
            break;
    }
    return std::nullopt;
}

int ReceiveSteering::check(OwnerId owner, const abi::CreateFlowRequest& request) const {
    constexpr std::uint32_t kFlags =
        abi::kFlowAllowLoopBack | abi::kFlowDontTrap | abi::kFlowEgress;
    constexpr std::uint32_t kActions = abi::kFlowTag | abi::kFlowDrop;
    if ((request.flags & ~kFlags) != 0 || (request.actions & ~kActions) != 0) return EINVAL;
    if (request.priority > 0xffff || request.counter_count > abi::kFlowCountersMax) return EINVAL;
    const auto stage = stage_of(request);
    if (!stage) return EINVAL;
    const bool is_normal = request.type == abi::FlowRuleType::kNormal;
    if (!is_normal && !(request.match == flow::RuleMatch{})) return EINVAL;
    const bool drops = (request.actions & abi::kFlowDrop) != 0;
    if (*stage == Stage::kEgress && !drops && request.counter_count == 0) return EINVAL;
    if (*stage == Stage::kSniffer && drops) return EINVAL;
    for (std::uint32_t i = 0; i < request.counter_count; ++i) {
        const auto found = counters_.find(request.counters[i]);
        if (found == counters_.end() || !(found->second.owner == owner)) return EINVAL;
    }
    return rules_.size() < abi::kFlowRuleMax ? 0 : ENOMEM;
}

Result<std::uint32_t> ReceiveSteering::create_rule(OwnerId owner,
                                                   const abi::CreateFlowRequest& request) {
    if (const int error = check(owner, request)) return Error{error, {}};
    const Stage stage = *stage_of(request);
    const std::uint32_t handle = next_handle(rules_, last_handle_);
    Rule rule;
    rule.owner = owner;
    rule.stage = stage;
    rule.to.qpn = Qpn{request.qpn};
    if ((request.actions & abi::kFlowTag) != 0) rule.to.tag = request.tag;
    rule.drops = (request.actions & abi::kFlowDrop) != 0;
    rule.is_egress = stage == Stage::kEgress;
    // What is sent meets rules for it whoever sends.
    rule.sees_own = rule.is_egress || stage == Stage::kSniffer ||
                    (request.flags & abi::kFlowAllowLoopBack) != 0;
    rule.looks_inside = (request.match.layers & kInsideLayers) != 0;
    rule.counters.assign(request.counters.begin(),
                         request.counters.begin() + request.counter_count);
    // An egress rule that only counts lets the frame go.
    const bool traps = stage == Stage::kEgress
                           ? rule.drops
                           : stage != Stage::kSniffer && (request.flags & abi::kFlowDontTrap) == 0;
    rule.id = table(stage).add(request.match, static_cast<std::uint16_t>(request.priority), traps,
                               handle);
    for (const std::uint32_t counters : rule.counters) ++counters_.at(counters).uses;
    inner_rules_ += rule.looks_inside;
    rules_.emplace(handle, std::move(rule));
    return handle;
}

void ReceiveSteering::erase_rule(std::unordered_map<std::uint32_t, Rule>::iterator at) {
    const Rule& rule = at->second;
    table(rule.stage).remove(rule.id);
    for (const std::uint32_t counters : rule.counters) --counters_.at(counters).uses;
    inner_rules_ -= rule.looks_inside;
    rules_.erase(at);
}

int ReceiveSteering::destroy_rule(OwnerId owner, std::uint32_t handle) {
    const auto found = rules_.find(handle);
    if (found == rules_.end() || !(found->second.owner == owner)) return EINVAL;
    erase_rule(found);
    return 0;
}

Result<std::uint32_t> ReceiveSteering::create_counters(OwnerId owner) {
    if (counters_.size() >= abi::kCountersMax) return Error{ENOMEM, {}};
    const std::uint32_t handle = next_handle(counters_, last_handle_);
    counters_.emplace(handle, Counters{.owner = owner});
    return handle;
}

int ReceiveSteering::destroy_counters(OwnerId owner, std::uint32_t handle) {
    const auto found = counters_.find(handle);
    if (found == counters_.end() || !(found->second.owner == owner)) return EINVAL;
    if (found->second.uses != 0) return EBUSY;
    counters_.erase(found);
    return 0;
}

Result<abi::ReadCountersReply> ReceiveSteering::read_counters(OwnerId owner,
                                                              std::uint32_t handle) const {
    const auto found = counters_.find(handle);
    if (found == counters_.end() || !(found->second.owner == owner)) return Error{EINVAL, {}};
    return abi::ReadCountersReply{found->second.packets, found->second.bytes};
}

void ReceiveSteering::remove_rules_of(Qpn qpn) {
    for (auto at = rules_.begin(); at != rules_.end();) {
        const auto next = std::next(at);
        if (at->second.to.qpn == qpn) erase_rule(at);
        at = next;
    }
}

void ReceiveSteering::release(OwnerId owner) {
    for (auto at = rules_.begin(); at != rules_.end();) {
        const auto next = std::next(at);
        if (at->second.owner == owner) erase_rule(at);
        at = next;
    }
    std::erase_if(counters_, [&](const auto& entry) { return entry.second.owner == owner; });
}

void ReceiveSteering::count(const Rule& rule, std::size_t length) {
    for (const std::uint32_t handle : rule.counters) {
        Counters& counters = counters_.at(handle);
        ++counters.packets;
        counters.bytes += length;
    }
}

}  // namespace rdmalab::card
