// Looking into the card's replies: a member that is absent is an empty object or 0, so that a
// launcher can show what a card of another version sends.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace rdmalab::launcher {

using Json = nlohmann::ordered_json;

// The reference stays valid as long as `object`.
inline const Json& member(const Json& object, const std::string& key) {
    static const Json kEmpty = Json::object();
    auto found = object.find(key);
    return found == object.end() ? kEmpty : *found;
}

inline std::uint64_t number(const Json& object, const std::string& key) {
    auto found = object.find(key);
    return found != object.end() && found->is_number() ? found->get<std::uint64_t>() : 0;
}

}  // namespace rdmalab::launcher
