// Asks the rules of a function (receive_steering.h) about frames, and hands these to the QPs that
// get them. The headers are laid flat once for each frame.
#pragma once

#include <array>

#include "card/function.h"
#include "card/receive_steering.h"
#include "wire/frame.h"

namespace rdmalab::card {

class RuleDelivery {
public:
    explicit RuleDelivery(transport::MemoryPort& memory) : memory_(memory) {}

    // A frame has reached the function. True: a rule took it from those behind.
    bool arrive(Function& function, const wire::Frame& frame, Instant now);
    // ... and nobody wanted it.
    bool fall_through(Function& function, const wire::Frame& frame, Instant now);
    // The function sends a frame. True: a rule drops it. What a raw packet QP has made by hand and
    // addressed to somebody else also meets the function's own rules, as with adapters whose local
    // loopback is on; it leaves all the same.
    bool depart(Function& function, const wire::Frame& frame, Instant now);

private:
    // Behind the headers that a frame keeps: what a tunnel, ESP or IPv6 extensions take up.
    static constexpr std::size_t kInsideMax = 192;

    SteeredFrame see(const Function& function, const wire::Frame& frame);
    void hand_over(Function& function, const SteeredTo& to, const SteeredFrame& seen,
                   const wire::Frame& frame, Instant now);

    transport::MemoryPort& memory_;
    std::array<std::byte, wire::Frame::kHeaderMax + kInsideMax> bytes_;
};

}  // namespace rdmalab::card
