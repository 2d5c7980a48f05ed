#include "rdmalab/lab_keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rdmalab/failure.h"
#include "rdmalab/lab_folder.h"
#include "rdmalab/lab_host.h"

namespace rdmalab::launcher {
namespace {

constexpr int kReadyTimeoutMs = 120'000;

// The keeper's ends of a host's pipes.
struct HostPipes {
    Fd go, report;
    std::string said;
};

std::pair<Fd, Fd> make_pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        throw Failure(kExitFailed, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    return {Fd(ends[0]), Fd(ends[1])};
}

// As fork, into new namespaces.
pid_t fork_host() {
    constexpr unsigned long kFlags =
        CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | SIGCHLD;
    return static_cast<pid_t>(syscall(SYS_clone, kFlags, nullptr, nullptr, nullptr, nullptr));
}

// All descriptors beyond the standard ones but these: a host must not keep its keeper's pipes open.
void close_all_but(std::vector<int> kept) {
    std::sort(kept.begin(), kept.end());
    unsigned first = STDERR_FILENO + 1;
    for (const int fd : kept) {
        const auto next = static_cast<unsigned>(fd);
        if (next > first) syscall(SYS_close_range, first, next - 1, 0);
        first = next + 1;
    }
    syscall(SYS_close_range, first, ~0u, 0);
}

HostPipes start_host(const Lab& lab, LabHost& host, const Fd& lock) {
    auto [go_read, go_write] = make_pipe();
    auto [report_read, report_write] = make_pipe();
    const pid_t pid = fork_host();
    if (pid < 0)
        throw Failure(kExitFailed, fmt::format("cannot make the namespaces of {}: {}", host.name,
                                               std::strerror(errno)));
    if (pid == 0) {
        close_all_but({go_read.value(), report_write.value(), lock.value()});
        be_host({lab, host, std::move(go_read), std::move(report_write)});
    }
    host.init = identify_process(pid);
    return {std::move(go_write), std::move(report_read), {}};
}

// Until each has said "ready" and closed its pipe, or something else.
void await_hosts(const Lab& lab, std::vector<HostPipes>& pipes) {
    for (std::size_t i = 0; i < pipes.size(); ++i) {
        HostPipes& host = pipes[i];
        for (;;) {
            pollfd waited{host.report.value(), POLLIN, 0};
            const int events = poll(&waited, 1, kReadyTimeoutMs);
            if (events < 0 && errno == EINTR) continue;
            char buffer[1024];
            const ssize_t got = events > 0 ? read(host.report.value(), buffer, sizeof buffer) : -1;
            if (events == 0)
                throw Failure(kExitFailed, fmt::format("{} is not ready after {} s",
                                                       lab.hosts[i].name, kReadyTimeoutMs / 1000));
            if (got <= 0) break;
            host.said.append(buffer, static_cast<std::size_t>(got));
        }
        if (host.said == "ready") continue;
        throw Failure(kExitFailed,
                      fmt::format("{}: {}", lab.hosts[i].name,
                                  host.said.empty() ? "it died while starting" : host.said));
    }
}

void make_lab(Lab& lab, const Fd& lock) {
    if (unshare(CLONE_NEWNET) != 0)
        throw Failure(kExitFailed,
                      fmt::format("cannot make a network namespace: {}", std::strerror(errno)));
    const std::string hint = "a lab needs iproute2";
    run_tool({"ip", "-batch", "-"}, switch_commands(lab), hint);
    std::vector<HostPipes> pipes;
    for (LabHost& host : lab.hosts) pipes.push_back(start_host(lab, host, lock));
    run_tool({"ip", "-batch", "-"}, wire_commands(lab), hint);
    for (const HostPipes& host : pipes) {
        if (write(host.go.value(), "g", 1) != 1)
            throw Failure(kExitFailed, "a host died while starting");
    }
    await_hosts(lab, pipes);
}

void kill_hosts(const Lab& lab) {
    for (const LabHost& host : lab.hosts)
        if (is_alive(host.init)) kill(host.init.pid, SIGKILL);
    // The kernel is done with a host's processes when its pid 1 can be waited for.
    while (waitpid(-1, nullptr, 0) >= 0 || errno == EINTR) {
    }
}

void detach_from_terminal() {
    setsid();
    const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    const Fd log(open(lab_log().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    dup2(null.value(), STDIN_FILENO);
    dup2(log.value(), STDOUT_FILENO);
    dup2(log.value(), STDERR_FILENO);
}

// SIGTERM and the like are taken by `wait_for_end`; a host that dies is only a host that died.
Fd take_signals() {
    sigset_t taken;
    sigemptyset(&taken);
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&taken, number);
    sigprocmask(SIG_BLOCK, &taken, nullptr);
    signal(SIGPIPE, SIG_IGN);
    return Fd(signalfd(-1, &taken, SFD_CLOEXEC));
}

void wait_for_end(const Fd& signals) {
    for (;;) {
        signalfd_siginfo info{};
        if (read(signals.value(), &info, sizeof info) != sizeof info) continue;
        if (info.ssi_signo != SIGCHLD) return;
        while (waitpid(-1, nullptr, WNOHANG) > 0) {
        }
    }
}

}  // namespace

void keep_lab(Lab lab, Fd lock, Fd report) {
    detach_from_terminal();
    const Fd signals = take_signals();
    std::string said = "ready";
    try {
        lab.keeper = identify_process(getpid());
        make_lab(lab, lock);
        record_lab(lab);
    } catch (const std::exception& error) {
        said = error.what();
    }
    const bool was_heard =
        write(report.value(), said.data(), said.size()) == static_cast<ssize_t>(said.size());
    report.close();
    if (said == "ready" && was_heard) wait_for_end(signals);
    kill_hosts(lab);
    remove_lab_folder();
    lock.close();
    _exit(0);
}

}  // namespace rdmalab::launcher
