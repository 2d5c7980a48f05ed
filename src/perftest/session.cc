#include "perftest/session.h"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <cstdio>

#include "perftest/failure.h"

namespace rdmalab::perftest {

namespace {

constexpr int kTickMs = 100;
constexpr std::int64_t kOneSignalNs = 300'000'000;
constexpr std::int64_t kLifeNs = 500'000'000;
constexpr std::int64_t kSilenceNs = 8'000'000'000;
constexpr std::int64_t kGraceNs = 1'000'000'000;

sigset_t caught_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return set;
}

}  // namespace

Signals::Signals() {
    sigset_t set = caught_signals();
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signal(SIGPIPE, SIG_IGN);
    fd_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

bool Signals::take() {
    signalfd_siginfo info{};
    if (read(fd_.value(), &info, sizeof info) != sizeof info) return false;
    std::int64_t before = std::exchange(taken_ns_, monotonic_ns());
    return before == 0 || taken_ns_ - before > kOneSignalNs;
}

void Signals::restore() {
    sigset_t set = caught_signals();
    sigprocmask(SIG_UNBLOCK, &set, nullptr);
    signal(SIGPIPE, SIG_DFL);
}

Session::Session(Channel peer, std::string peer_name, Signals& signals)
    : peer_(std::move(peer)),
      peer_name_(std::move(peer_name)),
      signals_(signals),
      heard_ns_(monotonic_ns()) {}

void Session::set_crew(Crew* crew) {
    crew_ = crew;
    from_workers_.assign(crew == nullptr ? 0 : crew->size(), {});
    worker_ended_.assign(from_workers_.size(), false);
}

void Session::send(MessageType type, const Json& body) {
    spoken_ns_ = monotonic_ns();
    // A peer that is gone is found when something is expected from it, with all it said before.
    if (!peer_.send(type, body)) peer_closed_ = true;
}

void Session::fail(const std::string& text) { peer_.send(MessageType::kFail, {{"text", text}}); }

void Session::show_life() {
    std::int64_t now = monotonic_ns();
    if (now - spoken_ns_ < kLifeNs) return;
    Json body = Json::object();
    if (crew_ != nullptr && running_) body = {{"iterations", crew_->iterations()}, {"at", now}};
    send(MessageType::kAlive, body);
}

void Session::handle_alive(const Json& body) {
    if (!body.is_object() || !body.contains("iterations")) return;
    auto iterations = body.at("iterations").get<std::uint64_t>();
    auto at = body.at("at").get<std::int64_t>();
    if (peer_iterations_ns_ != 0 && at > peer_iterations_ns_ && iterations >= peer_iterations_) {
        peer_rate_ = static_cast<double>(iterations - peer_iterations_) * 1e9 /
                     static_cast<double>(at - peer_iterations_ns_);
    }
    peer_iterations_ = iterations;
    peer_iterations_ns_ = at;
}

void Session::handle_interrupt(bool from_peer, const std::string& step) {
    if (!running_ || (interrupted_ && !from_peer)) {
        throw Failure(fmt::format("interrupted {}while {}", from_peer ? "by the peer " : "", step));
    }
    if (interrupted_) return;
    interrupted_ = true;
    if (crew_ != nullptr) crew_->board().head().interrupted = 1;
    send(MessageType::kInterrupt);
}

void Session::read_peer(const std::string& step) {
    if (!peer_.fill()) peer_closed_ = true;
    for (;;) {
        Result<std::optional<Message>> message = peer_.poll_message();
        if (!message.ok()) {
            throw Failure(fmt::format("{}, while {}: {}", peer_name_, step, message.error().text));
        }
        if (!message->has_value()) return;
        heard_ns_ = monotonic_ns();
        switch ((*message)->type) {
            case MessageType::kAlive:
                handle_alive((*message)->body);
                break;
            case MessageType::kInterrupt:
                handle_interrupt(true, step);
                break;
            case MessageType::kFail:
                throw Failure(fmt::format("{}, while {}: {}", peer_name_, step,
                                          (*message)->body.value("text", "failed")));
            default:
                from_peer_.push_back(std::move(**message));
        }
    }
}

void Session::read_worker(std::size_t index, const std::string& step) {
    bool open = crew_->channel(index).fill();
    for (;;) {
        Result<std::optional<Message>> message = crew_->channel(index).poll_message();
        if (!message.ok()) throw Failure("a worker process: " + message.error().text);
        if (!message->has_value()) break;
        if ((*message)->type == MessageType::kFail) {
            std::string text = (*message)->body.value("text", "failed");
            throw_worker_failed(
                crew_->size() == 1 ? text : fmt::format("process {}: {}", index, text), step);
        }
        from_workers_[index].push_back(std::move(**message));
    }
    if (open) return;
    worker_ended_[index] = true;
    throw Failure(fmt::format("process {} {} while {}", index, crew_->death_of(index), step));
}

// When the peer ends, our traffic often fails before its connection closes. Its end, or what it
// says of it, is the cause.
void Session::throw_worker_failed(const std::string& text, const std::string& step) {
    std::int64_t deadline = monotonic_ns() + kGraceNs;
    while (!peer_closed_ && monotonic_ns() < deadline) {
        pollfd entry{.fd = peer_.descriptor(), .events = POLLIN, .revents = 0};
        if (poll(&entry, 1, kTickMs) > 0) read_peer(step);
    }
    if (!peer_closed_) throw Failure(text);
    throw Failure(fmt::format("{} closed the connection while {}; {}", peer_name_, step, text));
}

void Session::read_output() {
    char bytes[4096];
    ssize_t count = read(output_, bytes, sizeof bytes);
    if (count > 0) {
        fwrite(bytes, 1, static_cast<std::size_t>(count), stderr);
    } else if (count == 0 || errno != EAGAIN) {
        output_ = -1;
    }
}

void Session::check_silence(const std::string& step) const {
    if (monotonic_ns() - heard_ns_ < kSilenceNs) return;
    throw Failure(fmt::format("{} has been silent for {} s while {}", peer_name_,
                              kSilenceNs / 1'000'000'000, step));
}

void Session::throw_closed(const std::string& step) {
    read_peer(step);  // its last words explain more
    throw Failure(fmt::format("{} closed the connection while {}", peer_name_, step));
}

void Session::pump(const std::string& step) {
    std::vector<pollfd> entries = {
        {.fd = peer_closed_ ? -1 : peer_.descriptor(), .events = POLLIN, .revents = 0},
        {.fd = signals_.descriptor(), .events = POLLIN, .revents = 0},
        {.fd = output_, .events = POLLIN, .revents = 0}};
    constexpr std::size_t kFirstWorker = 3;
    for (std::size_t i = 0; i < from_workers_.size(); ++i) {
        int fd = worker_ended_[i] ? -1 : crew_->channel(i).descriptor();
        entries.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
    poll(entries.data(), entries.size(), kTickMs);
    if (entries[0].revents != 0) read_peer(step);
    if (entries[1].revents != 0 && signals_.take()) handle_interrupt(false, step);
    if (entries[2].revents != 0) read_output();
    for (std::size_t i = 0; i < from_workers_.size(); ++i) {
        if (entries[kFirstWorker + i].revents != 0) read_worker(i, step);
    }
    show_life();
    if (!peer_closed_) check_silence(step);
    if (tick_) tick_();
}

Message Session::receive_any(const std::string& step, double seconds) {
    std::int64_t deadline = monotonic_ns() + static_cast<std::int64_t>(seconds * 1e9);
    while (from_peer_.empty()) {
        if (peer_closed_) throw_closed(step);
        if (seconds > 0 && monotonic_ns() > deadline) {
            throw Failure(
                fmt::format("{} did not answer within {} s while {}", peer_name_, seconds, step));
        }
        pump(step);
    }
    Message message = std::move(from_peer_.front());
    from_peer_.pop_front();
    return message;
}

Json Session::receive(MessageType type, const std::string& step, double seconds) {
    Message message = receive_any(step, seconds);
    if (message.type == type) return std::move(message.body);
    throw Failure(fmt::format("{}, while {}: expected '{}', found '{}'", peer_name_, step,
                              name_of(type), name_of(message.type)));
}

std::vector<Json> Session::gather(MessageType type, const std::string& step, double seconds) {
    std::int64_t deadline = monotonic_ns() + static_cast<std::int64_t>(seconds * 1e9);
    for (;;) {
        bool complete = std::none_of(from_workers_.begin(), from_workers_.end(),
                                     [](const auto& inbox) { return inbox.empty(); });
        if (complete) break;
        if (peer_closed_) throw_closed(step);
        if (seconds > 0 && monotonic_ns() > deadline) {
            throw Failure(fmt::format("{} takes longer than {} s", step, seconds));
        }
        pump(step);
    }
    std::vector<Json> bodies;
    for (auto& inbox : from_workers_) {
        if (inbox.front().type != type) {
            throw Failure(fmt::format("a worker process: expected '{}', found '{}'", name_of(type),
                                      name_of(inbox.front().type)));
        }
        bodies.push_back(std::move(inbox.front().body));
        inbox.pop_front();
    }
    return bodies;
}

}  // namespace rdmalab::perftest
