#include "perftest/cluster/backend_local.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "perftest/child.h"
#include "perftest/cluster/agent.h"
#include "perftest/failure.h"

namespace rdmalab::perftest {

namespace {

constexpr int kClockQuestions = 10;
constexpr double kClockSeconds = 10;
constexpr std::int64_t kFarewellNs = 5'000'000'000;

[[noreturn]] void be_agent(Channel uplink) {
    int status = kExitError;
    try {
        status = run_agent(std::move(uplink));
    } catch (const std::exception& error) {
        fmt::print(stderr, "an agent: {}\n", error.what());
    }
    fflush(nullptr);
    _exit(status);
}

}  // namespace

void LocalBackend::launch(const std::vector<std::string>& hosts) {
    for (const std::string& host : hosts) {
        Child child = fork_child([this](Channel uplink) {
            members_.clear();
            be_agent(std::move(uplink));
        });
        members_.push_back({host, child.pid, std::move(child.channel), {}, true});
    }
}

LocalBackend::~LocalBackend() { end(); }

void LocalBackend::end() {
    std::int64_t deadline = monotonic_ns() + kFarewellNs;
    for (Member& member : members_) {
        member.queue.flush(member.channel.descriptor());
        member.channel = Channel(Fd());  // the end of its lease
        member.is_open = false;
    }
    for (Member& member : members_) {
        while (member.pid > 0 && waitpid(member.pid, nullptr, WNOHANG) == 0) {
            if (monotonic_ns() > deadline) kill(member.pid, SIGKILL);
            timespec pause{.tv_sec = 0, .tv_nsec = 2'000'000};
            nanosleep(&pause, nullptr);
        }
        member.pid = 0;
    }
}

void LocalBackend::send(std::uint32_t agent, MessageType type, const Json& body) {
    members_[agent].queue.add(encode(type, body, kFrontEnd));
    members_[agent].queue.flush(members_[agent].channel.descriptor());
}

void LocalBackend::lose(std::uint32_t agent) {
    Member& member = members_[agent];
    member.is_open = false;
    int status = 0;
    std::string how = "is gone";
    if (member.pid > 0 && waitpid(member.pid, &status, 0) == member.pid) {
        how = WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                                  : fmt::format("ended with status {}", WEXITSTATUS(status));
        member.pid = 0;
    }
    BackendEvent& event = events_.emplace_back();
    event.kind = BackendEvent::Kind::kLost;
    event.agent = agent;
    event.text = fmt::format("the agent of {} {}", member.host, how);
}

void LocalBackend::read(std::uint32_t agent) {
    Member& member = members_[agent];
    bool open = member.channel.fill();
    for (;;) {
        Result<std::optional<Frame>> frame = member.channel.poll_frame();
        if (!frame.ok()) throw Failure("an agent: " + frame.error().text);
        if (!frame->has_value()) break;
        std::uint32_t to = (*frame)->address;
        (*frame)->address = address_of_agent(agent);
        if (to != kFrontEnd) {
            if (to > members_.size()) throw Failure("a message for an agent that is not there");
            members_[to - 1].queue.add(encode(**frame));
            continue;
        }
        Result<Message> message = parse(std::move(**frame));
        if (!message.ok()) throw Failure("an agent: " + message.error().text);
        events_.push_back({BackendEvent::Kind::kMessage, agent, std::move(*message), ""});
    }
    if (!open) lose(agent);
}

void LocalBackend::pump(int timeout_ms, int wake_fd) {
    std::vector<pollfd> entries;
    for (const Member& member : members_) {
        short events = POLLIN;
        if (!member.queue.empty()) events = POLLIN | POLLOUT;
        entries.push_back({.fd = member.is_open ? member.channel.descriptor() : -1,
                           .events = events,
                           .revents = 0});
    }
    entries.push_back({.fd = wake_fd, .events = POLLIN, .revents = 0});
    poll(entries.data(), entries.size(), timeout_ms);
    for (std::uint32_t i = 0; i < members_.size(); ++i) {
        if ((entries[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read(i);
    }
    for (Member& member : members_) {
        if (member.is_open) member.queue.flush(member.channel.descriptor());
    }
}

std::optional<BackendEvent> LocalBackend::wait(int timeout_ms, int wake_fd) {
    if (events_.empty()) pump(timeout_ms, wake_fd);
    if (events_.empty()) return std::nullopt;
    BackendEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
}

// The answer, wherever it comes among other messages.
Json LocalBackend::ask_clock(std::uint32_t agent) {
    send(agent, MessageType::kClock, Json::object());
    std::int64_t deadline = monotonic_ns() + static_cast<std::int64_t>(kClockSeconds * 1e9);
    for (;;) {
        auto found = std::find_if(events_.begin(), events_.end(), [&](const BackendEvent& event) {
            return event.agent == agent && event.message.type == MessageType::kClock;
        });
        if (found != events_.end()) {
            Json body = std::move(found->message.body);
            events_.erase(found);
            return body;
        }
        if (!members_[agent].is_open || monotonic_ns() > deadline) {
            throw Failure(
                fmt::format("{}: no answer while comparing clocks", members_[agent].host));
        }
        pump(100, -1);
    }
}

Clocks LocalBackend::compare_clocks() {
    Clocks out;
    for (std::uint32_t i = 0; i < members_.size(); ++i) {
        std::int64_t best_trip = INT64_MAX;
        HostClock clock;
        for (int question = 0; question < kClockQuestions; ++question) {
            std::int64_t asked = monotonic_ns();
            std::int64_t theirs = ask_clock(i).at("ns").get<std::int64_t>();
            std::int64_t now = monotonic_ns();
            if (now - asked >= best_trip) continue;
            best_trip = now - asked;
            clock = {theirs - (asked + now) / 2, best_trip / 2};
        }
        out.hosts.push_back(clock);
    }
    out.reference_ns = out.taken_ns = monotonic_ns();
    return out;
}

}  // namespace rdmalab::perftest
