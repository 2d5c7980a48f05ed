// How the programs wait: for signals, for commands, for the time to look for copied frames (every
// 10 ms) and for the end of an interval.
#pragma once

#include <functional>

#include "steer/control_socket.h"
#include "steer/egress_controller.h"

namespace rdmalab::steer {

// SIGINT, SIGTERM and SIGHUP end a program in order, SIGUSR1 asks for its insides. While this lives
// they are blocked, also in threads that are started later.
class ProgramSignals {
public:
    ProgramSignals();
    ~ProgramSignals();
    ProgramSignals(const ProgramSignals&) = delete;
    ProgramSignals& operator=(const ProgramSignals&) = delete;
    int descriptor() const { return descriptor_; }
    // The signal that came, or 0.
    int take();

private:
    int descriptor_;
};

struct LoopHooks {
    std::function<Status()> poll;
    std::function<Status(const Interval&)> end_interval;
    std::function<void()> show_insides;
    CommandHandler command;  // "stop" is handled here
};
struct LoopOptions {
    double interval_s = 1;
    double end_after_s = -1;  // negative: never
    int hang_up = -1;         // a descriptor that is readable when the card has gone
};
// Until a signal, "stop", the time, or an error of a hook, which is returned.
Status run_loop(const LoopOptions& options, ProgramSignals& signals, ControlSocket& control,
                const LoopHooks& hooks);

}  // namespace rdmalab::steer
