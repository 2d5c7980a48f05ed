// The settings of congestion control as JSON (admin.h, "cc" and "cc_set").
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "pcc/settings.h"

namespace rdmalab::card::host {

// `settings` with what the request changes. The error holds all that is wrong, a line each.
Result<pcc::Settings> apply_congestion_request(const nlohmann::json& request,
                                               pcc::Settings settings);
nlohmann::json to_json(const pcc::Settings& settings);

}  // namespace rdmalab::card::host
