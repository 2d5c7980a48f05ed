// A text table: columns as wide as their widest cell, numbers to the right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rdmalab::launcher {

class Table {
public:
    explicit Table(std::vector<std::string> heads);
    void add_row(std::vector<std::string> cells);
    bool is_empty() const { return rows_.size() == 1; }
    // Every line begins with `indent` spaces and ends with a newline.
    std::string print(std::size_t indent = 2) const;

private:
    std::vector<std::vector<std::string>> rows_;
};

std::string print_count(std::uint64_t count);  // 1,234,567

}  // namespace rdmalab::launcher
