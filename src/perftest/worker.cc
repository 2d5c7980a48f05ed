#include "perftest/worker.h"

#include <errno.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "perftest/failure.h"
#include "perftest/runner.h"

namespace rdmalab::perftest {

namespace {

// A worker waits for its main process, which watches everybody else; the limit is for the case that
// main itself hangs.
constexpr double kMainSeconds = 120;

struct Task {
    const Plan& plan;
    const Side& side;
    bool is_server;
    std::uint32_t index;
    std::optional<int> core;
};

Json await(Channel& main, MessageType type) {
    Result<Message> message = main.receive(kMainSeconds);
    if (!message.ok()) throw Failure("the main process: " + message.error().text);
    if (message->type != type) {
        throw Failure(fmt::format("expected '{}' from the main process, found '{}'", name_of(type),
                                  name_of(message->type)));
    }
    return std::move(message->body);
}

void work(const Task& task, Channel& main, Board& board) {
    if (task.core) pin_to(*task.core);
    Roles roles = roles_of(task.plan, task.is_server);
    Endpoint endpoint(task.plan, task.side, roles, task.core);
    if (!task.is_server) {
        endpoint.choose_gid(Json());
        main.send(MessageType::kResources, endpoint.describe());
    }
    Json peer = await(main, MessageType::kResources);
    if (task.is_server) endpoint.choose_gid(peer);
    endpoint.connect(peer, task.is_server);
    Runner runner(endpoint, roles, board.head(), board.line(task.index));
    runner.prime();
    Json self = task.is_server ? endpoint.describe() : Json{{"mtu", endpoint.mtu()}};
    main.send(task.is_server ? MessageType::kResources : MessageType::kConnected, self);
    Json start = await(main, MessageType::kStart);
    bool begins = !task.is_server || task.plan.bidirectional;
    if (begins) {
        runner.run(start.at("at").get<std::int64_t>());
        main.send(MessageType::kDrained, {{"posted", runner.result().posted}});
    }
    if (task.is_server || task.plan.bidirectional) runner.respond();
    ProcessResult result = runner.result();
    result.is_requester = begins;
    result.process = task.index;
    result.core = task.core;
    main.send(MessageType::kResults, result.to_json());
    // Queue pairs stay until both sides are done.
    await(main, MessageType::kBye);
}

[[noreturn]] void run_worker(const Task& task, Channel main, Board& board) {
    int status = kExitError;
    try {
        work(task, main, board);
        status = kExitOk;
    } catch (const Json::exception& error) {
        main.send(MessageType::kFail,
                  {{"text", fmt::format("what the peer said cannot be read: {}", error.what())}});
    } catch (const std::exception& error) {
        main.send(MessageType::kFail, {{"text", error.what()}});
    }
    fflush(nullptr);
    _exit(status);
}

}  // namespace

Roles roles_of(const Plan& plan, bool is_server) {
    if (plan.bidirectional || plan.is_ping_pong()) return {true, true};
    return {!is_server, is_server};
}

Crew::Crew(const Plan& plan, const Side& side, bool is_server, const Placement& placement)
    : board_(plan.processes) {
    fflush(nullptr);  // or every worker prints it again
    pid_t parent = getpid();
    for (std::uint32_t i = 0; i < plan.processes; ++i) {
        auto [ours, theirs] = channel_pair();
        pid_t pid = fork();
        if (pid < 0) throw Failure(fmt::format("fork: {}", strerror(errno)));
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) _exit(kExitError);
            members_.clear();
            ours = Channel(Fd());
            run_worker({plan, side, is_server, i, placement.cores[i]}, std::move(theirs), board_);
        }
        members_.push_back({pid, std::move(ours)});
    }
}

Crew::~Crew() {
    for (Member& member : members_) {
        if (member.pid > 0) kill(member.pid, SIGKILL);
    }
    for (Member& member : members_) {
        if (member.pid > 0) waitpid(member.pid, nullptr, 0);
    }
}

void Crew::finish() {
    constexpr std::int64_t kPatienceNs = 3'000'000'000;
    send_all(MessageType::kBye, Json::object());
    std::int64_t deadline = monotonic_ns() + kPatienceNs;
    for (Member& member : members_) {
        while (member.pid > 0 && monotonic_ns() < deadline) {
            if (waitpid(member.pid, nullptr, WNOHANG) != 0) {
                member.pid = 0;
                break;
            }
            timespec pause{.tv_sec = 0, .tv_nsec = 2'000'000};
            nanosleep(&pause, nullptr);
        }
    }
}

void Crew::send(std::size_t index, MessageType type, const Json& body) {
    members_[index].channel.send(type, body);
}

void Crew::send_all(MessageType type, const Json& body) {
    for (std::size_t i = 0; i < members_.size(); ++i) send(i, type, body);
}

std::string Crew::death_of(std::size_t index) {
    int status = 0;
    pid_t pid = members_[index].pid;
    if (waitpid(pid, &status, 0) != pid) return "is gone";
    members_[index].pid = 0;
    if (WIFSIGNALED(status)) return fmt::format("was killed by signal {}", WTERMSIG(status));
    return fmt::format("ended with status {}", WEXITSTATUS(status));
}

std::uint64_t Crew::iterations() {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < members_.size(); ++i) sum += board_.line(i).iterations.load();
    return sum;
}

}  // namespace rdmalab::perftest
