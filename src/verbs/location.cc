#include "verbs/location.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "card/socket_abi.h"

namespace rdmalab::verbs {

namespace {

const char* environment(const char* name) {
    const char* value = getenv(name);
    return value != nullptr && *value != '\0' ? value : nullptr;
}

template <class... Args>
void print_path(SocketLocation& out, const char* format, Args... args) {
    int length = snprintf(out.path, sizeof out.path, format, args...);
    out.is_too_long = length < 0 || static_cast<std::size_t>(length) >= sizeof out.path;
}

// An abstract name belongs to whoever binds it first: only the card of root or of this user is one.
bool namespace_has_card(const char* path) {
    sockaddr_un address{};
    const socklen_t length = make_address(path, address);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    ucred peer{};
    socklen_t peer_length = sizeof peer;
    const bool is_card = connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                         getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_length) == 0 &&
                         (peer.uid == 0 || peer.uid == geteuid());
    close(fd);
    return is_card;
}

}  // namespace

socklen_t make_address(const char* path, sockaddr_un& out) {
    out = {};
    out.sun_family = AF_UNIX;
    const std::size_t length = strnlen(path, sizeof out.sun_path);
    memcpy(out.sun_path, path, length);
    if (path[0] != '@') return sizeof out;
    out.sun_path[0] = '\0';
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
}

SocketLocation locate_card() {
    SocketLocation out;
    if (const char* socket = environment("RDMALAB_SOCKET")) {
        out.is_named = true;
        print_path(out, "%s", socket);
        return out;
    }
    const char* card = environment("RDMALAB_CARD");
    out.is_named = card != nullptr;
    if (card == nullptr) {
        print_path(out, "@%s", abi::kAbstractSocket);
        if (namespace_has_card(out.path)) return out;
        card = "default";
    }
    if (const char* folder = environment("RDMALAB_RUNTIME_DIR")) {
        print_path(out, "%s/%s.sock", folder, card);
    } else if (const char* user_folder = environment("XDG_RUNTIME_DIR")) {
        print_path(out, "%s/rdmalab/%s.sock", user_folder, card);
    } else if (geteuid() == 0) {
        print_path(out, "/run/rdmalab/%s.sock", card);
    } else {
        print_path(out, "/tmp/rdmalab-%u/%s.sock", geteuid(), card);
    }
    return out;
}

}  // namespace rdmalab::verbs
