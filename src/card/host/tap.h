// A TAP network interface: frames that the kernel sends come out of a descriptor, frames written to
// it are received by the kernel. The interface goes when the descriptor is closed.
#pragma once

#include <cstddef>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "card/host/descriptor.h"
#include "transport/ports.h"
#include "wire/frame.h"

namespace rdmalab::card::host {

class Tap {
public:
    // Makes an interface in the network namespace of the calling thread. It is down.
    static Result<Tap> create(const std::string& name);

    int fd() const { return fd_.value(); }
    // The next frame that the kernel sends, without FCS; 0: none is waiting. Never blocks.
    std::size_t read(ByteSpan out);
    // A read has found that somebody has deleted the interface.
    bool is_gone() const { return is_gone_; }
    // False when the kernel does not take the frame: it is down, or short of memory. A payload that
    // lies in another process is read through `memory`.
    bool write(const wire::Frame& frame, transport::MemoryPort& memory);

private:
    explicit Tap(UniqueFd fd) : fd_(std::move(fd)) {}

    UniqueFd fd_;
    bool is_gone_ = false;
};

}  // namespace rdmalab::card::host
