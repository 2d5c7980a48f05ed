// Where the card listens. The rule is the card's (card/host/admin.h): $RDMALAB_SOCKET, else
// <runtime folder>/$RDMALAB_CARD.sock, else <runtime folder>/default.sock.
#pragma once

#include <cstddef>

namespace rdmalab::verbs {

struct SocketLocation {
    static constexpr std::size_t kPathMax = 108;  // sun_path of sockaddr_un
    char path[kPathMax] = {};
    bool is_named = false;     // by the user: its absence is an error
    bool is_too_long = false;  // no socket can have such a path
};

SocketLocation locate_card();

}  // namespace rdmalab::verbs
