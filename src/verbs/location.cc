#include "verbs/location.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

}  // namespace

SocketLocation locate_card() {
    SocketLocation out;
    if (const char* socket = environment("RDMALAB_SOCKET")) {
        out.is_named = true;
        print_path(out, "%s", socket);
        return out;
    }
    const char* card = environment("RDMALAB_CARD");
    out.is_named = card != nullptr;
    if (card == nullptr) card = "default";
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
