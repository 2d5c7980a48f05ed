#include "perftest/cluster/backend_mpi.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "perftest/channel.h"
#include "perftest/cluster/agent.h"
#include "perftest/cluster/interfaces.h"
#include "perftest/cluster/relay.h"
#include "perftest/cluster/relay_abi.h"
#include "perftest/failure.h"
#include "perftest/scenario/ranges.h"
#include "perftest/session.h"

namespace rdmalab::perftest {

namespace {

constexpr char kAgentVariable[] = "RDMA_PERFTEST_RSH_AGENT";  // in place of ssh
constexpr std::int64_t kFarewellNs = 5'000'000'000;
constexpr std::int64_t kKillNs = 3'000'000'000;
constexpr double kClockSeconds = 30;
constexpr double kTimeoutSlackSeconds = 120;
constexpr std::size_t kSaidMax = 256u << 10;
constexpr std::size_t kShownLines = 8;

std::vector<std::string> words_of(const std::string& text) {
    std::vector<std::string> out;
    for (std::size_t at = 0; at < text.size();) {
        std::size_t blank = std::min(text.find(' ', at), text.size());
        if (blank > at) out.push_back(text.substr(at, blank - at));
        at = blank + 1;
    }
    return out;
}

void add_setting(std::vector<std::string>& words, const char* name, const std::string& value) {
    words.insert(words.end(), {"--mca", name, value});
}

// As every host needs it; throws Failure.
std::string write_hostfile(const std::vector<std::string>& hosts) {
    char path[] = "/tmp/rdma_perftest-hosts-XXXXXX";
    Fd fd(mkostemp(path, O_CLOEXEC));
    if (!fd.is_open()) throw Failure(fmt::format("cannot write {}: {}", path, strerror(errno)));
    std::string text = fmt::format("{}\n", fmt::join(hosts, "\n"));
    bool written = write(fd.value(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (!written) throw Failure(fmt::format("cannot write {}: {}", path, strerror(errno)));
    return path;
}

// A network that all hosts' names lead to, if they do.
std::string networks_for(const std::vector<std::string>& hosts) {
    std::vector<std::string> addresses;
    for (const std::string& host : hosts) {
        std::optional<std::string> address = address_of(host);
        if (!address) return "";
        addresses.push_back(*address);
    }
    return common_network(addresses, own_addresses()).value_or("");
}

void check_allocation(const std::vector<std::string>& hosts) {
    const char* job = getenv("SLURM_JOB_ID");
    const char* nodes = getenv("SLURM_JOB_NODELIST");
    if (job == nullptr || nodes == nullptr) return;
    std::vector<std::string> outside = outside_allocation(hosts, nodes);
    if (outside.empty()) return;
    throw Failure(fmt::format("not in the allocation of Slurm job {} ({}): {}", job, nodes,
                              fmt::join(outside, ", ")));
}

}  // namespace

std::vector<std::string> outside_allocation(const std::vector<std::string>& hosts,
                                            const std::string& nodelist) {
    Result<std::vector<std::string>> nodes = expand_ranges(nodelist);
    if (!nodes.ok()) return {};
    std::set<std::string> inside(nodes->begin(), nodes->end());
    std::vector<std::string> out;
    for (const std::string& host : hosts) {
        if (!inside.contains(host) && !inside.contains(host.substr(0, host.find('.')))) {
            out.push_back(host);
        }
    }
    return out;
}

// Each with its reason, found by trial: docs/perftest.md, "How mpirun is called".
std::vector<std::string> mpirun_words(const MpiOptions& options, const std::string& hostfile,
                                      std::size_t hosts, const std::string& interfaces) {
    std::vector<std::string> words = words_of(options.mpirun);
    words.insert(words.end(),
                 {"--allow-run-as-root", "--bind-to", "none", "--map-by", "seq", "--hostfile",
                  hostfile, "-np", std::to_string(hosts), "--wdir", "/"});
    add_setting(words, "mpi_yield_when_idle", "1");
    add_setting(words, "pml", "ob1");
    add_setting(words, "btl", "self,tcp");
    add_setting(words, "plm_rsh_no_tree_spawn", "1");
    const char* agent = getenv(kAgentVariable);
    if (agent != nullptr) {
        add_setting(words, "plm_rsh_agent", agent);
    } else {
        std::string user = options.user.empty() ? "" : " -l " + options.user;
        add_setting(words, "plm_rsh_args", "-o BatchMode=yes -o ConnectTimeout=5" + user);
    }
    add_setting(words, "oob_tcp_keepalive_time", "2");
    add_setting(words, "oob_tcp_keepalive_intvl", "1");
    add_setting(words, "oob_tcp_keepalive_probes", "3");
    if (!interfaces.empty()) {
        add_setting(words, "btl_tcp_if_include", interfaces);
        add_setting(words, "oob_tcp_if_include", interfaces);
    }
    if (options.seconds_max > 0) {
        auto seconds = static_cast<int>(options.seconds_max + kTimeoutSlackSeconds);
        words.insert(words.end(), {"--timeout", std::to_string(seconds)});
    }
    words.insert(words.end(), {options.program, kRelayFlag});
    return words;
}

std::string diagnosis(const std::string& output) {
    std::vector<std::string> lines;
    for (std::size_t at = 0; at < output.size();) {
        std::size_t end = std::min(output.find('\n', at), output.size());
        std::string line = output.substr(at, end - at);
        at = end + 1;
        std::size_t first = line.find_first_not_of(" \t\r"), last = line.find_last_not_of(" \t\r");
        if (first == std::string::npos) continue;
        line = line.substr(first, last - first + 1);
        bool rule = line.find_first_not_of("-*=") == std::string::npos;
        bool race = line.find("setpgid(") != std::string::npos;
        bool seen = std::find(lines.begin(), lines.end(), line) != lines.end();
        if (!rule && !race && !seen) lines.push_back(line);
    }
    // What SSH says names the host; mpirun's own texts are long and general.
    std::stable_partition(lines.begin(), lines.end(), [](const std::string& line) {
        for (const char* mark :
             {"ssh:", "rdma_perftest on", "Permission denied", "Host key", "Could not resolve",
              "on node", "on host", "Node:", "Executable:"}) {
            if (line.find(mark) != std::string::npos) return true;
        }
        return false;
    });
    if (lines.size() > kShownLines) lines.resize(kShownLines);
    return fmt::format("{}", fmt::join(lines, " | "));
}

void MpiBackend::start(const std::vector<std::string>& words) {
    int in[2], out[2], err[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) {
        throw Failure(fmt::format("pipe: {}", strerror(errno)));
    }
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    fflush(nullptr);
    pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0) throw Failure(fmt::format("fork: {}", strerror(errno)));
    if (pid_ == 0) {
        setpgid(0, 0);  // Ctrl-C is for us; we tell it what to do
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) _exit(127);
        Signals::restore();
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        execvp(argv[0], argv.data());
        fmt::print(stderr, "cannot run {}: {}\n", argv[0], strerror(errno));
        fflush(stderr);
        _exit(127);
    }
    for (int fd : {in[0], out[1], err[1]}) close(fd);
    input_ = Fd(in[1]);
    output_ = Fd(out[0]);
    errors_ = Fd(err[0]);
    for (const Fd* fd : {&input_, &output_, &errors_}) fcntl(fd->value(), F_SETFL, O_NONBLOCK);
}

void MpiBackend::launch(const std::vector<std::string>& hosts) {
    hosts_ = hosts;
    check_allocation(hosts);
    std::string interfaces =
        options_.interfaces.empty() ? networks_for(hosts) : options_.interfaces;
    hostfile_ = write_hostfile(hosts);
    decoder_.set_noise([this](std::string_view line) { said_ += std::string(line) + "\n"; });
    start(mpirun_words(options_, hostfile_, hosts.size(), interfaces));
}

MpiBackend::~MpiBackend() { end(); }

void MpiBackend::send(std::uint32_t agent, MessageType type, const Json& body) {
    if (type == MessageType::kBye) said_bye_ = true;
    queue_.add(encode(type, body, address_of_agent(agent)));
    queue_.flush(input_.value());
}

void MpiBackend::read_messages() {
    char bytes[65536];
    ssize_t count = read(output_.value(), bytes, sizeof bytes);
    if (count < 0) return;
    if (count == 0) return handle_end();
    decoder_.handle_bytes({bytes, static_cast<std::size_t>(count)});
    for (;;) {
        Result<std::optional<Message>> message = decoder_.poll_message();
        if (!message.ok()) throw Failure("the relay: " + message.error().text);
        if (!message->has_value()) return;
        std::uint32_t from = (*message)->address;
        std::uint32_t agent = from == kRelays ? kRelays : from - 1;
        if (agent != kRelays && agent >= hosts_.size()) {
            throw Failure("the relay: a message of a host that is not ours");
        }
        events_.push_back({BackendEvent::Kind::kMessage, agent, std::move(**message), ""});
    }
}

void MpiBackend::read_diagnosis() {
    char bytes[16384];
    ssize_t count = read(errors_.value(), bytes, sizeof bytes);
    if (count == 0) errors_.close();
    if (count <= 0 || said_.size() > kSaidMax) return;
    said_.append(bytes, static_cast<std::size_t>(count));
}

// mpirun has ended, and with it every agent.
void MpiBackend::handle_end() {
    output_.close();
    while (errors_.is_open()) {
        pollfd entry{.fd = errors_.value(), .events = POLLIN, .revents = 0};
        if (poll(&entry, 1, 1000) <= 0) break;
        read_diagnosis();
    }
    over_ = true;
    if (said_bye_) return;
    int status = 0;
    std::string how = "ended";
    if (pid_ > 0 && waitpid(pid_, &status, 0) == pid_) {
        how = WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                                  : fmt::format("ended with status {}", WEXITSTATUS(status));
        pid_ = 0;
    }
    std::string text = diagnosis(said_);
    BackendEvent& event = events_.emplace_back();
    event.kind = BackendEvent::Kind::kOver;
    event.text = fmt::format("mpirun {}{}", how, text.empty() ? "" : ": " + text);
}

void MpiBackend::pump(int timeout_ms, int wake_fd) {
    pollfd entries[] = {
        {.fd = output_.is_open() ? output_.value() : -1, .events = POLLIN, .revents = 0},
        {.fd = errors_.is_open() ? errors_.value() : -1, .events = POLLIN, .revents = 0},
        {.fd = queue_.empty() || !input_.is_open() ? -1 : input_.value(),
         .events = POLLOUT,
         .revents = 0},
        {.fd = wake_fd, .events = POLLIN, .revents = 0}};
    poll(entries, std::size(entries), timeout_ms);
    if (entries[1].revents != 0) read_diagnosis();
    if (entries[0].revents != 0) read_messages();
    if (entries[2].revents != 0 && !queue_.flush(input_.value())) input_.close();
}

std::optional<BackendEvent> MpiBackend::wait(int timeout_ms, int wake_fd) {
    if (events_.empty()) pump(timeout_ms, wake_fd);
    if (events_.empty()) return std::nullopt;
    BackendEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
}

Clocks MpiBackend::compare_clocks() {
    queue_.add(encode(MessageType::kClock, Json::object(), kRelays));
    queue_.flush(input_.value());
    std::int64_t deadline = monotonic_ns() + static_cast<std::int64_t>(kClockSeconds * 1e9);
    for (;;) {
        auto found = std::find_if(events_.begin(), events_.end(), [](const BackendEvent& event) {
            return event.agent == kRelays || event.kind == BackendEvent::Kind::kOver;
        });
        if (found == events_.end()) {
            if (monotonic_ns() > deadline) throw Failure("no answer while comparing clocks");
            pump(100, -1);
            continue;
        }
        if (found->kind == BackendEvent::Kind::kOver) {
            throw Failure(found->text + " while comparing clocks");
        }
        Clocks out;
        out.taken_ns = monotonic_ns();
        const Json& body = found->message.body;
        for (std::size_t i = 0; i < hosts_.size(); ++i) {
            out.hosts.push_back({body.at("offsets").at(i).get<std::int64_t>(),
                                 body.at("errors").at(i).get<std::int64_t>()});
        }
        out.reference_ns = body.at("referenceNs").get<std::int64_t>();
        events_.erase(found);
        return out;
    }
}

void MpiBackend::end() {
    if (!hostfile_.empty()) unlink(hostfile_.c_str());
    hostfile_.clear();
    if (pid_ <= 0) return;
    if (!said_bye_) kill(pid_, SIGTERM);
    // The first host ends by the end of its input.
    std::int64_t begun = monotonic_ns();
    bool told = !said_bye_;
    while (waitpid(pid_, nullptr, WNOHANG) == 0) {
        if (input_.is_open() && queue_.empty()) input_.close();
        std::int64_t waited = monotonic_ns() - begun;
        if (waited > kFarewellNs && !std::exchange(told, true)) kill(pid_, SIGTERM);
        if (waited > kFarewellNs + kKillNs) kill(pid_, SIGKILL);
        pump(20, -1);
        if (over_) {
            timespec pause{.tv_sec = 0, .tv_nsec = 5'000'000};
            nanosleep(&pause, nullptr);
        }
    }
    pid_ = 0;
}

}  // namespace rdmalab::perftest
