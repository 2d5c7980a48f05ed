#include "perftest/scenario/ptini.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "perftest/scenario/text_file.h"

namespace rdmalab::perftest {

namespace {

constexpr std::size_t kFileBytesMax = 256u << 20;

struct Datatype {
    const char* name;
    std::uint32_t bytes;
};
constexpr Datatype kDatatypes[] = {{"int8", 1},      {"uint8", 1},
                                   {"int16", 2},     {"uint16", 2},
                                   {"float16", 2},   {"bfloat16", 2},
                                   {"int32", 4},     {"uint32", 4},
                                   {"float32", 4},   {"float32_complex", 8},
                                   {"int64", 8},     {"uint64", 8},
                                   {"float64", 8},   {"float64_complex", 16},
                                   {"int128", 16},   {"uint128", 16},
                                   {"float128", 16}, {"float128_complex", 32}};

std::string_view trimmed(std::string_view text) {
    std::size_t first = text.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return out;
}

// Reads line by line; knows in which section it is and whether a block in braces is open.
class Reader {
public:
    Reader(std::uint32_t ranks, std::uint32_t element_bytes)
        : ranks_(ranks), element_bytes_(element_bytes) {
        out_.ranks = ranks;
        out_.bytes.reserve(std::size_t{ranks} * ranks);
    }

    Result<SizeMatrix> read(std::string_view text);

private:
    Status handle_line(std::string_view line);
    Status handle_section(std::string_view line);
    Status handle_key(std::string_view line);
    Status handle_block(std::string_view line);
    Status handle_counts(std::string_view items);
    Status add_count(std::string_view item);
    Result<SizeMatrix> finish();
    Error error(const std::string& text) const {
        return {EINVAL, fmt::format("line {}: {}", line_, text)};
    }

    std::uint32_t ranks_, element_bytes_;
    SizeMatrix out_;
    std::size_t line_ = 0;
    bool in_collective_ = false, collective_seen_ = false;
    bool in_block_ = false, block_counts_ = false, counts_seen_ = false;
};

Status Reader::add_count(std::string_view item) {
    std::uint64_t count = 0;
    auto [end, code] = std::from_chars(item.data(), item.data() + item.size(), count);
    if (code == std::errc::invalid_argument || end != item.data() + item.size()) {
        return error(fmt::format("counts: expected a whole number, found '{}'", item));
    }
    std::size_t index = out_.bytes.size();
    std::size_t most = std::size_t{ranks_} * ranks_;
    if (index == most) {
        return error(
            fmt::format("counts: expected {} times {} values, found more", ranks_, ranks_));
    }
    std::uint64_t row = index / ranks_, column = index % ranks_;
    if (row == column) count = 0;
    if (code != std::errc() || count > kPairBytesMax / element_bytes_) {
        return error(
            fmt::format("counts: {} elements of {} bytes from rank {} to rank {} are more "
                        "than a message can have, {} bytes",
                        item, element_bytes_, row, column, kPairBytesMax));
    }
    out_.bytes.push_back(count * element_bytes_);
    if (count == 0 && row != column) ++out_.skipped;
    return {};
}

Status Reader::handle_counts(std::string_view items) {
    while (!items.empty()) {
        std::size_t comma = std::min(items.find(','), items.size());
        std::string_view item = trimmed(items.substr(0, comma));
        items.remove_prefix(std::min(comma + 1, items.size()));
        if (item.empty()) continue;
        if (Status added = add_count(item); !added.ok()) return added;
    }
    return {};
}

Status Reader::handle_block(std::string_view line) {
    std::size_t close = line.find('}');
    if (block_counts_) {
        Status read = handle_counts(line.substr(0, close));
        if (!read.ok()) return read;
    }
    if (close == std::string_view::npos) return {};
    in_block_ = false;
    if (!trimmed(line.substr(close + 1)).empty()) return error("text after '}'");
    return {};
}

Status Reader::handle_section(std::string_view line) {
    if (line.back() != ']') return error(fmt::format("'[' without ']' in '{}'", line));
    in_collective_ = lower(trimmed(line.substr(1, line.size() - 2))) == "collective";
    if (in_collective_ && std::exchange(collective_seen_, true)) {
        return error("a second [collective] pattern; a test measures one, split the file");
    }
    return {};
}

Status Reader::handle_key(std::string_view line) {
    std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
        return error(fmt::format("expected KEY = VALUE, found '{}'", line));
    }
    std::string_view key = trimmed(line.substr(0, equals)),
                     value = trimmed(line.substr(equals + 1));
    bool counts = in_collective_ && key == "counts";
    if (!value.empty() && value.front() == '{') {
        in_block_ = true;
        block_counts_ = counts;
        if (counts && std::exchange(counts_seen_, true)) {
            return error("a second block of counts; a test measures one pattern, split the file");
        }
        return handle_block(value.substr(1));
    }
    if (counts) return error("counts: expected '{' and the values");
    if (!in_collective_) return {};
    if (key == "type" && value != "ALLTOALLV") {
        return error(fmt::format("type: expected ALLTOALLV, found '{}'", value));
    }
    if (key == "team_size" && value != std::to_string(ranks_)) {
        return error(fmt::format("team_size: expected {}, the number of endpoints, found '{}'",
                                 ranks_, value));
    }
    return {};
}

Status Reader::handle_line(std::string_view line) {
    line = trimmed(line.substr(0, line.find_first_of(";#")));
    if (line.empty()) return {};
    if (in_block_) return handle_block(line);
    return line.front() == '[' ? handle_section(line) : handle_key(line);
}

Result<SizeMatrix> Reader::finish() {
    if (in_block_) return error("'{' without '}'");
    if (!counts_seen_) return Error{EINVAL, "no counts in a section [collective]"};
    std::size_t wanted = std::size_t{ranks_} * ranks_;
    if (out_.bytes.size() == wanted) return std::move(out_);
    return Error{EINVAL, fmt::format("counts: expected {} times {} values, one for each pair of "
                                     "endpoints, found {}",
                                     ranks_, ranks_, out_.bytes.size())};
}

Result<SizeMatrix> Reader::read(std::string_view text) {
    while (!text.empty()) {
        ++line_;
        std::size_t end = std::min(text.find('\n'), text.size());
        if (Status read = handle_line(text.substr(0, end)); !read.ok()) return read.error();
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return finish();
}

}  // namespace

std::optional<std::uint32_t> datatype_bytes(std::string_view name) {
    for (const Datatype& each : kDatatypes) {
        if (name == each.name) return each.bytes;
    }
    return std::nullopt;
}

const std::vector<std::string>& datatype_names() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> out;
        for (const Datatype& each : kDatatypes) out.emplace_back(each.name);
        return out;
    }();
    return names;
}

Result<SizeMatrix> parse_ptini(std::string_view text, std::uint32_t ranks,
                               std::uint32_t element_bytes) {
    return Reader(ranks, element_bytes).read(text);
}

Result<SizeMatrix> read_ptini(const std::string& path, std::uint32_t ranks,
                              std::uint32_t element_bytes) {
    std::string real = path;
    const char* home = getenv("HOME");
    if (path.rfind("~/", 0) == 0 && home != nullptr) real = home + path.substr(1);
    Result<std::string> text = read_text_file(real, kFileBytesMax);
    if (!text.ok()) return text.error();
    Result<SizeMatrix> matrix = parse_ptini(*text, ranks, element_bytes);
    if (!matrix.ok()) return Error{matrix.error().code, real + ": " + matrix.error().text};
    return matrix;
}

}  // namespace rdmalab::perftest
