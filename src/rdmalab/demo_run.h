// The processes of `rdmalab demo`: programs whose output is collected and that never outlive the
// launcher.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rdmalab/fd.h"
#include "rdmalab/signals.h"

namespace rdmalab::launcher {

class CollectedProcess {
public:
    // Starts `command` with these variables added to the environment.
    CollectedProcess(std::vector<std::string> command,
                     const std::map<std::string, std::string>& environment);
    ~CollectedProcess();  // kills what still runs
    CollectedProcess(const CollectedProcess&) = delete;
    CollectedProcess& operator=(const CollectedProcess&) = delete;

    // The exit status (128 + signal), once the process has ended.
    std::optional<int> exit_status();
    // Waits for its end.
    int wait();
    // SIGINT, and SIGKILL when it has not ended after `grace_seconds`. Returns the exit status.
    int stop(double grace_seconds);
    void kill();
    pid_t pid() const { return pid_; }
    std::string output() const;
    std::string command_line() const;

private:
    void note_end(int status);

    std::vector<std::string> command_;
    Fd output_;
    pid_t pid_ = -1;
    std::optional<int> exit_status_;
};

// A TCP port that nobody listens on now.
std::uint16_t free_tcp_port();
bool is_tcp_port_listening(std::uint16_t port);

}  // namespace rdmalab::launcher
