// The GID table of the port, as the card has it at the moment.
#pragma once

#include "base/limits.h"
#include "verbs/context.h"

namespace rdmalab::verbs {

struct GidTable {
    abi::GidEntry entries[limits::kGidMax] = {};
    std::size_t count = 0;

    // The entry at that index of the table, or null where it is empty.
    const abi::GidEntry* at(std::uint32_t index) const;
};

inline bool is_port(std::uint32_t port) { return port == 1; }

// 0 or an errno value.
int fetch_gids(Context& context, GidTable& out);

// The index of the GID, or -1 and errno.
int find_gid(Context& context, std::uint32_t port, const ibv_gid& gid);

}  // namespace rdmalab::verbs
