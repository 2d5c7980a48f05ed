#include "rdmalab/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <cmath>

namespace rdmalab::launcher {

namespace {

sigset_t stop_set() {
    sigset_t set;
    sigemptyset(&set);
    for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&set, number);
    return set;
}

}  // namespace

StopSignals::StopSignals() {
    sigset_t set = stop_set();
    sigprocmask(SIG_BLOCK, &set, nullptr);
    descriptor_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

StopSignals::~StopSignals() { restore(); }

std::optional<StopSignal> StopSignals::take() {
    signalfd_siginfo info{};
    if (read(descriptor_.value(), &info, sizeof info) != sizeof info) return std::nullopt;
    return StopSignal{static_cast<int>(info.ssi_signo), info.ssi_code == SI_KERNEL};
}

std::optional<StopSignal> StopSignals::wait(double seconds) {
    pollfd waited{descriptor_.value(), POLLIN, 0};
    poll(&waited, 1, static_cast<int>(std::lround(seconds * 1e3)));
    return take();
}

void StopSignals::restore() {
    sigset_t set = stop_set();
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace rdmalab::launcher
