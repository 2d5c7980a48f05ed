// The rules of one function (ibv_create_flow(3)), and what they say about a frame.
//
// Stages, in the order in which a frame that arrives meets them:
//   sniffers          copies, of frames that are sent too
//   normal rules      by priority; may take the frame
//   (the RoCE transport and the network interface: not here)
//   default rules     what nobody took
// Rules for frames that are sent (EGRESS) only drop and count.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "card/rule_abi.h"
#include "flow/rule_table.h"

namespace rdmalab::card {

// Where a rule sends a frame.
struct SteeredTo {
    Qpn qpn;
    std::optional<std::uint32_t> tag;
};

class ReceiveSteering {
public:
    // The QP exists, is the owner's and may have rules. The handle, or EINVAL or ENOMEM.
    Result<std::uint32_t> create_rule(OwnerId owner, const abi::CreateFlowRequest& request);
    int destroy_rule(OwnerId owner, std::uint32_t rule);
    Result<std::uint32_t> create_counters(OwnerId owner);
    int destroy_counters(OwnerId owner, std::uint32_t counters);
    Result<abi::ReadCountersReply> read_counters(OwnerId owner, std::uint32_t counters) const;
    void remove_rules_of(Qpn qpn);
    void release(OwnerId owner);
    std::size_t rule_count() const { return rules_.size(); }

    bool sees_arrivals() const { return has(Stage::kNormal) || has(Stage::kSniffer); }
    bool sees_departures() const { return has(Stage::kEgress) || has(Stage::kSniffer); }
    bool has_defaults() const { return has(Stage::kMulticastDefault) || has(Stage::kDefault); }
    // Does any rule look into tunnels? (The first bytes of such frames do not suffice.)
    bool looks_inside() const { return inner_rules_ != 0; }

    // `take(SteeredTo)` for each QP that gets the frame. True: a rule took it from those behind.
    template <class Take>
    bool arrive(const flow::FlatFrame& frame, std::size_t length, Take&& take) {
        visit(Stage::kSniffer, frame, length, take);
        return visit(Stage::kNormal, frame, length, take);
    }
    // A frame that nobody took.
    template <class Take>
    bool fall_through(const flow::FlatFrame& frame, bool is_multicast, std::size_t length,
                      Take&& take) {
        if (is_multicast && visit(Stage::kMulticastDefault, frame, length, take)) return true;
        return visit(Stage::kDefault, frame, length, take);
    }
    // True: a rule drops it.
    template <class Take>
    bool depart(const flow::FlatFrame& frame, std::size_t length, Take&& take) {
        visit(Stage::kSniffer, frame, length, take);
        return visit(Stage::kEgress, frame, length, take);
    }

private:
    enum class Stage : std::uint8_t { kSniffer, kNormal, kMulticastDefault, kDefault, kEgress };
    static constexpr std::size_t kStageCount = 5;

    struct Rule {
        OwnerId owner;
        Stage stage{};
        flow::RuleId id;
        SteeredTo to;
        bool drops = false;
        bool is_egress = false;
        bool looks_inside = false;
        std::vector<std::uint32_t> counters;
    };
    struct Counters {
        OwnerId owner;
        std::uint32_t uses = 0;
        std::uint64_t packets = 0, bytes = 0;
    };

    const flow::RuleTable& table(Stage stage) const {
        return tables_[static_cast<std::size_t>(stage)];
    }
    flow::RuleTable& table(Stage stage) { return tables_[static_cast<std::size_t>(stage)]; }
    bool has(Stage stage) const { return table(stage).size() != 0; }
    static std::optional<Stage> stage_of(const abi::CreateFlowRequest& request);
    int check(OwnerId owner, const abi::CreateFlowRequest& request) const;
    void erase_rule(std::unordered_map<std::uint32_t, Rule>::iterator at);
    void count(const Rule& rule, std::size_t length);

    template <class Take>
    bool visit(Stage stage, const flow::FlatFrame& frame, std::size_t length, Take&& take) {
        if (!has(stage)) return false;
        return table(stage).visit(frame, [&](std::uint64_t handle) {
            const Rule& rule = rules_.find(static_cast<std::uint32_t>(handle))->second;
            if (!rule.counters.empty()) count(rule, length);
            if (!rule.drops && !rule.is_egress) take(rule.to);
        });
    }

    std::array<flow::RuleTable, kStageCount> tables_;
    std::unordered_map<std::uint32_t, Rule> rules_;
    std::unordered_map<std::uint32_t, Counters> counters_;
    std::uint32_t last_handle_ = 0;
    std::size_t inner_rules_ = 0;
};

}  // namespace rdmalab::card
