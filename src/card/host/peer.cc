#include "card/host/peer.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>

namespace rdmalab::card::host {
namespace {

constexpr int kSoPeerPidfd = 77;  // SO_PEERPIDFD, Linux 6.5; not in the headers of Debian 12

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::string link_target(const std::string& path) {
    char target[256];
    const ssize_t length = ::readlink(path.c_str(), target, sizeof target);
    return length < 0 ? "" : std::string(target, static_cast<std::size_t>(length));
}

// Why process_vm_readv said EPERM (ptrace(2), "Ptrace access mode checking").
std::string reason_for_refusal(pid_t pid) {
    const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
    if (!scope.empty() && scope != "0") {
        return fmt::format("/proc/sys/kernel/yama/ptrace_scope: expected 0, found {}", scope);
    }
    struct stat facts {};
    if (::stat(fmt::format("/proc/{}/mem", pid).c_str(), &facts) == 0 && facts.st_uid == 0 &&
        ::geteuid() != 0) {
        return "the program is not dumpable (it is set-uid, or it called prctl(PR_SET_DUMPABLE, "
               "0))";
    }
    const std::string ours = link_target("/proc/self/ns/user");
    const std::string theirs = link_target(fmt::format("/proc/{}/ns/user", pid));
    if (!theirs.empty() && ours != theirs) {
        return fmt::format("user namespace: expected {} or one below it, found {}", ours, theirs);
    }
    return "the card lacks CAP_SYS_PTRACE, or runs in another container";
}

}  // namespace

Result<Peer> identify_peer(int socket) {
    ucred credentials{};
    socklen_t length = sizeof credentials;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
        return system_error("cannot find out who connects");
    }
    Peer peer{credentials.pid, credentials.uid, UniqueFd()};
    int pidfd = -1;
    length = sizeof pidfd;
    if (::getsockopt(socket, SOL_SOCKET, kSoPeerPidfd, &pidfd, &length) != 0) {
        pidfd = static_cast<int>(::syscall(SYS_pidfd_open, credentials.pid, 0));
    }
    peer.pidfd.reset(pidfd);
    return peer;
}

Status probe_memory(pid_t pid, std::uint64_t address, std::uint64_t value) {
    std::uint64_t found = 0;
    const iovec local{&found, sizeof found};
    const iovec remote{reinterpret_cast<void*>(address), sizeof found};
    const ssize_t length = ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (length == static_cast<ssize_t>(sizeof found) && found == value) return {};
    std::string reason;
    if (length >= 0) {
        reason = "another process was found under this id (is the program in another container?)";
    } else if (errno == EPERM) {
        reason = reason_for_refusal(pid);
    } else {
        reason = system_error("process_vm_readv").text;
    }
    return Error{EPERM,
                 fmt::format("the card cannot reach the memory of process {}: {}", pid, reason)};
}

bool may_use_raw_packets(pid_t pid) {
    constexpr unsigned kCapNetRaw = 13;  // linux/capability.h
    constexpr std::string_view kName = "CapEff:";
    std::ifstream status(fmt::format("/proc/{}/status", pid));
    for (std::string line; std::getline(status, line);) {
        if (line.compare(0, kName.size(), kName) != 0) continue;
        return (std::strtoull(line.c_str() + kName.size(), nullptr, 16) >> kCapNetRaw & 1) != 0;
    }
    return false;
}

std::string command_of(pid_t pid) { return first_line(fmt::format("/proc/{}/comm", pid)); }

}  // namespace rdmalab::card::host
