// Tables of pairs of endpoints as people read them: rows send, columns receive.
#pragma once

#include <string>
#include <vector>

#include "perftest/scenario/pattern.h"

namespace rdmalab::perftest {

struct PairTable {
    std::vector<TestEndpoint> endpoints;
    std::vector<std::vector<std::string>> cells;  // [source][destination]
    // Around each cell, for colour; empty: none.
    std::vector<std::vector<std::string>> before;
    std::string after;
    // With totals: one more column and one more row.
    std::vector<std::string> sent, received;
};

// "Hosts: node*" when the names have a beginning in common, which the rows then leave out.
std::string host_line(const std::vector<TestEndpoint>& endpoints);
std::string draw(const PairTable& table);

}  // namespace rdmalab::perftest
