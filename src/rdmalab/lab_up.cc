#include "rdmalab/lab_up.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "rdmalab/failure.h"
#include "rdmalab/lab_entry.h"
#include "rdmalab/lab_folder.h"
#include "rdmalab/lab_keeper.h"
#include "rdmalab/runtime_folder.h"

namespace rdmalab::launcher {
namespace {

namespace fs = std::filesystem;

constexpr int kOrderlyGraceMs = 20'000;
constexpr int kIdlePauseMs = 10;
constexpr int kIdleTries = 500;

// A cache of the dynamic linker (ld.so(8)) in which the drop-in libraries come first: programs of
// the hosts find them without any environment.
void write_linker_cache() {
    std::ifstream settings("/etc/ld.so.conf");
    const std::string rest{std::istreambuf_iterator<char>(settings), {}};
    write_lab_file("ld.so.conf", library_folder().string() + "\n" + rest);
    run_tool({"/sbin/ldconfig", "-X", "-f", lab_folder() / "ld.so.conf", "-C",
              lab_folder() / "ld.so.cache"});
}

void write_keys() {
    for (const char* name : {"key", "host_key"}) {
        run_tool({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rdmalab", "-f",
                  lab_folder() / name},
                 {}, "a lab needs openssh-client, or --no-ssh");
    }
}

// sshd lets nobody in whose account is locked, as root's is on many machines. "*" only means that
// no password fits.
void write_shadow() {
    std::ifstream file("/etc/shadow");
    std::string text, line;
    bool is_locked = false;
    while (std::getline(file, line)) {
        if (line.starts_with("root:!")) {
            is_locked = true;
            line = "root:*" + line.substr(std::min(line.find(':', 5), line.size()));
        }
        text += line + "\n";
    }
    if (is_locked) write_lab_file("shadow", text, 0600);
}

void write_files(const Lab& lab) {
    write_lab_file("hosts", hosts_file(lab));
    if (lab.has_cards) write_linker_cache();
    if (!lab.has_ssh) return;
    if (access("/usr/sbin/sshd", X_OK) != 0)
        throw Failure(kExitFailed,
                      "cannot run /usr/sbin/sshd; a lab needs openssh-server, or "
                      "--no-ssh");
    write_keys();
    write_shadow();
    write_lab_file("sshd_config", sshd_config(path_with_own_folder(nullptr)), 0600);
    fs::create_directory(lab_folder() / "ssh_config.d");
    write_lab_file("ssh_config.d/lab.conf", ssh_config());
}

std::string read_to_end(const Fd& pipe) {
    std::string text;
    char buffer[1024];
    for (;;) {
        const ssize_t got = read(pipe.value(), buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return text;
        text.append(buffer, static_cast<std::size_t>(got));
    }
}

// The keeper is a grandchild, so that nobody has to wait for it.
std::string start_keeper(const Lab& lab, Fd lock) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw Failure(kExitFailed, "cannot make a pipe");
    Fd in(ends[0]), out(ends[1]);
    const pid_t child = fork();
    if (child < 0)
        throw Failure(kExitFailed, fmt::format("cannot start a process: {}", std::strerror(errno)));
    if (child == 0) {
        in.close();
        if (fork() == 0) keep_lab(lab, std::move(lock), std::move(out));
        _exit(0);
    }
    out.close();
    lock.close();
    waitpid(child, nullptr, 0);
    return read_to_end(in);
}

// The last process of a lab lets go of the lock.
bool await_idle() {
    for (int i = 0; i < kIdleTries; ++i) {
        if (is_lab_folder_idle()) return true;
        pause_ms(kIdlePauseMs);
    }
    return false;
}

}  // namespace

void bring_up_lab(const Lab& lab) {
    if (geteuid() != 0) throw Failure(kExitFailed, "a lab needs root");
    Fd lock = claim_lab_folder();
    try {
        write_files(lab);
    } catch (...) {
        remove_lab_folder();
        throw;
    }
    const std::string said = start_keeper(lab, std::move(lock));
    if (said == "ready") return;
    await_idle();
    throw Failure(kExitFailed, said.empty() ? "the lab's keeper died while starting" : said);
}

void join_lab(const Lab& lab) {
    const pid_t self = getpid();
    ask_in_switch(lab, [&lab, self] {
        std::string commands;
        for (unsigned rail = 0; rail < lab.rails; ++rail) {
            commands += fmt::format(
                "link add guest{0} mtu {1} type veth peer name {2}{0} mtu {1} netns {3}\n"
                "link set guest{0} master {4} up\n",
                rail, lab.mtu, kLabGuestInterface, self, lab_switch(rail));
        }
        return run_tool({"ip", "-batch", "-"}, commands);
    });
    std::string commands;
    for (unsigned rail = 0; rail < lab.rails; ++rail) {
        commands += fmt::format("address add {0}/24 dev {1}{2}\nlink set {1}{2} up\n",
                                lab_guest_address(rail), kLabGuestInterface, rail);
    }
    run_tool({"ip", "-batch", "-"}, commands);
}

bool take_down_lab() {
    const auto lab = find_lab();
    if (!lab) {
        if (!await_idle()) throw Failure(kExitFailed, "a lab is coming up; try again");
        remove_lab_folder();
        return false;
    }
    const Fd keeper(static_cast<int>(syscall(SYS_pidfd_open, lab->keeper.pid, 0)));
    if (kill(lab->keeper.pid, SIGTERM) != 0)
        throw Failure(kExitFailed, fmt::format("cannot end the lab (pid {}): {}", lab->keeper.pid,
                                               std::strerror(errno)));
    pollfd waited{keeper.value(), POLLIN, 0};
    if (keeper.is_open() && poll(&waited, 1, kOrderlyGraceMs) == 0) kill(lab->keeper.pid, SIGKILL);
    if (!await_idle()) throw Failure(kExitFailed, "hosts of the lab cannot be killed");
    remove_lab_folder();
    return true;
}

}  // namespace rdmalab::launcher
