#include "perftest/scenario/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace rdmalab::perftest {

namespace {

constexpr std::size_t kHostWidthMin = 5;
using Row = std::vector<std::string>;

// Of all names, up to where a number begins; nothing when there is one name only.
std::string common_prefix(const std::vector<TestEndpoint>& endpoints) {
    std::string prefix = endpoints.front().host;
    bool several = false;
    for (const TestEndpoint& each : endpoints) {
        auto ends = std::mismatch(prefix.begin(), prefix.end(), each.host.begin(), each.host.end());
        several = several || each.host != endpoints.front().host;
        prefix.erase(ends.first, prefix.end());
    }
    while (!prefix.empty() && prefix.back() >= '0' && prefix.back() <= '9') prefix.pop_back();
    bool whole = std::any_of(endpoints.begin(), endpoints.end(),
                             [&](const TestEndpoint& each) { return each.host == prefix; });
    return several && !whole ? prefix : "";
}

std::string device_text(const TestEndpoint& endpoint) {
    return endpoint.gpu ? fmt::format("{}:{}", endpoint.device, *endpoint.gpu) : endpoint.device;
}

// An odd blank goes to the right.
std::string centred(const std::string& text, std::size_t width) {
    std::size_t blanks = width > text.size() ? width - text.size() : 0;
    return std::string(blanks / 2, ' ') + text + std::string(blanks - blanks / 2, ' ');
}

std::string cut(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "\n";
}

class Drawing {
public:
    explicit Drawing(const PairTable& table) : table_(table) {
        std::string prefix = common_prefix(table.endpoints);
        for (const TestEndpoint& each : table.endpoints) {
            hosts_.push_back(each.host.substr(prefix.size()));
            devices_.push_back(device_text(each));
        }
        for (const std::string& host : hosts_) host_width_ = std::max(host_width_, host.size());
        for (const std::string& each : devices_) {
            device_width_ = std::max(device_width_, each.size());
        }
        auto widen = [&](const Row& row) {
            for (const std::string& cell : row) width_ = std::max(width_, cell.size());
        };
        for (const Row& row : table.cells) widen(row);
        for (const Row& row : {hosts_, devices_, table.sent, table.received}) widen(row);
        if (has_totals()) width_ = std::max(width_, std::string("Total").size());
    }

    std::string draw() const {
        std::string out = line("", "", hosts_, has_totals() ? "Total" : "");
        out += line("", "", devices_, has_totals() ? "sent" : "") + rule();
        for (std::size_t i = 0; i < table_.cells.size(); ++i) {
            out += line(hosts_[i], devices_[i], table_.cells[i], has_totals() ? table_.sent[i] : "",
                        table_.before.empty() ? nullptr : &table_.before[i]);
            if (i + 1 < table_.cells.size() || has_totals()) out += rule();
        }
        if (!has_totals()) return out;
        std::string total = fmt::format("{:<{}}", "Total recv", host_width_ + 1 + device_width_);
        for (const std::string& cell : table_.received) total += " | " + centred(cell, width_);
        return out + cut(total);
    }

private:
    bool has_totals() const { return !table_.sent.empty(); }

    std::string line(const std::string& host, const std::string& device, const Row& cells,
                     const std::string& total, const Row* before = nullptr) const {
        std::string out = fmt::format("{:<{}} {:<{}}", host, host_width_, device, device_width_);
        for (std::size_t i = 0; i < cells.size(); ++i) {
            std::string cell = centred(cells[i], width_);
            bool coloured = before != nullptr && !(*before)[i].empty();
            out += " | " + (coloured ? (*before)[i] + cell + table_.after : cell);
        }
        if (!total.empty()) out += " | " + centred(total, width_);
        return cut(out);
    }

    std::string rule() const {
        std::string out = std::string(host_width_, '-') + " " + std::string(device_width_, '-');
        std::size_t columns = table_.endpoints.size() + (has_totals() ? 1 : 0);
        for (std::size_t i = 0; i < columns; ++i) out += " | " + std::string(width_, '-');
        return out + "\n";
    }

    const PairTable& table_;
    Row hosts_, devices_;
    std::size_t host_width_ = kHostWidthMin, device_width_ = 0, width_ = 0;
};

}  // namespace

std::string host_line(const std::vector<TestEndpoint>& endpoints) {
    std::string prefix = common_prefix(endpoints);
    return prefix.empty() ? "" : fmt::format("Hosts: {}*\n", prefix);
}

std::string draw(const PairTable& table) { return Drawing(table).draw(); }

}  // namespace rdmalab::perftest
