// From the specifications of ibv_create_flow(3) to one flat match and the actions behind it.
//
// A specification names a header that a frame must have, even under an empty mask. Each header may
// be named once, outside and inside of a tunnel; headers that cannot follow each other are an
// error, and so is a value where a frame with these headers can have no such value (an IPv4
// specification beside an EtherType that is not IPv4).
#pragma once

#include "card/rule_abi.h"
#include "verbs/api.h"

namespace rdmalab::verbs {

// Takes `attributes` with the specifications behind them. 0 or an errno value (EINVAL; EOPNOTSUPP
// for an action that does not exist here). `counters` gets the objects that count.
struct FlowPlan {
    abi::CreateFlowRequest request{};
    std::array<ibv_counters*, abi::kFlowCountersMax> counters{};
};
int plan_flow(const ibv_flow_attr& attributes, FlowPlan& plan);

}  // namespace rdmalab::verbs
