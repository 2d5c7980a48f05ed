// The files of topologies/, embedded when the program is built.
#pragma once

#include <span>
#include <string_view>

namespace rdmalab::card::host {

struct BuiltinTopology {
    std::string_view name, text;
};
std::span<const BuiltinTopology> builtin_topology_table();

}  // namespace rdmalab::card::host
