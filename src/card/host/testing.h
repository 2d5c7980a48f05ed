// What the tests and benchmarks of the host share: child processes with memory to copy from and to,
// and a client of the control socket.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "card/host/descriptor.h"
#include "card/ring_abi.h"

namespace rdmalab::card::host {

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
