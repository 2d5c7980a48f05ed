#include "perftest/child.h"

#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "perftest/failure.h"

namespace rdmalab::perftest {

Child fork_child(const std::function<void(Channel parent)>& work) {
    fflush(nullptr);  // or the child prints it again
    auto [ours, theirs] = channel_pair();
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) throw Failure(fmt::format("fork: {}", strerror(errno)));
    if (pid > 0) return {pid, std::move(ours)};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kExitError);  // it ended before that
    ours = Channel(Fd());
    work(std::move(theirs));
    abort();
}

}  // namespace rdmalab::perftest
