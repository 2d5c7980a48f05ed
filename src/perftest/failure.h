// How rdma_perftest fails: one exception with the exit code and the message. It is thrown where the
// failure is decided and caught once, in main (or in the worker process, which passes it on).
#pragma once

#include <stdexcept>
#include <string>

namespace rdmalab::perftest {

// docs/perftest.md, "Exit codes". 1 beats 3 beats 2.
inline constexpr int kExitOk = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitThreshold = 2;
inline constexpr int kExitCorrupt = 3;

class Failure : public std::runtime_error {
public:
    explicit Failure(const std::string& text) : std::runtime_error(text) {}
};

}  // namespace rdmalab::perftest
