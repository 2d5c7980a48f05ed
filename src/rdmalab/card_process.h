// Starting and stopping rdmalab-card.
//
// Start: fork, exec, then wait until the card writes "ready" to a pipe. What the card prints before
// that (all errors of a topology, together) is collected and becomes the Failure, with the card's
// own exit status. A detached card has its own session and no terminal; an embedded one gets
// SIGTERM when the launcher dies, however it dies.
//
// Stop: ask over the socket, then SIGTERM, then SIGKILL, each with its grace period; the end is
// seen on a pidfd, so a process that took over the number is never hit. Files that a killed card
// left behind are removed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rdmalab::launcher {

struct CardOptions {
    std::string name;
    std::string topology;                // empty: the card's default
    std::vector<std::string> uplinks{};  // network interfaces, instead of a topology
    std::optional<std::uint64_t> seed;
    bool realtime = false;
    bool computed_icrc = false;
    bool netns = false;
};

enum class CardLife {
    kDetached,    // outlives the launcher
    kEmbedded,    // ends with the launcher
    kForeground,  // ends with the launcher and keeps its terminal
};

// Returns the pid of a card that accepts clients.
pid_t start_card(const CardOptions& options, CardLife life);

enum class StopResult { kStopped, kKilled };
// `wait_as_parent`: the card is a child of this process and has to be reaped.
StopResult stop_card(const std::string& name, bool wait_as_parent);
// Removes the files of a card that is not up. True when there were any.
bool remove_stale_files(const std::string& name);

// An embedded card that is stopped when the object goes.
class EmbeddedCard {
public:
    explicit EmbeddedCard(CardOptions options);
    ~EmbeddedCard();
    EmbeddedCard(const EmbeddedCard&) = delete;
    EmbeddedCard& operator=(const EmbeddedCard&) = delete;
    const std::string& name() const { return options_.name; }
    pid_t pid() const { return pid_; }

private:
    CardOptions options_;
    pid_t pid_;
};

}  // namespace rdmalab::launcher
