#include "perftest/scenario/ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace rdmalab::perftest {

namespace {

using Names = std::vector<std::string>;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
// Of words in a group. A dash would look like a range, a blank or bracket like a mistake.
bool is_word_char(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
}
bool is_literal_char(char c) { return static_cast<unsigned char>(c) > ' ' && c != '\x7f'; }

std::optional<std::uint64_t> number_of(std::string_view text) {
    if (text.empty() || !std::all_of(text.begin(), text.end(), is_digit)) return std::nullopt;
    std::uint64_t value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

Error too_many() {
    return {E2BIG, fmt::format("more than {} names, the most that one list may have", kNamesMax)};
}

// Appends what one element of a group stands for.
Status add_element(std::string_view element, Names& out) {
    std::size_t dash = element.find('-');
    if (dash == std::string_view::npos) {
        if (element.empty()) return Error{EINVAL, "an empty item between brackets"};
        if (!std::all_of(element.begin(), element.end(), is_word_char)) {
            return Error{EINVAL,
                         fmt::format("'{}' between brackets is neither a word nor a range like 1-4",
                                     element)};
        }
        out.emplace_back(element);
        return {};
    }
    std::string_view first_text = element.substr(0, dash);
    std::optional<std::uint64_t> first = number_of(first_text);
    std::optional<std::uint64_t> last = number_of(element.substr(dash + 1));
    if (!first || !last) {
        return Error{EINVAL,
                     fmt::format("'{}' is not a range of two numbers like 1-4 or 01-16", element)};
    }
    if (*first > *last) {
        return Error{EINVAL, fmt::format("range '{}' ends before it begins", element)};
    }
    if (*last - *first >= kNamesMax) return too_many();
    for (std::uint64_t i = 0; i <= *last - *first; ++i) {
        out.push_back(fmt::format("{:0{}}", *first + i, first_text.size()));
    }
    return {};
}

Result<Names> read_group(std::string_view inside) {
    Names out;
    for (bool more = true; more;) {
        std::size_t comma = std::min(inside.find(','), inside.size());
        Status added = add_element(inside.substr(0, comma), out);
        if (!added.ok()) return added.error();
        more = comma < inside.size();
        if (more) inside.remove_prefix(comma + 1);
    }
    return out;
}

Result<Names> product(const Names& heads, const Names& tails) {
    if (heads.size() * tails.size() > kNamesMax) return too_many();
    Names out;
    out.reserve(heads.size() * tails.size());
    for (const std::string& head : heads) {
        for (const std::string& tail : tails) out.push_back(head + tail);
    }
    return out;
}

Result<Names> expand_item(std::string_view item) {
    Names names = {""};
    while (!item.empty()) {
        std::size_t open = std::min(item.find('['), item.size());
        std::string_view literal = item.substr(0, open);
        if (literal.find(']') != std::string_view::npos) {
            return Error{EINVAL, fmt::format("']' without '[' in '{}'", item)};
        }
        if (!std::all_of(literal.begin(), literal.end(), is_literal_char)) {
            return Error{EINVAL, "a control character in a name"};
        }
        for (std::string& name : names) name += literal;
        if (open == item.size()) break;
        std::size_t close = item.find_first_of("[]", open + 1);
        if (close == std::string_view::npos || item[close] == '[') {
            return Error{EINVAL, fmt::format("'[' without ']' in '{}'", item)};
        }
        Result<Names> group = read_group(item.substr(open + 1, close - open - 1));
        if (!group.ok()) return group.error();
        Result<Names> longer = product(names, *group);
        if (!longer.ok()) return longer.error();
        names = std::move(*longer);
        item.remove_prefix(close + 1);
    }
    return names;
}

// Length of the first item: up to a separator outside of brackets.
std::size_t item_length(std::string_view text) {
    bool inside = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '[') inside = true;
        if (text[i] == ']') inside = false;
        if (!inside && (text[i] == ',' || is_blank(text[i]))) return i;
    }
    return text.size();
}

}  // namespace

Result<std::vector<std::string>> expand_ranges(std::string_view text) {
    Names all;
    while (!text.empty()) {
        std::size_t length = item_length(text);
        if (length > 0) {
            Result<Names> names = expand_item(text.substr(0, length));
            if (!names.ok()) return names.error();
            if (all.size() + names->size() > kNamesMax) return too_many();
            all.insert(all.end(), names->begin(), names->end());
        }
        text.remove_prefix(std::min(length + 1, text.size()));
    }
    if (all.empty()) return Error{EINVAL, "no name at all"};
    return all;
}

}  // namespace rdmalab::perftest
