#include "rdmalab/lab_entry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "rdmalab/child.h"
#include "rdmalab/failure.h"
#include "rdmalab/fd.h"
#include "rdmalab/runtime_folder.h"

namespace rdmalab::launcher {
namespace {

// A descriptor of the process, and not of a later one with its number.
Fd open_process(const ProcessIdentity& process) {
    Fd fd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
    if (!fd.is_open() || !is_alive(process)) return {};
    return fd;
}

void enter(const Fd& process, int namespaces) {
    if (setns(process.value(), namespaces) == 0) return;
    const std::string reason = std::strerror(errno);
    throw Failure(kExitFailed, fmt::format("cannot enter the lab: {}{}", reason,
                                           errno == EPERM ? " (a lab needs root)" : ""));
}

[[noreturn]] void become(const std::vector<std::string>& command) {
    std::vector<std::string> copies = command;
    std::vector<char*> pointers;
    for (std::string& word : copies) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    execvp(pointers[0], pointers.data());
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    fmt::print(stderr, "rdmalab lab exec: cannot run '{}': {}\n", command[0], std::strerror(errno));
    std::fflush(nullptr);
    _exit(missing ? kExitNotFound : kExitCannotExecute);
}

void set_environment() {
    for (const char* name :
         {"RDMALAB_RUNTIME_DIR", "RDMALAB_SOCKET", "RDMALAB_CARD", "XDG_RUNTIME_DIR"})
        unsetenv(name);
    setenv("PATH", path_with_own_folder(std::getenv("PATH")).c_str(), 1);
}

}  // namespace

std::string path_with_own_folder(const char* inherited) {
    const std::string own = own_folder().string();
    const std::string path = inherited != nullptr && *inherited != 0
                                 ? inherited
                                 : "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    if ((":" + path + ":").find(":" + own + ":") != std::string::npos) return path;
    return path + ":" + own;
}

int run_in_host(const LabHost& host, const std::vector<std::string>& command) {
    const Fd process = open_process(host.init);
    if (!process.is_open())
        throw Failure(kExitFailed, fmt::format("{} has crashed; 'rdmalab lab status' shows who "
                                               "lives",
                                               host.name));
    std::error_code unreadable;
    const auto folder = std::filesystem::current_path(unreadable);
    set_environment();
    enter(process, CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC);
    if (unreadable || chdir(folder.c_str()) != 0) {
        if (chdir("/") != 0) throw Failure(kExitFailed, "cannot go to / of the host");
    }
    StopSignals signals;
    const pid_t child = fork();
    if (child < 0)
        throw Failure(kExitFailed, fmt::format("cannot start a process: {}", std::strerror(errno)));
    if (child > 0) return stay_until_end(child, signals);
    StopSignals::restore();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    become(command);
}

std::string ask_in_switch(const Lab& lab, const std::function<std::string()>& work) {
    const Fd process = open_process(lab.keeper);
    if (!process.is_open()) throw Failure(kExitFailed, "the lab has just gone down");
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw Failure(kExitFailed, "cannot make a pipe");
    Fd in(ends[0]), out(ends[1]);
    const pid_t child = fork();
    if (child == 0) {
        int code = 0;
        std::string text;
        try {
            enter(process, CLONE_NEWNET);
            text = work();
        } catch (const Failure& failure) {
            text = failure.what();
            code = failure.exit_status();
        }
        for (std::size_t sent = 0; sent < text.size();) {
            const ssize_t wrote = write(out.value(), text.data() + sent, text.size() - sent);
            if (wrote <= 0) break;
            sent += static_cast<std::size_t>(wrote);
        }
        _exit(code);
    }
    out.close();
    std::string text;
    char buffer[4096];
    ssize_t got = 0;
    while ((got = read(in.value(), buffer, sizeof buffer)) > 0)
        text.append(buffer, static_cast<std::size_t>(got));
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw Failure(kExitFailed, text);
    return text;
}

}  // namespace rdmalab::launcher
