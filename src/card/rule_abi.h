// Requests for flow rules (ibv_create_flow(3)) and flow counters, part of the contract of
// ring_abi.h. The client's library turns a list of specifications into one flat match
// (flow/rule_fields.h): the headers that must be there, and value and mask of their fields.
#pragma once

#include <array>
#include <cstdint>

#include "flow/rule_fields.h"

namespace rdmalab::abi {

enum class FlowRuleType : std::uint32_t {  // values of enum ibv_flow_attr_type
    kNormal = 0,
    kAllDefault = 1,
    kMulticastDefault = 2,
    kSniffer = 3,
};
enum FlowRuleFlags : std::uint32_t {  // values of enum ibv_flow_flags
    kFlowAllowLoopBack = 1 << 0,      // also what the rule's own QP sends
    kFlowDontTrap = 1 << 1,
    kFlowEgress = 1 << 2,
};
enum FlowRuleActions : std::uint32_t {
    kFlowTag = 1,   // `tag` comes with each completion
    kFlowDrop = 2,  // the frame goes nowhere
};

inline constexpr std::uint32_t kFlowRuleMax = 262'144;     // of one function
inline constexpr std::uint32_t kCountersMax = 65'536;      // of one function
inline constexpr std::uint32_t kFlowCountersMax = 4;       // of one rule
inline constexpr std::uint32_t kFlowCounterValuesMax = 8;  // of one counters object
struct CreateFlowRequest {
    std::uint32_t qpn;
    FlowRuleType type;
    std::uint32_t priority;
    std::uint32_t flags;    // FlowRuleFlags
    std::uint32_t actions;  // FlowRuleActions
    std::uint32_t tag;
    std::uint32_t counter_count;
    std::array<std::uint32_t, kFlowCountersMax> counters;  // handles
    flow::RuleMatch match;                                 // of kNormal
};
static_assert(sizeof(CreateFlowRequest) == 368);
// Replies with HandleReply; kDestroyFlow takes a HandleRequest.

// kCreateCounters: no body, replies with HandleReply. kDestroyCounters: HandleRequest, EBUSY while
// a rule uses them. kReadCounters: HandleRequest.
struct ReadCountersReply {
    std::uint64_t packets, bytes;
};

}  // namespace rdmalab::abi
