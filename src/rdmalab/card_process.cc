#include "rdmalab/card_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cctype>
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
    for (const std::string& netdev : options.uplinks) {
        arguments.insert(arguments.end(), {"--uplink", netdev});
    }
    if (options.seed) arguments.insert(arguments.end(), {"--seed", std::to_string(*options.seed)});
    arguments.insert(arguments.end(), {"--ready-fd", std::to_string(ready), "--log",
                                       card_files(options.name).log.string()});
    if (options.realtime) arguments.push_back("--realtime");
    if (options.computed_icrc) arguments.push_back("--computed-icrc");
    if (options.netns) {
        arguments.insert(arguments.end(), {"--netns", "--libraries", library_folder().string()});
    }
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

void make_runtime_folder() {
    std::filesystem::path folder = runtime_folder();
    if (mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return;
    throw Failure(kExitFailed,
                  fmt::format("cannot make the runtime folder {}: {}; RDMALAB_RUNTIME_DIR may name "
                              "another",
                              folder.string(), std::strerror(errno)));
}

// The card's log, which also takes what a card prints when it crashes. Remembers where this start
// began, so that a failed one can be told from what was there before.
class CardLog {
public:
    explicit CardLog(const std::string& name) : path_(card_files(name).log) {
        constexpr int kFlags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC;
        file_ = Fd(open(path_.c_str(), kFlags | O_EXCL, 0600));
        is_new_ = file_.is_open();
        if (!is_new_) file_ = Fd(open(path_.c_str(), kFlags, 0600));
        if (!file_.is_open()) {
            throw Failure(kExitFailed, fmt::format("cannot write the card's log {}: {}",
                                                   path_.string(), std::strerror(errno)));
        }
        begin_ = lseek(file_.value(), 0, SEEK_END);
    }
    int descriptor() const { return file_.value(); }

    // What the card printed since, without the lines that it logged (they begin with the date) and
    // without its name in front.
    std::string messages() const {
        std::string text = read_from_begin();
        std::string kept;
        std::size_t start = 0;
        while (start < text.size()) {
            std::size_t end = std::min(text.find('\n', start), text.size());
            std::string line = text.substr(start, end - start);
            start = end + 1;
            constexpr std::string_view kProgram = "rdmalab-card: ";
            if (line.size() > 4 && std::isdigit(line[0]) && line[4] == '-') continue;
            if (line.starts_with(kProgram)) line.erase(0, kProgram.size());
            kept += (kept.empty() ? "" : "\n") + line;
        }
        return kept;
    }
    void forget() {
        std::error_code ignored;
        if (is_new_) std::filesystem::remove(path_, ignored);
    }

private:
    std::string read_from_begin() const {
        std::string text;
        char buffer[4096];
        for (;;) {
            off_t offset = begin_ + static_cast<off_t>(text.size());
            ssize_t got = pread(file_.value(), buffer, sizeof buffer, offset);
            if (got <= 0) return text;
            text.append(buffer, static_cast<std::size_t>(got));
        }
    }

    std::filesystem::path path_;
    Fd file_;
    bool is_new_ = false;
    off_t begin_ = 0;
};

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
                             CardLog& log) {
    if (!ready) kill(pid, SIGKILL);
    int status = reap(pid);
    std::string messages = log.messages();
    std::string text = messages;
    if (ready) log.forget();
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

// The card's own program does it: it wrote the record and knows what is in it.
void remove_stale_namespaces(const std::string& name) {
    std::string program = card_program();
    std::string name_option = name;
    char clean_up[] = "--clean-up", name_flag[] = "--name";
    char* arguments[] = {program.data(), clean_up, name_flag, name_option.data(), nullptr};
    pid_t child = fork();
    if (child == 0) {
        execv(arguments[0], arguments);
        _exit(kExitCannotExecute);
    }
    if (child < 0 || reap(child) != 0) {
        throw Failure(kExitFailed,
                      fmt::format("the network namespaces that the card '{}' left behind could not "
                                  "be removed",
                                  name));
    }
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
    make_runtime_folder();
    CardLog log(options.name);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        throw Failure(kExitFailed, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    }
    Fd read_end(ends[0]);
    Fd write_end(ends[1]);
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
        become_card(pointers, life, log.descriptor(), null_device.value(), launcher);
    }
    write_end.close();
    std::optional<bool> ready = wait_ready(read_end.value());
    if (ready != std::optional(true)) fail_start(options, pid, ready, log);
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
    // A card that starts at this moment holds the lock; its files are not stale.
    Fd lock(open(files.lock.c_str(), O_RDWR | O_CLOEXEC));
    if (lock.is_open() && flock(lock.value(), LOCK_EX | LOCK_NB) != 0) return false;
    bool found = false;
    if (std::filesystem::exists(files.namespaces)) {
        lock.close();
        remove_stale_namespaces(name);
        found = true;
    }
    for (const std::filesystem::path& file : {files.socket, files.log, files.lock}) {
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
