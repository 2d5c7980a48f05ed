#include "perftest/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "perftest/channel.h"
#include "perftest/failure.h"
#include "perftest/session.h"

namespace rdmalab::perftest {

namespace {

constexpr double kReadySeconds = 30;  // a slow login included
constexpr char kSshVariable[] = "RDMA_PERFTEST_SSH";

std::string shell_quoted(const std::string& word) {
    constexpr char kPlain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+";
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
    std::string out = "'";
    for (char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
}

// The name this program was called by, usable from another directory.
std::string own_command(const std::string& program) {
    if (program.find('/') == std::string::npos) return program;
    char resolved[PATH_MAX];
    std::size_t slash = program.rfind('/');
    std::string folder = program.substr(0, slash + 1);
    if (realpath(folder.c_str(), resolved) == nullptr) return program;
    return std::string(resolved) + program.substr(slash);
}

std::string own_file() {
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path);
    return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : "rdma_perftest";
}

std::string server_line(const LaunchOptions& options, const std::string& exe) {
    // A server_exe may be a command line, e.g. "sudo rdma_perftest"; a path with blanks cannot be.
    return fmt::format("{} --lease --non_interactive --port {}", exe, options.port);
}

std::string excerpt(const std::string& output) {
    std::size_t length = 600;
    std::string text = output.size() > length ? output.substr(output.size() - length) : output;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.empty() ? "it printed nothing" : "it printed: " + text;
}

// The line that a server prints when it listens, wherever login scripts have left the cursor.
bool has_ready_line(const std::string& output) {
    std::size_t at = output.find(" server...\n");
    return at != std::string::npos && output.rfind("Running ", at) != std::string::npos;
}

// The wait status of a process that has closed its output, and is helped to end if it lingers.
int end_of(pid_t pid) {
    constexpr int kPatience = 100;  // of 10 ms
    int status = 0;
    for (int i = 0; i < kPatience; ++i) {
        if (waitpid(pid, &status, WNOHANG) == pid) return status;
        timespec pause{.tv_sec = 0, .tv_nsec = 10'000'000};
        nanosleep(&pause, nullptr);
    }
    kill(-pid, SIGKILL);
    waitpid(pid, &status, 0);
    return status;
}

void make_pipe(Fd& read_end, Fd& write_end) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) throw Failure(fmt::format("pipe: {}", strerror(errno)));
    read_end = Fd(fds[0]);
    write_end = Fd(fds[1]);
}

}  // namespace

LaunchOptions launch_options(const std::string& word) {
    LaunchOptions options;
    if (word.empty() || word == "enable" || word == "auto") return options;
    if (word == "disable") {
        options.kind = LaunchKind::kDisabled;
    } else if (word == "ssh") {
        options.kind = LaunchKind::kSsh;
    } else if (word.rfind("exec:", 0) == 0 && word.size() > 5) {
        options.kind = LaunchKind::kCommand;
        options.command = word.substr(5);
    } else {
        throw Failure(fmt::format(
            "--launch_server: expected enable, disable, ssh or exec:COMMAND, found '{}'", word));
    }
    return options;
}

bool is_this_host(const std::string& host) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
    bool local = false;
    for (addrinfo* each = found; each != nullptr && !local; each = each->ai_next) {
        Fd fd(socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        // Only addresses of this machine can be bound.
        local = fd.is_open() && bind(fd.value(), each->ai_addr, each->ai_addrlen) == 0;
    }
    freeaddrinfo(found);
    return local;
}

std::vector<std::string> launch_words(const LaunchOptions& options, bool is_local) {
    if (options.kind == LaunchKind::kAutomatic && is_local) {
        if (!options.exe.empty())
            return {"/bin/sh", "-c", "exec " + server_line(options, options.exe)};
        return {"/bin/sh", "-c", "exec " + server_line(options, shell_quoted(own_file()))};
    }
    std::string exe =
        options.exe.empty() ? shell_quoted(own_command(options.program)) : options.exe;
    std::string line = server_line(options, exe);
    if (options.kind == LaunchKind::kCommand) {
        return {"/bin/sh", "-c", "exec " + options.command + " " + line};
    }
    const char* ssh = getenv(kSshVariable);
    std::string command = fmt::format(
        "exec {} -o BatchMode=yes -o ConnectTimeout=10 {}{} {}", ssh == nullptr ? "ssh" : ssh,
        options.user.empty() ? "" : "-l " + shell_quoted(options.user) + " ",
        shell_quoted(options.host), shell_quoted(line));
    return {"/bin/sh", "-c", command};
}

LaunchedServer LaunchedServer::start(const LaunchOptions& options) {
    bool local = options.user.empty() && is_this_host(options.host);
    std::vector<std::string> words = launch_words(options, local);
    Fd theirs_in, theirs_out;
    LaunchedServer server;
    make_pipe(theirs_in, server.input_);
    make_pipe(server.output_, theirs_out);
    fflush(nullptr);
    server.pid_ = fork();
    if (server.pid_ < 0) throw Failure(fmt::format("fork: {}", strerror(errno)));
    if (server.pid_ == 0) {
        setpgid(0, 0);  // Ctrl-C is for us; the server learns of it by the control channel
        Signals::restore();
        dup2(theirs_in.value(), STDIN_FILENO);
        dup2(theirs_out.value(), STDOUT_FILENO);
        dup2(theirs_out.value(), STDERR_FILENO);
        std::vector<char*> argv;
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        execvp(argv[0], argv.data());
        _exit(127);
    }
    theirs_out.close();
    fcntl(server.output_.value(), F_SETFL, O_NONBLOCK);
    server.wait_ready(words.back());
    return server;
}

void LaunchedServer::wait_ready(const std::string& command) {
    std::string output;
    std::int64_t deadline = monotonic_ns() + static_cast<std::int64_t>(kReadySeconds * 1e9);
    while (monotonic_ns() < deadline) {
        pollfd entry{.fd = output_.value(), .events = POLLIN, .revents = 0};
        if (poll(&entry, 1, 100) <= 0) continue;
        char bytes[4096];
        ssize_t count = read(output_.value(), bytes, sizeof bytes);
        if (count > 0) output.append(bytes, static_cast<std::size_t>(count));
        if (has_ready_line(output)) return;
        if (count == 0) {
            int status = end_of(std::exchange(pid_, 0));
            throw Failure(fmt::format(
                "while launching the server: '{}' ended with status {}; {}", command,
                WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), excerpt(output)));
        }
    }
    throw Failure(fmt::format("while launching the server: '{}' was not ready within {} s; {}",
                              command, kReadySeconds, excerpt(output)));
}

LaunchedServer::LaunchedServer(LaunchedServer&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)) {}

LaunchedServer::~LaunchedServer() {
    if (pid_ <= 0) return;
    constexpr int kPatience = 500;  // of 10 ms
    input_.close();
    for (int i = 0; i < kPatience; ++i) {
        if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
        timespec pause{.tv_sec = 0, .tv_nsec = 10'000'000};
        nanosleep(&pause, nullptr);
    }
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
}

}  // namespace rdmalab::perftest
