// Ownership of file descriptors, and texts for errors of system calls.
#pragma once

#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace rdmalab::card::host {

class UniqueFd {
public:
    UniqueFd() = default;
    explicit UniqueFd(int fd) : fd_(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept {
        if (this != &other) reset(std::exchange(other.fd_, -1));
        return *this;
    }
    ~UniqueFd() { reset(); }
    int value() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    void reset(int fd = -1) {
        if (fd_ >= 0) ::close(fd_);
        fd_ = fd;
    }

private:
    int fd_ = -1;
};

// "cannot open /x: No such file or directory" with the errno value of now.
Error system_error(std::string_view what);
Error system_error(std::string_view what, int code);

struct Pipe {
    UniqueFd read_end, write_end;
};
// Both ends CLOEXEC; only the write end is non-blocking (the reader is an application that may
// want to block).
Result<Pipe> make_pipe();

}  // namespace rdmalab::card::host
