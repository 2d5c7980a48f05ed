// Agents on the hosts of a cluster, started by Open MPI's mpirun. This process has no MPI in it: it
// writes messages to mpirun's standard input and reads them from its output; the relay of the first
// host (relay.h) is at the other end.
#pragma once

#include <sys/types.h>

#include <deque>
#include <string>
#include <vector>

#include "perftest/cluster/backend.h"
#include "perftest/cluster/send_queue.h"
#include "perftest/fd.h"

namespace rdmalab::perftest {

struct MpiOptions {
    std::string mpirun = "mpirun";  // may have words of its own behind it
    std::string program;            // path of ours on every host
    std::string interfaces;  // CIDR or names, comma separated; "" = as the hosts' addresses say
    std::string user;        // of SSH
    double seconds_max = 0;  // of the whole run; 0 = not known
};

// The words to execute, with the file that lists the hosts.
std::vector<std::string> mpirun_words(const MpiOptions& options, const std::string& hostfile,
                                      std::size_t hosts, const std::string& interfaces);
// What mpirun and SSH have said that means something to a user.
std::string diagnosis(const std::string& output);
// Hosts that the Slurm job, if this runs in one, does not have.
std::vector<std::string> outside_allocation(const std::vector<std::string>& hosts,
                                            const std::string& nodelist);

class MpiBackend final : public Backend {
public:
    explicit MpiBackend(MpiOptions options) : options_(std::move(options)) {}
    ~MpiBackend() override;
    MpiBackend(const MpiBackend&) = delete;
    MpiBackend& operator=(const MpiBackend&) = delete;

    void launch(const std::vector<std::string>& hosts) override;
    void send(std::uint32_t agent, MessageType type, const Json& body) override;
    std::optional<BackendEvent> wait(int timeout_ms, int wake_fd) override;
    Clocks compare_clocks() override;
    void end() override;
    const char* name() const override { return "mpi"; }

private:
    void start(const std::vector<std::string>& words);
    void pump(int timeout_ms, int wake_fd);
    void read_messages();
    void read_diagnosis();
    void handle_end();

    MpiOptions options_;
    std::vector<std::string> hosts_;
    std::string hostfile_;
    pid_t pid_ = 0;
    Fd input_, output_, errors_;
    SendQueue queue_;
    Decoder decoder_;
    std::string said_;  // on stderr, and between messages
    std::deque<BackendEvent> events_;
    bool over_ = false, said_bye_ = false;
};

}  // namespace rdmalab::perftest
