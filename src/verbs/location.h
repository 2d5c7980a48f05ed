// Where the card listens. The rule is the card's (card/host/admin.h): $RDMALAB_SOCKET, else
// <runtime folder>/$RDMALAB_CARD.sock, else the card of this network namespace, else <runtime
// folder>/default.sock.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>

namespace rdmalab::verbs {

struct SocketLocation {
    static constexpr std::size_t kPathMax = 108;  // sun_path of sockaddr_un
    char path[kPathMax] = {};  // '@' and the name of an abstract socket (unix(7)), or a path
    bool is_named = false;     // by the user: its absence is an error
    bool is_too_long = false;  // no socket can have such a path
};

SocketLocation locate_card();

// Fills in the address of a path that fits; its length.
socklen_t make_address(const char* path, sockaddr_un& out);

}  // namespace rdmalab::verbs
