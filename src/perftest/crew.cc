#include "perftest/crew.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "perftest/failure.h"

namespace rdmalab::perftest {

namespace {

// A worker waits for its main process, which watches everybody else; the limit is for the case that
// main itself hangs.
constexpr double kMainSeconds = 120;

[[noreturn]] void run_worker(std::uint32_t index, const Work& work, Channel main, Board& board) {
    int status = kExitError;
    try {
        work(index, main, board);
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

Json await(Channel& main, MessageType type) {
    Result<Message> message = main.receive(kMainSeconds);
    if (!message.ok()) throw Failure("the main process: " + message.error().text);
    if (message->type != type) {
        throw Failure(fmt::format("expected '{}' from the main process, found '{}'", name_of(type),
                                  name_of(message->type)));
    }
    return std::move(message->body);
}

Crew::Crew(std::uint32_t count, const Work& work) : board_(count) {
    for (std::uint32_t i = 0; i < count; ++i) {
        members_.push_back(fork_child([&](Channel main) {
            members_.clear();
            run_worker(i, work, std::move(main), board_);
        }));
    }
}

Crew::~Crew() {
    for (Child& member : members_) {
        if (member.pid > 0) kill(member.pid, SIGKILL);
    }
    for (Child& member : members_) {
        if (member.pid > 0) waitpid(member.pid, nullptr, 0);
    }
}

void Crew::finish() {
    constexpr std::int64_t kPatienceNs = 3'000'000'000;
    send_all(MessageType::kBye, Json::object());
    std::int64_t deadline = monotonic_ns() + kPatienceNs;
    for (Child& member : members_) {
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
