// Reads the fields of one TOML table: each reader takes the value if the key is there and has the
// right type, and otherwise notes an error. `finish` notes the keys that nobody asked for.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 1
#include <toml++/toml.h>

#include "card/host/quantity.h"
#include "card/host/topology.h"

namespace rdmalab::card::host {

class ErrorList {
public:
    explicit ErrorList(std::string_view file) : file_(file) {}
    void add(std::uint32_t line, std::string field, std::string expected, std::string found) {
        errors_.push_back({file_, line, std::move(field), std::move(expected), std::move(found)});
    }
    std::vector<TopologyError> take();  // by line

private:
    std::string file_;
    std::vector<TopologyError> errors_;
};

class TomlReader {
public:
    // `path` stands before the names of the fields: "function[2]", or "" for the file.
    TomlReader(const toml::table& table, std::string path, ErrorList& errors)
        : table_(table), path_(std::move(path)), errors_(errors) {}

    std::optional<std::string> string(std::string_view key, std::string_view expected);
    std::optional<bool> boolean(std::string_view key);
    std::optional<std::uint64_t> unsigned_integer(std::string_view key, std::string_view expected);
    std::optional<Rate> rate(std::string_view key);
    std::optional<Duration> duration(std::string_view key);
    std::optional<double> probability(std::string_view key);
    // Empty when absent or wrong.
    std::vector<std::string> strings(std::string_view key, std::string_view expected);
    const toml::table* table(std::string_view key);
    std::vector<const toml::table*> tables(std::string_view key);

    bool is_absent(std::string_view key) const { return !table_.contains(key); }

    void error(std::string_view key, std::string expected, std::string found);
    void missing(std::string_view key, std::string_view expected);
    void finish();

    std::uint32_t line() const { return static_cast<std::uint32_t>(table_.source().begin.line); }
    std::uint32_t line_of(std::string_view key) const;
    const std::string& path() const { return path_; }

private:
    const toml::node* find(std::string_view key);
    std::string field(std::string_view key) const;
    void mismatch(std::string_view key, std::string expected);
    template <class T, class Parse>
    std::optional<T> quantity(std::string_view key, const std::string& expected, Parse parse);

    const toml::table& table_;
    std::string path_;
    ErrorList& errors_;
    std::vector<std::string_view> known_;
};

// How a value is shown in "found": its TOML text, cut when it is long.
std::string describe(const toml::node& node);

}  // namespace rdmalab::card::host
