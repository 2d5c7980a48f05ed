// SIGINT, SIGTERM, SIGHUP and SIGQUIT as a descriptor that can be polled, so that a command that
// waits can tidy up before it ends.
#pragma once

#include <optional>

#include "rdmalab/fd.h"

namespace rdmalab::launcher {

struct StopSignal {
    int number = 0;
    // A terminal sends its signals to the whole process group; those need not be passed on.
    bool from_terminal = false;
};

// While it lives the four signals are blocked and queue here. Children must call `restore` before
// they exec.
class StopSignals {
public:
    StopSignals();
    ~StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;

    int descriptor() const { return descriptor_.value(); }
    // The signal that came, if one did.
    std::optional<StopSignal> take();
    // Waits at most `seconds` for a signal.
    std::optional<StopSignal> wait(double seconds);
    static void restore();

private:
    Fd descriptor_;
};

}  // namespace rdmalab::launcher
