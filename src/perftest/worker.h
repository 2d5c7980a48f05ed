// One process of a test, and the group of them that a main process has. A worker is forked before
// any device is open, opens its own, and is spoken to over a socket pair; traffic never waits for
// that socket.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perftest/board.h"
#include "perftest/channel.h"
#include "perftest/endpoint.h"
#include "perftest/placement.h"
#include "perftest/plan.h"

namespace rdmalab::perftest {

// What a side does in a test.
Roles roles_of(const Plan& plan, bool is_server);

class Crew {
public:
    // Starts one process for each of the plan's.
    Crew(const Plan& plan, const Side& side, bool is_server, const Placement& placement);
    ~Crew();  // kills what still runs
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;

    std::size_t size() const { return members_.size(); }
    Channel& channel(std::size_t index) { return members_[index].channel; }
    Board& board() { return board_; }
    void send(std::size_t index, MessageType type, const Json& body);
    void send_all(MessageType type, const Json& body);
    // How a worker that closed its channel has ended, in words.
    std::string death_of(std::size_t index);
    std::uint64_t iterations();  // completed by all, so far
    // Lets the workers go and waits for them, not for long.
    void finish();

private:
    struct Member {
        pid_t pid = 0;
        Channel channel;
    };

    Board board_;
    std::vector<Member> members_;
};

}  // namespace rdmalab::perftest
