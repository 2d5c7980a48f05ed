// The pipes of a card for the administration protocol (admin.h): what there is, and traces.
#pragma once

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "card/card.h"

namespace rdmalab::card::host {

// {"domains":[...]}: every switch domain, its owner and its pipes with entries and counters.
nlohmann::json describe_flow(const Card& card);

// Starts to follow packets: {"pf","match":{FIELD:"VALUE[/MASK]"},"l3_type","l4_type","count"}.
Result<nlohmann::json> start_flow_trace(Card& card, const nlohmann::json& request);
// {"pf"} -> {"remaining","packets":[...]}.
Result<nlohmann::json> read_flow_trace(const Card& card, const nlohmann::json& request);

}  // namespace rdmalab::card::host
