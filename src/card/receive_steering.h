// The rules of one function (ibv_create_flow(3)), and what they say about a frame.
//
// Stages, in the order in which a frame that arrives meets them:
//   sniffers          copies, of frames that are sent too
//   normal rules      by priority; may take the frame
//   (the RoCE transport and the network interface: not here)
//   default rules     what nobody took
// Rules for frames that are sent (EGRESS) only drop and count.
//
// What a QP sends and the card brings back to the same function does not meet the QP's own rules
// but for those that ask for it (ALLOW_LOOP_BACK).
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

// A frame as the rules see it.
struct SteeredFrame {
    flow::FlatFrame flat;
    std::size_t length = 0;
    Qpn sender{};  // the QP of this function that has sent it; 0: none has
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
    // Does any rule look behind IP or into tunnels? (The headers that a frame keeps do not
    // suffice.)
    bool looks_inside() const { return inner_rules_ != 0; }

    // `take(SteeredTo)` for each QP that gets the frame. True: a rule took it from those behind.
    template <class Take>
    bool arrive(const SteeredFrame& frame, Take&& take) {
        visit(Stage::kSniffer, frame, take);
        return visit(Stage::kNormal, frame, take);
    }
    // A frame that this function itself has sent elsewhere.
    template <class Take>
    void loop_back(const SteeredFrame& frame, Take&& take) {
        visit(Stage::kNormal, frame, take);
    }
    // A frame that nobody took.
    template <class Take>
    bool fall_through(const SteeredFrame& frame, bool is_multicast, Take&& take) {
        if (is_multicast && visit(Stage::kMulticastDefault, frame, take)) return true;
        return visit(Stage::kDefault, frame, take);
    }
    // True: a rule drops it.
    template <class Take>
    bool depart(const SteeredFrame& frame, Take&& take) {
        visit(Stage::kSniffer, frame, take);
        return visit(Stage::kEgress, frame, take);
    }
    bool sees_loop_back() const { return has(Stage::kNormal); }

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
        bool sees_own = false;
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
    bool visit(Stage stage, const SteeredFrame& frame, Take&& take) {
        if (!has(stage)) return false;
        return table(stage).visit(frame.flat, [&](std::uint64_t handle) {
            const Rule& rule = rules_.find(static_cast<std::uint32_t>(handle))->second;
            if (!rule.sees_own && rule.to.qpn == frame.sender) return false;
            if (!rule.counters.empty()) count(rule, frame.length);
            if (!rule.drops && !rule.is_egress) take(rule.to);
            return true;
        });
    }

    std::array<flow::RuleTable, kStageCount> tables_;
    std::unordered_map<std::uint32_t, Rule> rules_;
    std::unordered_map<std::uint32_t, Counters> counters_;
    std::uint32_t last_handle_ = 0;
    std::size_t inner_rules_ = 0;
};

}  // namespace rdmalab::card
