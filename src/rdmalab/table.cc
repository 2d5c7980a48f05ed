#include "rdmalab/table.h"

#include <algorithm>

namespace rdmalab::launcher {

namespace {

bool is_numeric(const std::string& cell) {
    return !cell.empty() && cell.find_first_not_of("0123456789.,") == std::string::npos &&
           std::count(cell.begin(), cell.end(), '.') <= 1;
}

void append_padded(std::string& line, const std::string& cell, std::size_t width, bool right) {
    std::size_t padding = width - cell.size();
    if (right) line.append(padding, ' ');
    line += cell;
    if (!right) line.append(padding, ' ');
}

}  // namespace

Table::Table(std::vector<std::string> heads) { rows_.push_back(std::move(heads)); }

void Table::add_row(std::vector<std::string> cells) {
    cells.resize(rows_.front().size());
    rows_.push_back(std::move(cells));
}

std::string Table::print(std::size_t indent) const {
    std::size_t columns = rows_.front().size();
    std::vector<std::size_t> widths(columns, 0);
    std::vector<bool> numeric(columns, rows_.size() > 1);
    for (std::size_t r = 0; r < rows_.size(); ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
            widths[c] = std::max(widths[c], rows_[r][c].size());
            if (r > 0 && !is_numeric(rows_[r][c])) numeric[c] = false;
        }
    }
    std::string text;
    for (const std::vector<std::string>& row : rows_) {
        std::string line(indent, ' ');
        for (std::size_t c = 0; c < columns; ++c) {
            if (c > 0) line += "  ";
            append_padded(line, row[c], widths[c], numeric[c]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    return text;
}

std::string print_count(std::uint64_t count) {
    std::string digits = std::to_string(count);
    for (std::size_t place = digits.size(); place > 3; place -= 3) digits.insert(place - 3, 1, ',');
    return digits;
}

}  // namespace rdmalab::launcher
