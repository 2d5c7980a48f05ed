// The worker processes of one host: one for each core that takes part. A worker is forked before
// any device is open, opens its own, and is spoken to over a socket pair; traffic never waits for
// that socket.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "perftest/board.h"
#include "perftest/child.h"

namespace rdmalab::perftest {

// What a worker does, in its own process. What it throws is told to main before the process ends.
using Work = std::function<void(std::uint32_t index, Channel& main, Board& board)>;

class Crew {
public:
    Crew(std::uint32_t count, const Work& work);
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
    Board board_;
    std::vector<Child> members_;
};

// The next message of main. Throws Failure when it is another one, or none.
Json await(Channel& main, MessageType type);

}  // namespace rdmalab::perftest
