// Reads the values of an administration request (admin.h), collecting all that is wrong.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "card/host/quantity.h"

namespace rdmalab::card::host {

// How a value of a request is shown in "found". Not a dump: hostile nesting would be deep
// recursion.
inline std::string describe(const nlohmann::json& value) {
    if (value.is_object()) return "an object";
    if (value.is_array()) return "an array";
    constexpr std::size_t kShownMax = 80;
    std::string shown = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (shown.size() > kShownMax) shown = shown.substr(0, kShownMax) + "...";
    return shown;
}

class RequestReader {
    using Json = nlohmann::json;

public:
    // Keys of `ignored` are for others to read.
    RequestReader(const Json& request, std::initializer_list<std::string_view> ignored)
        : request_(request), ignored_(ignored) {}

    // Text is parsed; a number is taken as it is when it lies in [0, max].
    void rate(std::optional<Rate>& out) { named_rate("rate", out); }
    void named_rate(const char* name, std::optional<Rate>& out) {
        read(name, expected_rate(), parse_rate, out);
        std::optional<std::uint64_t> number;
        integer(fmt::format("{}_bps", name), "bits per second, from 0 to 10^15",
                1'000'000'000'000'000, number);
        if (number) out = Rate{*number};
    }
    void duration(const char* name, std::optional<Duration>& out) {
        read(name, expected_duration(), parse_duration, out);
        std::optional<std::uint64_t> number;
        integer(fmt::format("{}_ns", name), "nanoseconds, from 0 to one hour", 3'600'000'000'000,
                number);
        if (number) out = Duration{static_cast<std::int64_t>(*number)};
    }
    void probability(const char* name, std::optional<double>& out) {
        const Json* value = find(name);
        if (value && value->is_number() && value->get<double>() >= 0 && value->get<double>() <= 1) {
            out = value->get<double>();
            return;
        }
        read(name, expected_probability(), parse_probability, out);
    }
    void boolean(const char* name, std::optional<bool>& out) {
        const Json* value = find(name);
        if (!value) return;
        if (value->is_boolean()) {
            out = value->get<bool>();
        } else {
            error(name, "true or false", *value);
        }
    }
    void direction(std::optional<bool>& a_to_b) {
        const Json* value = find("direction");
        if (!value || *value == "both") return;
        if (*value == "a_to_b" || *value == "b_to_a") {
            a_to_b = *value == "a_to_b";
        } else {
            error("direction", "\"both\", \"a_to_b\" or \"b_to_a\"", *value);
        }
    }
    void unknown_keys() {
        for (const auto& [key, value] : request_.items()) {
            if (std::find(ignored_.begin(), ignored_.end(), key) != ignored_.end()) continue;
            if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
                errors_.push_back(fmt::format("\"{}\": expected one of {}, found an unknown key",
                                              key, fmt::join(known_, ", ")));
            }
        }
    }
    // A text of a list.
    void choice(const char* name, std::initializer_list<std::string_view> choices,
                std::optional<std::string>& out) {
        const Json* value = find(name);
        if (!value) return;
        if (value->is_string() &&
            std::find(choices.begin(), choices.end(), value->get<std::string>()) != choices.end()) {
            out = value->get<std::string>();
        } else {
            error(name, fmt::format("one of {}", fmt::join(choices, ", ")), *value);
        }
    }
    // A number, or the text of one.
    void number(const std::string& name, std::uint64_t min, std::uint64_t max,
                std::optional<std::uint64_t>& out) {
        const Json* value = find(name);
        if (!value) return;
        std::uint64_t found = 0;
        bool is_number = value->is_number_unsigned();
        if (is_number) found = value->get<std::uint64_t>();
        if (value->is_string()) {
            const std::string text = value->get<std::string>();
            const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), found);
            is_number = code == std::errc() && end == text.data() + text.size();
        }
        if (is_number && found >= min && found <= max)
            out = found;
        else
            error(name, fmt::format("a number from {} to {}", min, max), *value);
    }
    // Nothing when all is well; else all that is wrong, a line each.
    Status status() const {
        if (errors_.empty()) return {};
        return Error{EINVAL, fmt::format("{}", fmt::join(errors_, "\n"))};
    }

private:
    const Json* find(const std::string& name) {
        if (std::find(known_.begin(), known_.end(), name) == known_.end()) known_.push_back(name);
        const auto found = request_.find(name);
        return found == request_.end() ? nullptr : &*found;
    }
    void error(const std::string& name, const std::string& expected, const Json& found) {
        errors_.push_back(
            fmt::format("\"{}\": expected {}, found {}", name, expected, describe(found)));
    }
    template <class T, class Parse>
    void read(const char* name, const std::string& expected, Parse parse, std::optional<T>& out) {
        const Json* value = find(name);
        if (!value) return;
        if (value->is_string()) {
            if (const auto parsed = parse(value->get<std::string>()); parsed.ok()) {
                out = *parsed;
                return;
            }
        }
        error(name, expected, *value);
    }
    void integer(const std::string& name, const std::string& expected, std::uint64_t max,
                 std::optional<std::uint64_t>& out) {
        const Json* value = find(name);
        if (!value) return;
        if (value->is_number_unsigned() && value->get<std::uint64_t>() <= max) {
            out = value->get<std::uint64_t>();
        } else {
            error(name, expected, *value);
        }
    }

    const Json& request_;
    std::vector<std::string_view> ignored_;
    std::vector<std::string> known_, errors_;
};

}  // namespace rdmalab::card::host
