#include "rdmalab/quantity.h"

#include <fmt/format.h>

#include <charconv>
#include <span>

#include "rdmalab/failure.h"

namespace rdmalab::launcher {

namespace {

struct Unit {
    const char* name;
    double factor;
};
constexpr Unit kRateUnits[] = {{"b/s", 1}, {"kb/s", 1e3}, {"Mb/s", 1e6}, {"Gb/s", 1e9}};
constexpr Unit kTimeUnits[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};

constexpr double kSecondsMin = 0.001;
constexpr double kSecondsMax = 1e6;

[[noreturn]] void refuse(const std::string& option, const std::string& expected,
                         const std::string& found) {
    throw Failure(kExitBadInput,
                  fmt::format("{}: expected {}, found '{}'", option, expected, found));
}

std::string print_scaled(double value, std::span<const Unit> units) {
    const Unit* chosen = &units.front();
    for (const Unit& unit : units) {
        if (value >= unit.factor) chosen = &unit;
    }
    return fmt::format("{:.6g} {}", value / chosen->factor, chosen->name);
}

}  // namespace

bool parse_bool(const std::string& option, const std::string& text) {
    for (const char* word : {"true", "yes", "on", "1"}) {
        if (text == word) return true;
    }
    for (const char* word : {"false", "no", "off", "0"}) {
        if (text == word) return false;
    }
    refuse(option, "true or false", text);
}

double parse_seconds(const std::string& option, const std::string& text) {
    const char* text_end = text.data() + text.size();
    double number = 0;
    auto [end, error] = std::from_chars(text.data(), text_end, number, std::chars_format::fixed);
    std::string unit(end, text_end);
    double seconds = unit == "ms" ? number / 1e3 : number;
    bool is_known_unit = unit.empty() || unit == "s" || unit == "ms";
    // The comparison is false for "nan", which from_chars accepts.
    bool is_in_range = seconds >= kSecondsMin && seconds <= kSecondsMax;
    if (error != std::errc() || !is_known_unit || !is_in_range) {
        refuse(option, "a number of seconds of at least 0.001 such as 2 or 500ms", text);
    }
    return seconds;
}

std::uint64_t parse_count(const std::string& option, const std::string& text, std::uint64_t min) {
    const char* text_end = text.data() + text.size();
    std::uint64_t count = 0;
    auto [end, error] = std::from_chars(text.data(), text_end, count);
    if (error != std::errc() || end != text_end || count < min) {
        refuse(option, fmt::format("a whole number of at least {}", min), text);
    }
    return count;
}

std::string print_rate(std::uint64_t bits_per_second) {
    if (bits_per_second == 0) return "unlimited";
    return print_scaled(static_cast<double>(bits_per_second), kRateUnits);
}

std::string print_duration(std::int64_t ns) {
    if (ns == 0) return "0";
    return print_scaled(static_cast<double>(ns), kTimeUnits);
}

std::string print_probability(double share) {
    return share == 0 ? "0" : fmt::format("{:.6g} %", share * 100);
}

}  // namespace rdmalab::launcher
