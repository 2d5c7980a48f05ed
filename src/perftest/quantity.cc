#include "perftest/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/edit_distance.h"

namespace rdmalab::perftest {

namespace {

constexpr int kCoreMax = 8191;

Error unexpected(const std::string& expected, std::string_view found) {
    return {EINVAL, fmt::format("expected {}, found '{}'", expected, found)};
}

bool all_digits(std::string_view text) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<std::uint64_t> digits(std::string_view text) {
    std::uint64_t value = 0;
    if (!all_digits(text)) return std::nullopt;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

std::string range_text(std::uint64_t min, std::uint64_t max) {
    if (max == UINT64_MAX) return fmt::format("at least {}", min);
    return fmt::format("{} to {}", min, max);
}

// The power of 1024 that a suffix stands for.
std::optional<unsigned> suffix_shift(std::string_view suffix) {
    if (suffix.empty()) return 0;
    std::string_view rest = suffix.substr(1);
    if (!rest.empty() && rest != "i" && rest != "iB") return std::nullopt;
    switch (suffix.front()) {
        case 'k':
        case 'K':
            return 10;
        case 'M':
        case 'm':
            return 20;
        case 'G':
        case 'g':
            return 30;
        default:
            return std::nullopt;
    }
}

}  // namespace

Result<std::uint64_t> parse_count(std::string_view text, std::uint64_t min, std::uint64_t max) {
    std::optional<std::uint64_t> value = digits(text);
    if (!value || *value < min || *value > max) {
        return unexpected("a whole number, " + range_text(min, max), text);
    }
    return *value;
}

Result<std::uint64_t> parse_size(std::string_view text, std::uint64_t min, std::uint64_t max) {
    std::size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
    std::optional<std::uint64_t> value = digits(text.substr(0, count));
    std::optional<unsigned> shift = suffix_shift(text.substr(count));
    bool fits = value && shift && *value <= (max >> *shift) && (*value << *shift) >= min;
    if (!fits) {
        return unexpected(fmt::format("bytes, {} (k, M, G allowed)", range_text(min, max)), text);
    }
    return *value << *shift;
}

Result<double> parse_decimal(std::string_view text, double min, double max) {
    bool plain = !text.empty() && text.front() != '.' && text.back() != '.' &&
                 std::count(text.begin(), text.end(), '.') <= 1 && text.size() <= 32 &&
                 text.find_first_not_of("0123456789.") == std::string_view::npos;
    double value = 0;
    if (plain) std::from_chars(text.data(), text.data() + text.size(), value);
    if (!plain || value < min || value > max) {
        return unexpected(fmt::format("a number, {} to {}", min, max), text);
    }
    return value;
}

Result<std::vector<int>> parse_cores(std::string_view text) {
    const std::string expected =
        fmt::format("cores like 5 or 5,7 or 5-9, each once, 0 to {}", kCoreMax);
    std::vector<int> cores;
    std::string_view rest = text;
    for (bool more = true; more;) {
        std::size_t comma = std::min(rest.find(','), rest.size());
        std::string_view item = rest.substr(0, comma);
        more = comma < rest.size();
        rest = more ? rest.substr(comma + 1) : std::string_view();
        std::size_t dash = std::min(item.find('-'), item.size());
        std::optional<std::uint64_t> first = digits(item.substr(0, dash));
        std::optional<std::uint64_t> last =
            dash < item.size() ? digits(item.substr(dash + 1)) : first;
        if (!first || !last || *first > *last || *last > kCoreMax) {
            return unexpected(expected, text);
        }
        for (std::uint64_t core = *first; core <= *last; ++core) {
            int number = static_cast<int>(core);
            if (std::find(cores.begin(), cores.end(), number) != cores.end()) {
                return unexpected(expected, text);
            }
            cores.push_back(number);
        }
    }
    return cores;
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
    std::string best;
    std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
    for (const std::string& candidate : known) {
        std::size_t distance = edit_distance(word, candidate);
        if (distance < best_distance) {
            best = candidate;
            best_distance = distance;
        }
    }
    return best;
}

}  // namespace rdmalab::perftest
