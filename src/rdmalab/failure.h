// How the launcher fails: one exception that carries the exit status and the message. It is thrown
// where the failure is decided and caught once, in main.
#pragma once

#include <stdexcept>
#include <string>

namespace rdmalab::launcher {

inline constexpr int kExitFailed = 1;    // something went wrong while running
inline constexpr int kExitBadInput = 2;  // what the user asked for cannot be
inline constexpr int kExitCannotExecute = 126;
inline constexpr int kExitNotFound = 127;

class Failure : public std::runtime_error {
public:
    Failure(int exit_status, const std::string& text)
        : std::runtime_error(text), exit_status_(exit_status) {}
    int exit_status() const { return exit_status_; }

private:
    int exit_status_;
};

}  // namespace rdmalab::launcher
