#include "rdmalab/card_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "rdmalab/card_client.h"
#include "rdmalab/failure.h"
#include "rdmalab/runtime_folder.h"
#include "rdmalab/signals.h"

namespace rdmalab::launcher {

namespace {

constexpr int kReadyTimeoutMs = 20'000;
constexpr int kOrderlyGraceMs = 3'000;
constexpr int kTerminateGraceMs = 2'000;
constexpr int kKillGraceMs = 2'000;

std::vector<std::string> card_arguments(const CardOptions& options, int ready) {
    std::vector<std::string> arguments = {card_program(), "--name", options.name};
    if (!options.topology.empty()) {
        arguments.insert(arguments.end(), {"--topology", options.topology});
    }
    if (options.seed) arguments.insert(arguments.end(), {"--seed", std::to_string(*options.seed)});
    arguments.insert(arguments.end(), {"--ready-fd", std::to_string(ready), "--log",
                                       card_files(options.name).log.string()});
    if (options.realtime) arguments.push_back("--realtime");
    if (options.computed_icrc) arguments.push_back("--computed-icrc");
    return arguments;
}

// In the child, between fork and exec: only calls that are safe there.
[[noreturn]] void become_card(std::vector<char*>& arguments, CardLife life, int messages,
                              int null_device, pid_t launcher) {
    StopSignals::restore();
    if (life == CardLife::kForeground) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
    } else {
        setsid();
        if (life == CardLife::kEmbedded) prctl(PR_SET_PDEATHSIG, SIGTERM);
        dup2(null_device, STDIN_FILENO);
        dup2(messages, STDOUT_FILENO);
        dup2(messages, STDERR_FILENO);
    }
    // The launcher may have died before prctl took effect.
    if (life != CardLife::kDetached && getppid() != launcher) _exit(kExitFailed);
    execv(arguments[0], arguments.data());
    constexpr char kText[] = "cannot execute the card program\n";
    [[maybe_unused]] ssize_t written = write(STDERR_FILENO, kText, sizeof kText - 1);
    _exit(kExitCannotExecute);
}

std::string read_all(int descriptor) {
    std::string text;
    char buffer[4096];
    off_t offset = 0;
    for (;;) {
        ssize_t got = pread(descriptor, buffer, sizeof buffer, offset);
        if (got <= 0) break;
        text.append(buffer, static_cast<std::size_t>(got));
        offset += got;
    }
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

// True when the card wrote to the pipe, false when it closed it, nothing when it did neither.
std::optional<bool> wait_ready(int pipe_end) {
    pollfd waited{pipe_end, POLLIN, 0};
    int events = 0;
    do {
        events = poll(&waited, 1, kReadyTimeoutMs);
    } while (events < 0 && errno == EINTR);
    if (events <= 0) return std::nullopt;
    char buffer[16];
    return read(pipe_end, buffer, sizeof buffer) > 0;
}

int reap(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

[[noreturn]] void fail_start(const CardOptions& options, pid_t pid, std::optional<bool> ready,
                             const std::string& messages) {
    if (!ready) kill(pid, SIGKILL);
    int status = reap(pid);
    std::string text = messages;
    if (!ready) {
        text = fmt::format("the card '{}' is not ready after {} s; its log is {}", options.name,
                           kReadyTimeoutMs / 1000, card_files(options.name).log.string());
    } else if (WIFSIGNALED(status)) {
        text = fmt::format("the card '{}' died from signal {} ({}) while starting{}{}",
                           options.name, WTERMSIG(status), strsignal(WTERMSIG(status)),
                           messages.empty() ? "" : ":\n", messages);
    } else if (messages.empty()) {
        text = fmt::format("the card '{}' ended with status {} while starting", options.name,
                           WEXITSTATUS(status));
    }
    bool bad_input = ready && WIFEXITED(status) && WEXITSTATUS(status) == kExitBadInput;
    throw Failure(bad_input ? kExitBadInput : kExitFailed, text);
}

int open_pidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

bool gone_within(const Fd& pidfd, int milliseconds) {
    pollfd waited{pidfd.value(), POLLIN, 0};
    int events = 0;
    do {
        events = poll(&waited, 1, milliseconds);
    } while (events < 0 && errno == EINTR);
    return events > 0;
}

void signal_through(const Fd& pidfd, int number) {
    syscall(SYS_pidfd_send_signal, pidfd.value(), number, nullptr, 0);
}

void ask_to_shut_down(CardClient& client) {
    try {
        client.admin({{"op", "shutdown"}});
    } catch (const Failure&) {
        // A card that cannot answer is stopped by signals next.
    }
}

}  // namespace

pid_t start_card(const CardOptions& options, CardLife life) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        throw Failure(kExitFailed, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    }
    Fd read_end(ends[0]);
    Fd write_end(ends[1]);
    Fd messages(memfd_create("rdmalab-card-messages", MFD_CLOEXEC));
    Fd null_device(open("/dev/null", O_RDWR | O_CLOEXEC));
    std::vector<std::string> arguments = card_arguments(options, write_end.value());
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);

    pid_t launcher = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        throw Failure(kExitFailed, fmt::format("cannot start the card: {}", std::strerror(errno)));
    }
    if (pid == 0) {
        fcntl(write_end.value(), F_SETFD, 0);
        become_card(pointers, life, messages.value(), null_device.value(), launcher);
    }
    write_end.close();
    std::optional<bool> ready = wait_ready(read_end.value());
    if (ready != std::optional(true)) fail_start(options, pid, ready, read_all(messages.value()));
    return pid;
}

StopResult stop_card(const std::string& name, bool wait_as_parent) {
    std::optional<CardClient> client = CardClient::connect(name);
    if (!client) {
        remove_stale_files(name);
        return StopResult::kStopped;
    }
    pid_t pid = client->pid();
    Fd pidfd(open_pidfd(pid));
    if (!pidfd.is_open()) {
        throw Failure(kExitFailed, fmt::format("cannot watch the card '{}' (pid {}): {}", name, pid,
                                               std::strerror(errno)));
    }
    ask_to_shut_down(*client);
    StopResult result = StopResult::kStopped;
    if (!gone_within(pidfd, kOrderlyGraceMs)) {
        result = StopResult::kKilled;
        signal_through(pidfd, SIGTERM);
        if (!gone_within(pidfd, kTerminateGraceMs)) {
            signal_through(pidfd, SIGKILL);
            if (!gone_within(pidfd, kKillGraceMs)) {
                throw Failure(kExitFailed,
                              fmt::format("the card '{}' (pid {}) cannot be killed", name, pid));
            }
        }
    }
    if (wait_as_parent) reap(pid);
    remove_stale_files(name);
    return result;
}

bool remove_stale_files(const std::string& name) {
    CardFiles files = card_files(name);
    bool found = false;
    for (const std::filesystem::path& file : {files.socket, files.lock, files.log}) {
        std::error_code ignored;
        found = std::filesystem::remove(file, ignored) || found;
    }
    return found;
}

EmbeddedCard::EmbeddedCard(CardOptions options)
    : options_(std::move(options)), pid_(start_card(options_, CardLife::kEmbedded)) {}

EmbeddedCard::~EmbeddedCard() {
    try {
        stop_card(options_.name, true);
    } catch (const Failure&) {
        kill(pid_, SIGKILL);
        reap(pid_);
        remove_stale_files(options_.name);
    }
}

}  // namespace rdmalab::launcher
