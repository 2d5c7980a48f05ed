#include "card/host/quantity.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

namespace rdmalab::card::host {
namespace {

struct Unit {
    std::string_view name;
    double factor;
};

constexpr Unit kRateUnits[] = {
    {"bit", 1}, {"Kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"Tbit", 1e12}};
constexpr Unit kDurationUnits[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
constexpr Unit kProbabilityUnits[] = {{"", 1}, {"%", 0.01}};

constexpr double kRateMax = 1e15;        // bits per second; far above any adapter
constexpr double kDurationMax = 3.6e12;  // one hour, in ns

// A plain decimal number (no sign, no exponent, no "inf"), then exactly one of the units.
std::optional<double> parse(std::string_view text, std::span<const Unit> units) {
    const std::size_t digits = text.find_first_not_of("0123456789.");
    const std::string_view number = text.substr(0, digits);
    const std::string_view suffix = digits == text.npos ? "" : text.substr(digits);
    double value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value,
                                              std::chars_format::fixed);
    if (error != std::errc{} || end != number.data() + number.size()) return std::nullopt;
    if (suffix.empty() && value == 0) return 0.0;
    for (const Unit& unit : units) {
        if (suffix == unit.name) return value * unit.factor;
    }
    return std::nullopt;
}

Error unexpected(const std::string& expected, std::string_view found) {
    return {EINVAL, fmt::format("expected {}, found \"{}\"", expected, found)};
}

}  // namespace

std::string expected_rate() { return "a rate such as \"25Gbit\" or \"100Mbit\" (0: not limited)"; }
std::string expected_duration() {
    return "a duration such as \"10us\" or \"1.5ms\", up to one hour";
}
std::string expected_probability() {
    return "a probability from 0 to 1 such as \"1%\" or \"0.01\"";
}

Result<Rate> parse_rate(std::string_view text) {
    const auto value = parse(text, kRateUnits);
    if (!value || *value > kRateMax || (*value > 0 && *value < 1)) {
        return unexpected(expected_rate(), text);
    }
    return Rate{static_cast<std::uint64_t>(std::llround(*value))};
}

Result<Duration> parse_duration(std::string_view text) {
    const auto value = parse(text, kDurationUnits);
    if (!value || *value > kDurationMax) return unexpected(expected_duration(), text);
    return Duration{std::llround(*value)};
}

Result<double> parse_probability(std::string_view text) {
    const auto value = parse(text, kProbabilityUnits);
    if (!value || *value > 1) return unexpected(expected_probability(), text);
    return *value;
}

}  // namespace rdmalab::card::host
