#include "rdmalab/lab_host.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "rdmalab/card_client.h"
#include "rdmalab/card_process.h"
#include "rdmalab/device_view.h"
#include "rdmalab/failure.h"
#include "rdmalab/lab_folder.h"
#include "rdmalab/runtime_folder.h"

namespace rdmalab::launcher {
namespace {

constexpr int kSshTries = 400;
constexpr int kSshPauseMs = 25;

[[noreturn]] void fail(const std::string& what) {
    throw Failure(kExitFailed, fmt::format("cannot {}: {}", what, std::strerror(errno)));
}

void mount_or_fail(const std::string& source, const std::string& target, const char* type,
                   unsigned long flags, const char* data = nullptr) {
    if (mount(source.c_str(), target.c_str(), type, flags, data) != 0) fail("mount " + target);
}

void make_folder(const char* path, mode_t mode) {
    if (mkdir(path, mode) != 0 && errno != EEXIST) fail(fmt::format("make {}", path));
}

bool exists(const char* path) { return access(path, F_OK) == 0; }

// A fresh /sys shows the interfaces of this host; what else is mounted there is kept.
void show_own_sysfs() {
    make_folder("/run/cgroup", 0755);
    const bool has_cgroup =
        mount("/sys/fs/cgroup", "/run/cgroup", nullptr, MS_BIND | MS_REC, nullptr) == 0;
    mount_or_fail("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NOEXEC | MS_NODEV);
    if (has_cgroup) mount("/run/cgroup", "/sys/fs/cgroup", nullptr, MS_MOVE, nullptr);
    rmdir("/run/cgroup");
}

void show_own_files() {
    const std::pair<const char*, const char*> kFiles[] = {
        {"/run/lab/hosts", "/etc/hosts"},
        {"/run/lab/ld.so.cache", "/etc/ld.so.cache"},
        {"/run/lab/shadow", "/etc/shadow"},
        {"/run/lab/ssh_config.d", "/etc/ssh/ssh_config.d"},
    };
    for (const auto& [source, target] : kFiles)
        if (exists(source) && exists(target)) mount_or_fail(source, target, nullptr, MS_BIND);
}

void mount_all() {
    const Fd shared(open(lab_folder().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!shared.is_open()) fail("open " + lab_folder().string());
    mount_or_fail("none", "/", nullptr, MS_REC | MS_PRIVATE);
    mount_or_fail("proc", "/proc", "proc", MS_NOSUID | MS_NOEXEC | MS_NODEV);
    mount_or_fail("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755");
    make_folder("/run/lab", 0755);
    mount_or_fail(fmt::format("/proc/self/fd/{}", shared.value()), "/run/lab", nullptr, MS_BIND);
    for (const char* folder : {"/run/lock", "/run/sshd"}) make_folder(folder, 0755);
    show_own_sysfs();
    for (const char* folder : {"/tmp", "/dev/shm"})
        mount_or_fail("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
    show_own_files();
}

// What the caller's environment says about cards does not hold here.
void clean_environment() {
    for (const char* name :
         {"RDMALAB_RUNTIME_DIR", "RDMALAB_SOCKET", "RDMALAB_CARD", "XDG_RUNTIME_DIR"})
        unsetenv(name);
}

// Daemons of the host: without the pipes to the keeper, with a log of their own.
void start_daemon(const std::vector<std::string>& words, const char* log) {
    std::vector<std::string> copies = words;
    std::vector<char*> pointers;
    for (std::string& word : copies) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const pid_t child = fork();
    if (child < 0) fail("start " + words[0]);
    if (child > 0) return;
    setsid();
    const int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execv(pointers[0], pointers.data());
    _exit(kExitCannotExecute);
}

void start_card_of_host(const Lab& lab) {
    CardOptions options;
    options.name = kDefaultCard;
    for (unsigned rail = 0; rail < lab.rails; ++rail)
        options.uplinks.push_back(lab_interface(rail));
    start_card(options, CardLife::kDetached);
    CardClient client = CardClient::connect_or_fail(kDefaultCard);
    // A machine that forbids these mounts leaves programs without device files, which few need.
    if (const Status shown = enter_device_view(device_view_of(client)); !shown)
        fmt::print(stderr, "no device files: {}\n", shown.error().text);
}

void await_ssh() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(22);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < kSshTries; ++i) {
        const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (connect(fd.value(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return;
        pause_ms(kSshPauseMs);
    }
    throw Failure(kExitFailed, "sshd does not listen; its log is /run/sshd.log of the host");
}

void set_up(const HostSetting& setting) {
    const LabHost& host = setting.host;
    if (sethostname(host.name.c_str(), host.name.size()) != 0) fail("set the host name");
    mount_all();
    clean_environment();
    if (chdir("/") != 0) fail("go to /");
    run_tool({"ip", "-batch", "-"}, host_commands(setting.lab, host));
    if (setting.lab.has_cards) start_card_of_host(setting.lab);
    // Behind the card, whose device files it shall see.
    if (!setting.lab.has_ssh) return;
    start_daemon({"/usr/sbin/sshd", "-D", "-e", "-f", "/run/lab/sshd_config"}, "/run/sshd.log");
    await_ssh();
}

void report(const Fd& pipe, const std::string& text) {
    [[maybe_unused]] const ssize_t written = write(pipe.value(), text.data(), text.size());
}

// All signals but the death of children are left to their default: a pid 1 is not hit by them.
[[noreturn]] void wait_for_the_dead() {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    for (;;) {
        if (wait(nullptr) >= 0) continue;
        if (errno == ECHILD) sleep(1);  // or until the next child is adopted and dies
    }
}

void ignore_child(int) {}

}  // namespace

void be_host(HostSetting setting) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, setting.host.name.c_str());
    char byte = 0;
    // Nothing comes when the keeper has died before the line above.
    if (read(setting.go.value(), &byte, 1) != 1) _exit(kExitFailed);
    struct sigaction wake {};
    wake.sa_handler = ignore_child;  // ends sleep()
    sigaction(SIGCHLD, &wake, nullptr);
    try {
        set_up(setting);
        report(setting.report, "ready");
    } catch (const std::exception& error) {
        report(setting.report, error.what());
        _exit(kExitFailed);
    }
    setting.go.close();
    setting.report.close();
    wait_for_the_dead();
}

}  // namespace rdmalab::launcher
