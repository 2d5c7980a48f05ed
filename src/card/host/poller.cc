#include "card/host/poller.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <ctime>

namespace rdmalab::card::host {

Status Poller::open() {
    epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_) return system_error("cannot create an epoll instance");
    return {};
}

Poller::Token Poller::add(int fd, std::uint32_t events, Handler handler) {
    const Token token = next_;
    epoll_event event{};
    event.events = events;
    event.data.u64 = token;
    if (::epoll_ctl(epoll_.value(), EPOLL_CTL_ADD, fd, &event) != 0) return kNone;
    ++next_;
    watches_.emplace(token, Watch{fd, std::move(handler)});
    return token;
}

void Poller::change(Token token, std::uint32_t events) {
    const auto watch = watches_.find(token);
    if (watch == watches_.end()) return;
    epoll_event event{};
    event.events = events;
    event.data.u64 = token;
    ::epoll_ctl(epoll_.value(), EPOLL_CTL_MOD, watch->second.fd, &event);
}

void Poller::remove(Token token) {
    const auto watch = watches_.find(token);
    if (watch == watches_.end()) return;
    ::epoll_ctl(epoll_.value(), EPOLL_CTL_DEL, watch->second.fd, nullptr);
    watches_.erase(watch);
}

int Poller::wait(Duration timeout) {
    std::array<epoll_event, 64> events;
    const int count = wait_raw(timeout, events.data(), static_cast<int>(events.size()));
    for (int i = 0; i < count; ++i) {
        const auto& event = events[static_cast<std::size_t>(i)];
        const auto watch = watches_.find(event.data.u64);
        if (watch == watches_.end()) continue;          // removed by a handler before it
        const Handler handler = watch->second.handler;  // the handler may remove itself
        handler(event.events);
    }
    return count < 0 ? 0 : count;
}

int Poller::wait_raw(Duration timeout, void* events, int count) {
    auto* const list = static_cast<epoll_event*>(events);
    if (has_pwait2_) {
        const timespec spec{timeout.ns / 1'000'000'000, timeout.ns % 1'000'000'000};
        const int found =
            ::epoll_pwait2(epoll_.value(), list, count, timeout.ns < 0 ? nullptr : &spec, nullptr);
        if (found >= 0 || errno != ENOSYS) return found;
        has_pwait2_ = false;  // Linux before 5.11: milliseconds have to do
    }
    const std::int64_t ms = timeout.ns < 0 ? -1 : (timeout.ns + 999'999) / 1'000'000;
    return ::epoll_wait(epoll_.value(), list, count,
                        static_cast<int>(std::min<std::int64_t>(ms, 3'600'000)));
}

}  // namespace rdmalab::card::host
