// One test between two main processes: waits for the peer and for the own workers at the same time,
// so that the end of either is noticed at every step, and says at which step it was.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "perftest/channel.h"
#include "perftest/crew.h"
#include "perftest/fd.h"

namespace rdmalab::perftest {

// SIGINT and SIGTERM as a descriptor. Blocked in this process and its children while it lives.
class Signals {
public:
    Signals();
    int descriptor() const { return fd_.value(); }
    bool take();  // one came; several within a moment are one (launchers pass signals on)
    // For a child that executes another program.
    static void restore();

private:
    Fd fd_;
    std::int64_t taken_ns_ = 0;
};

class Session {
public:
    // `peer` is how messages name the other side, e.g. "server node02".
    Session(Channel peer, std::string peer_name, Signals& signals);

    void set_crew(Crew* crew);
    // Called about ten times a second while waiting.
    void set_tick(std::function<void()> tick) { tick_ = std::move(tick); }
    // A further descriptor to read from and to pass on to stderr (a launched server's output).
    void set_output(int fd) { output_ = fd; }
    // From now on Ctrl-C ends the window instead of the test.
    void set_running(bool running) { running_ = running; }

    void send(MessageType type, const Json& body = Json::object());
    // Waits for that message of the peer. Throws Failure naming the step when the peer or a worker
    // dies, is silent, or takes longer than `seconds` (0 = however long, while it shows life).
    Json receive(MessageType type, const std::string& step, double seconds);
    Message receive_any(const std::string& step, double seconds);
    // That message of every worker, by index.
    std::vector<Json> gather(MessageType type, const std::string& step, double seconds);

    bool is_interrupted() const { return interrupted_; }
    // Of the peer's processes, from its last sign of life.
    double peer_iterations_per_second() const { return peer_rate_; }
    // Tells the peer that it is over, and why. Never throws.
    void fail(const std::string& text);

private:
    void pump(const std::string& step);
    void read_peer(const std::string& step);
    void read_worker(std::size_t index, const std::string& step);
    void read_output();
    void handle_alive(const Json& body);
    void handle_interrupt(bool from_peer, const std::string& step);
    void show_life();
    [[noreturn]] void throw_worker_failed(const std::string& text, const std::string& step);
    [[noreturn]] void throw_closed(const std::string& step);
    void check_silence(const std::string& step) const;

    Channel peer_;
    std::string peer_name_;
    Signals& signals_;
    Crew* crew_ = nullptr;
    std::deque<Message> from_peer_;
    std::vector<std::deque<Message>> from_workers_;
    std::vector<bool> worker_ended_;
    std::function<void()> tick_;
    int output_ = -1;
    bool peer_closed_ = false, running_ = false, interrupted_ = false;
    std::int64_t heard_ns_ = 0, spoken_ns_ = 0;
    std::uint64_t peer_iterations_ = 0;
    std::int64_t peer_iterations_ns_ = 0;
    double peer_rate_ = 0;
};

}  // namespace rdmalab::perftest
