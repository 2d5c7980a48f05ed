// The impairments of a "link" request (admin.h): which are given, and their values.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "base/result.h"
#include "card/config.h"

namespace rdmalab::card::host {

struct LinkRequest {
    std::optional<bool> a_to_b;  // absent: both directions
    std::optional<Rate> rate;
    std::optional<Duration> delay, jitter;
    std::optional<double> loss, reorder, duplicate, corrupt, ce;
    std::optional<bool> verify_icrc;
};

// The error holds all that is wrong, a line each.
Result<LinkRequest> parse_link_request(const nlohmann::json& request);

Impairments apply(const LinkRequest& request, Impairments impairments);

}  // namespace rdmalab::card::host
