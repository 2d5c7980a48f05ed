// The control socket of an attachment: one request, then its reply, one at a time. Death of the
// card shows here first: once a call has seen it, all later calls answer EIO at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <type_traits>

#include "base/bytes.h"
#include "card/ring_abi.h"

namespace rdmalab::verbs {

// Descriptors that came with a reply. Those that nobody takes are closed.
struct ReceivedFds {
    static constexpr int kMax = 8;
    int fds[kMax] = {-1, -1, -1, -1, -1, -1, -1, -1};
    int count = 0;

    ReceivedFds() = default;
    ReceivedFds(const ReceivedFds&) = delete;
    ReceivedFds& operator=(const ReceivedFds&) = delete;
    ~ReceivedFds();
    int take(int index);
};

class Connection {
public:
    Connection() = default;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection() { close(); }

    // 0 or an errno value. Calls give up after `timeout_s` seconds; 0: never.
    int open(const char* path, int timeout_s);
    // Takes over a connected socket.
    int adopt(int fd);
    void close();
    // In the child of a fork: the lock that another thread of the parent held is free again, and
    // the connection may be opened anew.
    void renew();
    void set_timeout(int seconds);

    // 0 or an errno value: the card's, or EIO when there is no card any more. `reply` gets at most
    // its size; what the card did not send is zero. `reply_length` is what the card sent.
    // `sent_fd`, if not -1, travels with the request.
    int call(abi::Op op, ByteView request, ByteSpan reply, std::size_t* reply_length = nullptr,
             ReceivedFds* fds = nullptr, int sent_fd = -1);

    template <class Request, class Reply>
    int call(abi::Op op, const Request& request, Reply& reply, ReceivedFds* fds = nullptr) {
        static_assert(std::is_trivially_copyable_v<Request> && std::is_trivially_copyable_v<Reply>);
        return call(op, std::as_bytes(std::span(&request, 1)),
                    std::as_writable_bytes(std::span(&reply, 1)), nullptr, fds);
    }
    template <class Request>
    int call(abi::Op op, const Request& request) {
        return call(op, std::as_bytes(std::span(&request, 1)), ByteSpan());
    }

    int fd() const { return fd_; }
    int peer_pid() const { return peer_pid_; }
    bool is_dead() const { return dead_.load(std::memory_order_relaxed); }
    void mark_dead() { dead_.store(true, std::memory_order_relaxed); }
    // Looks for the end of the connection without waiting; marks and returns it.
    bool check_dead();
    // The card's explanation of the last error, or "".
    const char* error_text() const { return error_text_; }

private:
    int send(abi::Op op, ByteView request, int sent_fd);
    // 0: a reply came and `card_status` is what it says.
    int receive(ByteSpan reply, std::size_t* reply_length, ReceivedFds* fds, int& card_status);

    std::mutex mutex_;
    std::atomic<bool> dead_{false};
    int fd_ = -1;
    int peer_pid_ = 0;
    char error_text_[512] = {};
    std::byte buffer_[abi::kMessageMax];
};

}  // namespace rdmalab::verbs
