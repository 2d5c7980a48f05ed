// How the front-end reaches the agents of all hosts: what is different between one machine and a
// cluster, and nothing else. Messages go to and from agents by number, in the order of the hosts;
// agents also write to each other, which a back-end passes on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perftest/message.h"

namespace rdmalab::perftest {

struct BackendEvent {
    enum class Kind {
        kMessage,
        kLost,  // this agent is gone; `text` says how
        kOver,  // all are
    };
    Kind kind = Kind::kMessage;
    std::uint32_t agent = 0;
    Message message;
    std::string text;
};

// A host's monotonic clock against that of reference: its time is reference + offset, give or take
// the error.
struct HostClock {
    std::int64_t offset_ns = 0, error_ns = 0;
};
struct Clocks {
    std::vector<HostClock> hosts;
    std::int64_t reference_ns = 0;  // the reference clock ...
    std::int64_t taken_ns = 0;      // ... when ours said this
};

class Backend {
public:
    virtual ~Backend() = default;

    // Starts an agent on each host. Throws Failure. Agents say hello when they are there.
    virtual void launch(const std::vector<std::string>& hosts) = 0;
    virtual void send(std::uint32_t agent, MessageType type, const Json& body) = 0;
    // What has happened; waits that long at most, and not when `wake_fd` becomes readable.
    virtual std::optional<BackendEvent> wait(int timeout_ms, int wake_fd) = 0;
    // While nothing else is going on.
    virtual Clocks compare_clocks() = 0;
    // Ends all agents, whatever they do.
    virtual void end() = 0;
    // The name of it, for reports.
    virtual const char* name() const = 0;
};

}  // namespace rdmalab::perftest
