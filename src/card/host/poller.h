// epoll with a handler per descriptor. A handler may add and remove descriptors, its own included,
// while events are being handed out.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "base/result.h"
#include "base/units.h"
#include "card/host/descriptor.h"

namespace rdmalab::card::host {

class Poller {
public:
    using Handler = std::function<void(std::uint32_t events)>;
    using Token = std::uint64_t;  // never reused
    static constexpr Token kNone = 0;

    Status open();
    // `events` as of epoll_ctl(2). kNone when the descriptor cannot be polled.
    Token add(int fd, std::uint32_t events, Handler handler);
    void change(Token token, std::uint32_t events);
    // Before the descriptor is closed.
    void remove(Token token);

    // Waits at most `timeout` (negative: for ever) and hands out the events. Returns how many.
    int wait(Duration timeout);

private:
    struct Watch {
        int fd;
        Handler handler;
    };
    int wait_raw(Duration timeout, void* events, int count);

    UniqueFd epoll_;
    Token next_ = 1;
    std::unordered_map<Token, Watch> watches_;
    bool has_pwait2_ = true;
};

}  // namespace rdmalab::card::host
