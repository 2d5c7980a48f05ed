#include "rdmalab/demo_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "rdmalab/failure.h"

namespace rdmalab::launcher {

namespace {

[[noreturn]] void become(std::vector<std::string>& command,
                         const std::map<std::string, std::string>& environment, int output,
                         pid_t launcher) {
    StopSignals::restore();
    // Ctrl-C is for the launcher, which ends its programs in order.
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(kExitFailed);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    std::vector<char*> pointers;
    for (std::string& word : command) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    execvp(pointers[0], pointers.data());
    dprintf(STDERR_FILENO, "cannot run '%s': %s\n", pointers[0], std::strerror(errno));
    _exit(kExitNotFound);
}

}  // namespace

CollectedProcess::CollectedProcess(std::vector<std::string> command,
                                   const std::map<std::string, std::string>& environment)
    : command_(std::move(command)), output_(memfd_create("output", MFD_CLOEXEC)) {
    pid_t launcher = getpid();
    pid_ = fork();
    if (pid_ < 0) {
        throw Failure(kExitFailed,
                      fmt::format("cannot start '{}': {}", command_[0], std::strerror(errno)));
    }
    if (pid_ == 0) become(command_, environment, output_.value(), launcher);
}

CollectedProcess::~CollectedProcess() {
    if (!exit_status()) kill();
}

void CollectedProcess::note_end(int status) {
    exit_status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int CollectedProcess::wait() {
    int status = 0;
    if (!exit_status_ && waitpid(pid_, &status, 0) == pid_) note_end(status);
    return *exit_status_;
}

void CollectedProcess::kill() {
    if (exit_status()) return;
    ::kill(pid_, SIGKILL);
    wait();
}

int CollectedProcess::stop(double grace_seconds) {
    constexpr auto kLook = std::chrono::milliseconds(5);
    if (!exit_status()) ::kill(pid_, SIGINT);
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(grace_seconds);
    while (!exit_status() && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(kLook);
    }
    kill();
    return *exit_status_;
}

std::optional<int> CollectedProcess::exit_status() {
    int status = 0;
    if (!exit_status_ && waitpid(pid_, &status, WNOHANG) == pid_) note_end(status);
    return exit_status_;
}

std::string CollectedProcess::output() const {
    std::string text;
    char buffer[4096];
    for (;;) {
        ssize_t got =
            pread(output_.value(), buffer, sizeof buffer, static_cast<off_t>(text.size()));
        if (got <= 0) return text;
        text.append(buffer, static_cast<std::size_t>(got));
    }
}

std::string CollectedProcess::command_line() const {
    return fmt::format("{}", fmt::join(command_, " "));
}

std::uint16_t free_tcp_port() {
    Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t length = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(socket.value(), generic, length) != 0 ||
        getsockname(socket.value(), generic, &length) != 0) {
        throw Failure(kExitFailed, fmt::format("no free TCP port: {}", std::strerror(errno)));
    }
    return ntohs(address.sin_port);
}

bool is_tcp_port_listening(std::uint16_t port) {
    constexpr char kListening[] = "0A";
    std::string wanted = fmt::format(":{:04X}", port);
    for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
        std::ifstream table(path);
        std::string line;
        while (std::getline(table, line)) {
            std::istringstream fields(line);
            std::string slot, local, remote, state;
            fields >> slot >> local >> remote >> state;
            if (state == kListening && local.ends_with(wanted)) return true;
        }
    }
    return false;
}

}  // namespace rdmalab::launcher
