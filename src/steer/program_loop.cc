#include "steer/program_loop.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>

namespace rdmalab::steer {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPollPeriod = std::chrono::milliseconds(10);

sigset_t handled() {
    sigset_t set;
    sigemptyset(&set);
    for (int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&set, number);
    return set;
}

double seconds_between(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
}

double unix_time() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

class Loop {
public:
    Loop(const LoopOptions& options, ProgramSignals& signals, ControlSocket& control,
         const LoopHooks& hooks)
        : options_(options), signals_(signals), control_(control), hooks_(hooks) {}

    Status run() {
        while (!stopped_) {
            wait();
            Status status = hooks_.poll();
            if (status.ok() && Clock::now() >= next_interval()) status = end_interval();
            if (!status.ok()) return status;
            control_.serve([this](const auto& words) { return command(words); });
            take_signal();
            if (options_.end_after_s >= 0 &&
                seconds_between(started_, Clock::now()) >= options_.end_after_s) {
                return {};
            }
        }
        return {};
    }

private:
    Clock::time_point next_interval() const {
        return interval_begin_ + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(options_.interval_s));
    }
    void wait() {
        pollfd waited[] = {{signals_.descriptor(), POLLIN, 0},
                           {control_.descriptor(), POLLIN, 0},
                           {options_.hang_up, POLLIN, 0}};
        const auto left = std::min<Clock::duration>(kPollPeriod, next_interval() - Clock::now());
        const auto whole = std::chrono::ceil<std::chrono::milliseconds>(left).count();
        ::poll(waited, std::size(waited), static_cast<int>(std::max<std::int64_t>(0, whole)));
    }
    Status end_interval() {
        const Clock::time_point now = Clock::now();
        const Interval interval{unix_time(), seconds_between(interval_begin_, now)};
        interval_begin_ = now;
        return hooks_.end_interval(interval);
    }
    void take_signal() {
        const int number = signals_.take();
        if (number == SIGUSR1) {
            hooks_.show_insides();
        } else if (number != 0) {
            stopped_ = true;
        }
    }
    Result<std::string> command(const std::vector<std::string>& words) {
        if (words != std::vector<std::string>{"stop"}) return hooks_.command(words);
        stopped_ = true;
        return std::string();
    }

    const LoopOptions& options_;
    ProgramSignals& signals_;
    ControlSocket& control_;
    const LoopHooks& hooks_;
    Clock::time_point started_ = Clock::now(), interval_begin_ = started_;
    bool stopped_ = false;
};

}  // namespace

ProgramSignals::ProgramSignals() {
    const sigset_t set = handled();
    sigprocmask(SIG_BLOCK, &set, nullptr);
    descriptor_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

ProgramSignals::~ProgramSignals() {
    close(descriptor_);
    const sigset_t set = handled();
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

int ProgramSignals::take() {
    signalfd_siginfo info{};
    if (read(descriptor_, &info, sizeof info) != sizeof info) return 0;
    return static_cast<int>(info.ssi_signo);
}

Status run_loop(const LoopOptions& options, ProgramSignals& signals, ControlSocket& control,
                const LoopHooks& hooks) {
    return Loop(options, signals, control, hooks).run();
}

}  // namespace rdmalab::steer
