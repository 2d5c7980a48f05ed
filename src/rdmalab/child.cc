#include "rdmalab/child.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "rdmalab/fd.h"

namespace rdmalab::launcher {

int stay_until_end(pid_t child, StopSignals& signals) {
    Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
    for (;;) {
        pollfd waited[2] = {{pidfd.value(), POLLIN, 0}, {signals.descriptor(), POLLIN, 0}};
        poll(waited, 2, -1);
        while (std::optional<StopSignal> signal = signals.take()) {
            if (!signal->from_terminal) kill(child, signal->number);
        }
        int status = 0;
        if (waitpid(child, &status, WNOHANG) != child) continue;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}

}  // namespace rdmalab::launcher
