// Starting a server that does not run yet: over SSH, by a command that leads into a container or a
// namespace, or directly when the host is this one. The server holds a lease: it ends when our end
// of its standard input closes, however this process ends.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "perftest/fd.h"

namespace rdmalab::perftest {

enum class LaunchKind { kAutomatic, kDisabled, kSsh, kCommand };

struct LaunchOptions {
    LaunchKind kind = LaunchKind::kAutomatic;
    std::string command;  // of kCommand: what comes before the server's command line
    std::string host, user, exe;
    std::string program;  // argv[0] of this process
    std::uint16_t port = 0;
};

// Throws Failure for a wrong word.
LaunchOptions launch_options(const std::string& word);

// The words that are executed. `is_local`: the host is this machine.
std::vector<std::string> launch_words(const LaunchOptions& options, bool is_local);
bool is_this_host(const std::string& host);

class LaunchedServer {
public:
    LaunchedServer() = default;
    ~LaunchedServer();
    LaunchedServer(LaunchedServer&&) noexcept;
    LaunchedServer& operator=(LaunchedServer&&) = delete;

    // Returns once the server says that it is ready. Throws Failure with what it printed instead.
    static LaunchedServer start(const LaunchOptions& options);
    // What it prints from now on; -1 when none was launched.
    int output() const { return output_.value(); }

private:
    void wait_ready(const std::string& command);

    pid_t pid_ = 0;
    Fd input_, output_;
};

}  // namespace rdmalab::perftest
