// A connection to a running card: the administration protocol (card/host/admin.h) and the list of
// devices. One request at a time; an error of the card becomes a Failure.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "card/ring_abi.h"
#include "rdmalab/fd.h"
#include "rdmalab/json_access.h"

namespace rdmalab::launcher {

class CardClient {
public:
    // Nothing when no card of that name listens (no socket, or a stale one).
    static std::optional<CardClient> connect(const std::string& name);
    // Throws Failure that names the card, says how to start it, and lists those that are up.
    static CardClient connect_or_fail(const std::string& name);

    // `descriptor`, if not negative, travels with the request.
    Json admin(const Json& request, int descriptor = -1);
    std::vector<abi::DeviceInfo> list_devices();

    const std::string& name() const { return name_; }
    pid_t pid() const { return pid_; }
    int socket() const { return socket_.value(); }

private:
    CardClient(std::string name, Fd socket, pid_t pid)
        : name_(std::move(name)), socket_(std::move(socket)), pid_(pid) {}
    struct Reply {
        std::int32_t status = 0;
        std::string body;
        Fd descriptor;
        std::size_t length = 0;
    };
    void send(abi::Op op, std::string_view body, int descriptor);
    Reply receive();
    [[noreturn]] void fail_no_answer(const char* action, int error) const;
    static std::string read_text(const Reply& reply);

    std::string name_;
    Fd socket_;
    pid_t pid_;
};

// Names of the cards that answer a connection.
std::vector<std::string> running_cards();

}  // namespace rdmalab::launcher
