// What the tests and benchmarks of the host share: child processes with memory to copy from and to,
// and a client of the control socket.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "card/host/descriptor.h"
#include "card/ring_abi.h"

namespace rdmalab::card::host {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// A process that only sleeps, and an area of shared memory mapped in it and here: the test looks at
// the child's memory without the code under test.
class ChildProcess {
public:
    explicit ChildProcess(std::size_t length);
    ~ChildProcess();
    ChildProcess(const ChildProcess&) = delete;
    ChildProcess& operator=(const ChildProcess&) = delete;

    pid_t pid() const { return pid_; }
    std::uint64_t address(std::size_t offset) const {
        return reinterpret_cast<std::uint64_t>(base_) + offset;
    }
    std::uint8_t byte(std::size_t offset) const { return view_[offset]; }
    std::uint64_t word(std::size_t offset) const;
    void set_word(std::size_t offset, std::uint64_t value);
    void fill(std::size_t offset, std::size_t length, std::uint8_t value);
    std::vector<std::uint8_t> load(std::size_t offset, std::size_t length) const;
    void store(std::size_t offset, const std::vector<std::uint8_t>& bytes);

    // In the child.
    void unmap(std::size_t offset, std::size_t length);
    void protect(std::size_t offset, std::size_t length, int protection);
    void kill();

private:
    struct Command {
        char what;
        std::uint64_t address, length;
        int protection;
    };
    [[noreturn]] void serve(int socket);
    void order(const Command& command);

    pid_t pid_ = -1;
    std::size_t length_;
    std::uint8_t* base_ = nullptr;  // in both processes, until the child unmaps parts
    std::uint8_t* view_ = nullptr;  // second mapping here
    UniqueFd commands_;
};

// A client that speaks the control protocol over a socket, as the drop-in library does.
class ControlClient {
public:
    struct Reply {
        bool closed = false;  // the card hung up instead
        std::int32_t status = 0;
        std::string text;  // of an error, or of an admin answer
        std::vector<std::byte> body;
        std::vector<UniqueFd> fds;
    };

    explicit ControlClient(UniqueFd socket) : socket_(std::move(socket)) {}
    // EPERM etc. in errno when it fails; the client is then not connected.
    static ControlClient connect(const std::string& path);

    bool connected() const { return static_cast<bool>(socket_); }
    int fd() const { return socket_.value(); }
    void close() { socket_.reset(); }
    void send_raw(std::span<const std::byte> bytes, int fd = -1);
    void send(abi::Op op, std::span<const std::byte> body = {}, int fd = -1);
    template <class T>
    void send(abi::Op op, const T& body) {
        send(op, std::as_bytes(std::span(&body, 1)));
    }
    // Waits at most five seconds.
    Reply receive();
    // Does not wait; `closed` also when there is no reply.
    Reply receive_now();

private:
    UniqueFd socket_;
};

// A folder that goes with the test.
class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

}  // namespace rdmalab::card::host
