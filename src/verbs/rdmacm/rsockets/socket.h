// What all rsockets have in common: a descriptor, settings, waiting.
//
// The descriptor that the program gets is an epoll set of everything that can wake the socket: the
// channel of CM events and the completion channels. It is readable when there may be news, which
// is what rpoll and blocking calls sleep on; what the news are is found out by progress().
//
// One mutex guards a socket. Of several threads that wait for it, one sleeps in poll(2) and the
// others on a condition variable, so that no thread takes another's wake-up. rpoll may still do so;
// that is why no sleep is longer than the wake-up interval of the settings.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>

#include "verbs/rdmacm/api.h"
#include "verbs/rdmacm/rsockets/settings.h"

namespace rdmalab::rdmacm {

using Lock = std::unique_lock<std::mutex>;

class Socket {
public:
    // False and errno when the descriptor cannot be made.
    bool open();
    virtual ~Socket();

    int fd() const { return fd_; }
    int type() const { return type_; }

    // As the functions of the same name (rsocket.cc): -1 and errno.
    virtual int bind(const sockaddr* address) = 0;
    virtual int listen(int backlog);
    virtual Socket* accept(sockaddr* address, socklen_t* length);
    virtual int connect(const sockaddr* address) = 0;
    virtual int shutdown(int how) = 0;
    virtual void close() = 0;
    virtual ssize_t send(const iovec* pieces, std::size_t count, int flags, const sockaddr* to) = 0;
    virtual ssize_t receive(const iovec* pieces, std::size_t count, int flags, sockaddr* from,
                            socklen_t* from_length) = 0;
    virtual int local_address(sockaddr* address, socklen_t* length) = 0;
    virtual int peer_address(sockaddr* address, socklen_t* length) = 0;
    virtual off_t map_io(void* buffer, std::size_t length, int protection, int flags, off_t offset);
    virtual int unmap_io(void* buffer, std::size_t length);
    virtual ssize_t write_io(const void* buffer, std::size_t count, off_t offset, int flags);

    int set_option(int level, int name, const void* value, socklen_t length);
    int get_option(int level, int name, void* value, socklen_t* length);
    int set_flags(int flags);
    int flags() const { return is_nonblocking_ ? O_NONBLOCK : 0; }

    // For rpoll. What of `events` (and of POLLERR, POLLHUP) holds now.
    short ready(short events);
    // Makes the descriptor become readable at the next news. False: there are news already.
    bool arm();
    // After it was readable.
    void drain();

    void retain() { references_.fetch_add(1); }
    void release() {
        if (references_.fetch_sub(1) == 1) delete this;
    }

protected:
    Socket(int domain, int type) : domain_(domain), type_(type), settings_(default_settings()) {}

    // --- Called with the lock held.
    // Takes in what has happened. True when anything has.
    virtual bool progress() = 0;
    virtual short ready_now() = 0;
    virtual bool arm_queues() = 0;
    virtual void drain_queues() = 0;
    // The options that have an effect while the socket lives. 0, or an errno value.
    virtual int apply_option(int level, int name, int value) = 0;
    virtual int pending_error() = 0;  // and forgets it

    bool watch(int fd);
    // Waits until `is_done()`. 0; or -1 and EAGAIN (not `may_block`) or EINTR.
    template <class Condition>
    int wait(Lock& lock, bool may_block, Condition is_done);
    bool may_block(int flags) const { return !is_nonblocking_ && !(flags & MSG_DONTWAIT); }

    const int domain_, type_;
    Settings settings_;
    std::mutex mutex_;
    bool is_nonblocking_ = false;
    linger linger_{};  // only its extreme counts: no time to linger means to reset

private:
    // Sleeps until there may be news. 0 or -1 and EINTR.
    int sleep(Lock& lock);
    struct StoredOption {
        int level, name, value;
    };
    int* find_option(int level, int name, bool make);
    int set_size(int name, int value);

    int fd_ = -1;
    std::atomic<unsigned> references_{1};
    std::condition_variable changed_;
    bool has_sleeper_ = false;
    StoredOption options_[24] = {};
    std::size_t option_count_ = 0;
};

template <class Condition>
int Socket::wait(Lock& lock, bool may_block, Condition is_done) {
    using Clock = std::chrono::steady_clock;
    if (is_done()) return 0;
    if (progress()) changed_.notify_all();
    if (is_done()) return 0;
    if (!may_block) return fail(EAGAIN);
    Clock::time_point end = Clock::now() + std::chrono::microseconds(settings_.polling_us);
    while (!is_done()) {
        if (progress()) {
            changed_.notify_all();
            continue;
        }
        if (Clock::now() < end) continue;
        if (!arm_queues()) continue;
        if (sleep(lock) != 0) return -1;
    }
    return 0;
}

// Copies an address out as the socket calls do: at most *length bytes, *length says how many there
// are.
int give_address(const sockaddr& address, sockaddr* out, socklen_t* length);
std::size_t total_length(const iovec* pieces, std::size_t count);

}  // namespace rdmalab::rdmacm
