// rpoll and rselect: rsockets and ordinary descriptors side by side.
//
// First everybody is asked. If nobody is ready the sockets are asked again for a short while (what
// comes soon is cheaper to poll for), then their queues are armed and the caller sleeps on their
// descriptors. A descriptor that becomes readable only means that there may be news.
#include "verbs/rdmacm/rsockets/multiplex.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "verbs/rdmacm/rsockets/table.h"

namespace rdmalab::rdmacm {

namespace {

using Clock = std::chrono::steady_clock;

class Multiplexer {
public:
    Multiplexer(pollfd* fds, nfds_t count) : fds_(fds), count_(count), sleepers_(count) {
        sockets_.reserve(count);
        for (nfds_t i = 0; i < count; ++i) {
            sockets_.push_back(find_socket(fds[i].fd));
            if (!sockets_.back()) continue;
            has_sockets_ = true;
        }
    }

    bool has_sockets() const { return has_sockets_; }

    // How many are ready now, with their revents; -1 and errno.
    int check() {
        int ready = 0;
        for (nfds_t i = 0; i < count_; ++i) {
            fds_[i].revents = 0;
            sleepers_[i] = {.fd = fds_[i].fd, .events = fds_[i].events, .revents = 0};
            if (sockets_[i]) {
                fds_[i].revents = sockets_[i]->ready(fds_[i].events);
                sleepers_[i].events = POLLIN;
            }
        }
        // Of the ordinary ones all at once; what it says about sockets is not asked for.
        if (poll(sleepers_.data(), count_, 0) < 0) return -1;
        for (nfds_t i = 0; i < count_; ++i) {
            if (!sockets_[i]) fds_[i].revents = sleepers_[i].revents;
            if (fds_[i].revents != 0) ++ready;
        }
        return ready;
    }

    // False when something has come meanwhile.
    bool arm() {
        bool is_quiet = true;
        for (SocketRef& socket : sockets_) {
            if (socket && !socket->arm()) is_quiet = false;
        }
        return is_quiet;
    }

    // 0, or -1 and errno.
    int sleep(int timeout_ms) {
        int status = poll(sleepers_.data(), count_, timeout_ms);
        if (status < 0) return -1;
        for (nfds_t i = 0; i < count_; ++i) {
            if (sockets_[i] && sleepers_[i].revents != 0) sockets_[i]->drain();
        }
        return 0;
    }

private:
    pollfd* fds_;
    nfds_t count_;
    std::vector<SocketRef> sockets_;
    std::vector<pollfd> sleepers_;
    bool has_sockets_ = false;
};

int left_ms(Clock::time_point start, int timeout) {
    auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    return std::max(0, timeout - static_cast<int>(passed.count()));
}

}  // namespace

int multiplex(pollfd* fds, nfds_t count, int timeout) {
    Multiplexer all(fds, count);
    if (!all.has_sockets()) return poll(fds, count, timeout);
    Clock::time_point start = Clock::now();
    const Settings& settings = default_settings();
    Clock::time_point polling_end = start + std::chrono::microseconds(settings.polling_us);
    for (;;) {
        int ready = all.check();
        if (ready != 0 || timeout == 0) return ready;
        if (Clock::now() < polling_end) continue;
        if (!all.arm()) continue;
        // What came between the check and the arming of the last socket.
        ready = all.check();
        if (ready != 0) return ready;
        int nap = static_cast<int>(settings.wake_up_ms);
        if (timeout > 0) {
            nap = std::min(nap, left_ms(start, timeout));
            if (nap == 0) return 0;
        }
        if (all.sleep(nap) != 0) return -1;
    }
}

namespace {

void add(std::vector<pollfd>& fds, int fd, short event) {
    if (!fds.empty() && fds.back().fd == fd) {
        fds.back().events = static_cast<short>(fds.back().events | event);
    } else {
        fds.push_back({.fd = fd, .events = event, .revents = 0});
    }
}

// Leaves in `set` what is ready; returns how many.
int keep(fd_set* set, const std::vector<pollfd>& fds, short asked, short shown) {
    if (set == nullptr) return 0;
    int count = 0;
    for (const pollfd& entry : fds) {
        if ((entry.events & asked) == 0) continue;
        if ((entry.revents & shown) != 0) {
            ++count;
        } else {
            FD_CLR(entry.fd, set);
        }
    }
    return count;
}

}  // namespace

int multiplex(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
              const timeval* timeout) {
    std::vector<pollfd> fds;
    for (int fd = 0; fd < count; ++fd) {
        if (readable != nullptr && FD_ISSET(fd, readable)) add(fds, fd, POLLIN);
        if (writable != nullptr && FD_ISSET(fd, writable)) add(fds, fd, POLLOUT);
        if (exceptional != nullptr && FD_ISSET(fd, exceptional)) add(fds, fd, POLLPRI);
    }
    int timeout_ms = -1;
    if (timeout != nullptr) {
        timeout_ms = static_cast<int>(timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000);
    }
    if (multiplex(fds.data(), fds.size(), timeout_ms) < 0) return -1;
    for (const pollfd& entry : fds) {
        if ((entry.revents & POLLNVAL) != 0) return fail(EBADF);
    }
    return keep(readable, fds, POLLIN, POLLIN | POLLHUP | POLLERR) +
           keep(writable, fds, POLLOUT, POLLOUT | POLLERR) +
           keep(exceptional, fds, POLLPRI, POLLPRI);
}

}  // namespace rdmalab::rdmacm
