// JSON as this room uses it: objects keep the order in which they were filled, so that reports read
// from the general to the particular.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace rdmalab::perftest {

using Json = nlohmann::ordered_json;

// A measured number: JSON knows neither NaN nor infinity, they become null.
inline Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(); }

// Text for a file or a peer; bytes that are not UTF-8 (host names, device names) are replaced.
inline std::string to_text(const Json& json, int indent = -1) {
    return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace rdmalab::perftest
