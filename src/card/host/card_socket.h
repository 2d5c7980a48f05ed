// The runtime folder of cards, and the place of one card in it: the lock that makes its name
// unique and the socket it listens on (see admin.h for the paths).
//
// The lock is an flock on <name>.lock and so ends with the process however it ends; the file itself
// only tells the pid. Whoever holds the lock may remove what a dead card left behind.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "card/host/descriptor.h"

namespace rdmalab::card::host {

// As the environment says; the folder need not exist.
std::string runtime_folder();

class CardSocket {
public:
    // Makes the folder if there is none (its parent must exist). Error codes: EINVAL for a name or
    // path that cannot be, EADDRINUSE when a card of this name runs, else what the system said.
    static Result<std::unique_ptr<CardSocket>> claim(const std::string& folder,
                                                     const std::string& name);
    // Removes the socket and the lock.
    ~CardSocket();
    CardSocket(const CardSocket&) = delete;
    CardSocket& operator=(const CardSocket&) = delete;

    int listener() const { return listener_.value(); }
    const std::string& path() const { return socket_path_; }

private:
    CardSocket() = default;
    Status lock();
    Status try_lock(bool& lost_race);
    Status write_pid();
    Status remove_stale_socket();
    Status listen();

    std::string name_, socket_path_, lock_path_;
    UniqueFd lock_, listener_;
    bool owns_lock_ = false, owns_socket_ = false;
};

}  // namespace rdmalab::card::host
