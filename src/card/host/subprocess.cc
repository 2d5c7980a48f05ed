#include "card/host/subprocess.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "card/host/descriptor.h"

extern char** environ;

namespace rdmalab::card::host {
namespace {

// The descriptors of a program, and no signals blocked or ignored that the card does.
class SpawnSettings {
public:
    SpawnSettings(int input, int output) {
        posix_spawn_file_actions_init(&actions_);
        posix_spawn_file_actions_adddup2(&actions_, input, STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO);
        posix_spawnattr_init(&attributes_);
        sigset_t none, all;
        sigemptyset(&none);
        sigfillset(&all);
        posix_spawnattr_setsigmask(&attributes_, &none);
        posix_spawnattr_setsigdefault(&attributes_, &all);
        posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    }
    ~SpawnSettings() {
        posix_spawn_file_actions_destroy(&actions_);
        posix_spawnattr_destroy(&attributes_);
    }
    SpawnSettings(const SpawnSettings&) = delete;
    SpawnSettings& operator=(const SpawnSettings&) = delete;
    const posix_spawn_file_actions_t* actions() const { return &actions_; }
    const posix_spawnattr_t* attributes() const { return &attributes_; }

private:
    posix_spawn_file_actions_t actions_;
    posix_spawnattr_t attributes_;
};

UniqueFd memory_file(std::string_view content) {
    UniqueFd file(::memfd_create("rdmalab-program", MFD_CLOEXEC));
    if (file && ::pwrite(file.value(), content.data(), content.size(), 0) !=
                    static_cast<ssize_t>(content.size())) {
        file.reset();
    }
    return file;
}

// The lines that a program printed, joined to one.
std::string printed(int file) {
    struct stat facts {};
    ::fstat(file, &facts);
    std::string text(static_cast<std::size_t>(std::min<off_t>(facts.st_size, 2'000)), '\0');
    const ssize_t length = ::pread(file, text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    std::replace(text.begin(), text.end(), '\n', ';');
    return text;
}

}  // namespace

Status run_program(const std::vector<std::string>& words, std::string_view input) {
    const UniqueFd given = memory_file(input), output = memory_file("");
    if (!given || !output) return system_error(fmt::format("cannot run {}", words[0]));
    std::vector<char*> pointers;
    for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    const SpawnSettings settings(given.value(), output.value());
    pid_t child = 0;
    const int error = ::posix_spawnp(&child, pointers[0], settings.actions(), settings.attributes(),
                                     pointers.data(), environ);
    if (error != 0) return system_error(fmt::format("cannot run {}", words[0]), error);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) return system_error(fmt::format("cannot wait for {}", words[0]));
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
    const std::string text = printed(output.value());
    const std::string how = WIFEXITED(status) ? fmt::format("exit status {}", WEXITSTATUS(status))
                                              : fmt::format("signal {}", WTERMSIG(status));
    return Error{EIO, fmt::format("{}: {}", fmt::join(words, " "), text.empty() ? how : text)};
}

}  // namespace rdmalab::card::host
