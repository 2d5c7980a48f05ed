// All agents on this machine, as children of the front-end over socket pairs: for scenarios of one
// host, for machines without MPI, and for tests.
#pragma once

#include <sys/types.h>

#include <deque>

#include "perftest/channel.h"
#include "perftest/cluster/backend.h"
#include "perftest/cluster/send_queue.h"

namespace rdmalab::perftest {

class LocalBackend final : public Backend {
public:
    LocalBackend() = default;
    ~LocalBackend() override;
    LocalBackend(const LocalBackend&) = delete;
    LocalBackend& operator=(const LocalBackend&) = delete;

    void launch(const std::vector<std::string>& hosts) override;
    void send(std::uint32_t agent, MessageType type, const Json& body) override;
    std::optional<BackendEvent> wait(int timeout_ms, int wake_fd) override;
    Clocks compare_clocks() override;
    void end() override;
    const char* name() const override { return "local"; }

private:
    struct Member {
        std::string host;
        pid_t pid = 0;
        Channel channel;
        SendQueue queue;
        bool is_open = true;
    };

    void pump(int timeout_ms, int wake_fd);
    void read(std::uint32_t agent);
    void lose(std::uint32_t agent);
    Json ask_clock(std::uint32_t agent);

    std::vector<Member> members_;
    std::deque<BackendEvent> events_;
};

}  // namespace rdmalab::perftest
