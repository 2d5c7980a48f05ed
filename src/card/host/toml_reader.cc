#include "card/host/toml_reader.h"

#include <algorithm>
#include <sstream>

#include "base/edit_distance.h"

namespace rdmalab::card::host {

std::vector<TopologyError> ErrorList::take() {
    std::stable_sort(errors_.begin(), errors_.end(),
                     [](const auto& a, const auto& b) { return a.line < b.line; });
    return std::move(errors_);
}

std::string describe(const toml::node& node) {
    if (node.is_table()) return "a table";
    if (node.is_array()) return "an array";
    std::ostringstream text;
    node.visit([&](const auto& value) {
        if constexpr (toml::is_string<decltype(value)>) {
            text << '"' << value.get() << '"';
        } else if constexpr (toml::is_boolean<decltype(value)>) {
            text << (value.get() ? "true" : "false");
        } else if constexpr (toml::is_value<decltype(value)>) {
            text << value.get();
        }
    });
    constexpr std::size_t kShownMax = 80;
    std::string shown = text.str();
    if (shown.size() > kShownMax) shown = shown.substr(0, kShownMax) + "...";
    return shown;
}

const toml::node* TomlReader::find(std::string_view key) {
    known_.push_back(key);
    return table_.get(key);
}

std::string TomlReader::field(std::string_view key) const {
    if (path_.empty()) return std::string(key);
    return fmt::format("{}.{}", path_, key);
}

std::uint32_t TomlReader::line_of(std::string_view key) const {
    const toml::node* node = table_.get(key);
    return node ? static_cast<std::uint32_t>(node->source().begin.line) : line();
}

void TomlReader::error(std::string_view key, std::string expected, std::string found) {
    errors_.add(line_of(key), field(key), std::move(expected), std::move(found));
}

void TomlReader::mismatch(std::string_view key, std::string expected) {
    error(key, std::move(expected), describe(*table_.get(key)));
}

void TomlReader::missing(std::string_view key, std::string_view expected) {
    error(key, std::string(expected), "nothing");
}

std::optional<std::string> TomlReader::string(std::string_view key, std::string_view expected) {
    const toml::node* node = find(key);
    if (!node) return std::nullopt;
    if (const auto* value = node->as_string()) return value->get();
    mismatch(key, std::string(expected));
    return std::nullopt;
}

std::optional<bool> TomlReader::boolean(std::string_view key) {
    const toml::node* node = find(key);
    if (!node) return std::nullopt;
    if (const auto* value = node->as_boolean()) return value->get();
    mismatch(key, "true or false");
    return std::nullopt;
}

std::optional<std::uint64_t> TomlReader::unsigned_integer(std::string_view key,
                                                          std::string_view expected) {
    const toml::node* node = find(key);
    if (!node) return std::nullopt;
    if (const auto* value = node->as_integer(); value && value->get() >= 0) {
        return static_cast<std::uint64_t>(value->get());
    }
    mismatch(key, std::string(expected));
    return std::nullopt;
}

// Text, or a bare number where that has a meaning (0, 0.01): both go through the same parser.
template <class T, class Parse>
std::optional<T> TomlReader::quantity(std::string_view key, const std::string& expected,
                                      Parse parse) {
    const toml::node* node = find(key);
    if (!node) return std::nullopt;
    std::string text;
    if (const auto* value = node->as_string()) {
        text = value->get();
    } else if (const auto* number = node->as_floating_point()) {
        text = fmt::format("{:.12f}", number->get());
    } else if (const auto* integer = node->as_integer()) {
        text = fmt::format("{}", integer->get());
    }
    auto parsed = parse(text);
    if (parsed.ok()) return *parsed;
    mismatch(key, expected);
    return std::nullopt;
}

std::optional<Rate> TomlReader::rate(std::string_view key) {
    return quantity<Rate>(key, expected_rate(), parse_rate);
}

std::optional<Duration> TomlReader::duration(std::string_view key) {
    return quantity<Duration>(key, expected_duration(), parse_duration);
}

std::optional<double> TomlReader::probability(std::string_view key) {
    return quantity<double>(key, expected_probability(), parse_probability);
}

std::vector<std::string> TomlReader::strings(std::string_view key, std::string_view expected) {
    const toml::node* node = find(key);
    if (!node) return {};
    std::vector<std::string> values;
    const toml::array* array = node->as_array();
    if (!array) {
        mismatch(key, std::string(expected));
        return {};
    }
    for (const toml::node& element : *array) {
        if (const auto* value = element.as_string()) {
            values.push_back(value->get());
        } else {
            errors_.add(static_cast<std::uint32_t>(element.source().begin.line), field(key),
                        std::string(expected), describe(element));
        }
    }
    return values;
}

const toml::table* TomlReader::table(std::string_view key) {
    const toml::node* node = find(key);
    if (!node) return nullptr;
    if (const toml::table* found = node->as_table()) return found;
    mismatch(key, fmt::format("a table [{}]", field(key)));
    return nullptr;
}

std::vector<const toml::table*> TomlReader::tables(std::string_view key) {
    const toml::node* node = find(key);
    if (!node) return {};
    const std::string expected = fmt::format("tables [[{}]]", key);
    const toml::array* array = node->as_array();
    if (!array) {
        mismatch(key, expected);
        return {};
    }
    std::vector<const toml::table*> found;
    for (const toml::node& element : *array) {
        if (const toml::table* one = element.as_table()) {
            found.push_back(one);
        } else {
            errors_.add(static_cast<std::uint32_t>(element.source().begin.line), std::string(key),
                        expected, describe(element));
        }
    }
    return found;
}

void TomlReader::finish() {
    for (const auto& [key, value] : table_) {
        const std::string_view name = key.str();
        if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
        const auto nearest = std::min_element(
            known_.begin(), known_.end(), [&](std::string_view a, std::string_view b) {
                return edit_distance(a, name) < edit_distance(b, name);
            });
        std::string expected = fmt::format("one of {}", fmt::join(known_, ", "));
        if (nearest != known_.end() && edit_distance(*nearest, name) <= 1 + name.size() / 3) {
            expected = fmt::format("a known key (did you mean \"{}\"?)", *nearest);
        }
        errors_.add(static_cast<std::uint32_t>(key.source().begin.line), field(name),
                    std::move(expected), fmt::format("unknown key \"{}\"", name));
    }
}

}  // namespace rdmalab::card::host
