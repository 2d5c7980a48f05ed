#include "perftest/cluster/link_worker.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <map>

#include "perftest/cluster/lockstep.h"
#include "perftest/cluster/traffic.h"
#include "perftest/failure.h"
#include "perftest/placement.h"
#include "perftest/worker.h"

namespace rdmalab::perftest {

namespace {

constexpr int kEmptyTurnsPerYield = 64;
constexpr std::int64_t kNapNs = 1'000'000;
// Woken that much before the start, to spin for the rest: a sleeper wakes late by some of this.
constexpr std::int64_t kSpinNs = 200'000;
constexpr std::int64_t kQuietNs = 200'000'000;
// Of a worker whose links cannot be joined: the first ones tell the cause.
constexpr std::size_t kFailuresTold = 4;

void sleep_until(std::int64_t ns) {
    timespec time{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    if (ns > monotonic_ns()) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);
}

struct Link {
    LinkJob job;
    std::unique_ptr<Endpoint> endpoint;
    std::unique_ptr<Traffic> traffic;
    bool connected = false;
    std::string error;
    std::int64_t failed_ns = 0;

    bool is_alive() const { return error.empty() && traffic; }
};

class LinkWorker {
public:
    LinkWorker(const LinkWork& work, Channel& agent, Board& board)
        : job_(work.job),
          self_(work.job.workers[work.index]),
          core_(work.core),
          agent_(agent),
          head_(board.head()),
          line_(board.line(work.index)),
          counters_(work.counters),
          first_link_(work.first_link) {}

    void run();

private:
    void make_links();
    void make_link(Link& link, const std::shared_ptr<Adapter>& adapter);
    void describe_sources();
    void connect();
    void handle_record(const Json& record, Json& answers);
    void connect_link(Link& link, const Json& peer, Json& answers);
    void run_phases();
    void begin_phase();
    bool turn_all();
    void finish_phase();
    void drain_responders();
    void rest(bool moved);
    void report();
    void fail(Link& link, const std::string& text);
    template <class Step>
    void guarded(Link& link, Step step);

    const AgentJob& job_;
    const WorkerJob& self_;
    std::optional<int> core_;
    Channel& agent_;
    BoardHead& head_;
    BoardLine& line_;
    LinkCounters& counters_;
    std::size_t first_link_;
    std::vector<Link> links_;
    std::map<std::pair<std::uint32_t, bool>, Link*> by_connection_;
    Lockstep lockstep_;  // of all links, when they are in step
    std::size_t lockstep_links_ = 0;
    std::size_t open_ = 0;  // links that are neither connected nor failed
    std::uint32_t round_ = 0, phase_ = 0;
    bool in_phase_ = false;
    std::int64_t started_ns_ = 0, stopped_ns_ = 0, wall_start_ns_ = 0;
    int empty_turns_ = 0;
};

void LinkWorker::fail(Link& link, const std::string& text) {
    link.error = text;
    link.failed_ns = monotonic_ns();
    if (lockstep_links_ == 0 || !lockstep_.is_begun()) return;
    // Without one nobody can go on, and some wait for nothing but a word of ours.
    for (Link& each : links_) {
        if (each.error.empty()) each.error = "in lock-step with a connection that failed: " + text;
        each.failed_ns = link.failed_ns;
    }
    agent_.send(MessageType::kInterrupt, {{"text", self_.label + ": " + text}});
}

// Whatever goes wrong with a link stays with it.
template <class Step>
void LinkWorker::guarded(Link& link, Step step) {
    try {
        step();
    } catch (const Failure& failure) {
        fail(link, failure.what());
    } catch (const Json::exception& error) {
        fail(link, fmt::format("what the peer said cannot be read: {}", error.what()));
    }
}

void LinkWorker::make_link(Link& link, const std::shared_ptr<Adapter>& adapter) {
    Planned planned = planned_of(job_, self_, link.job);
    Roles roles = roles_of(planned.plan, !link.job.is_source);
    link.endpoint = std::make_unique<Endpoint>(planned.plan, planned.side, roles, adapter);
}

void LinkWorker::make_links() {
    Planned first = planned_of(job_, self_, self_.links.front());
    auto adapter = std::make_shared<Adapter>(first.side, core_);
    links_.resize(self_.links.size());
    open_ = links_.size();
    for (std::size_t i = 0; i < links_.size(); ++i) {
        Link& link = links_[i];
        link.job = self_.links[i];
        by_connection_[{link.job.connection, link.job.is_source}] = &link;
        guarded(link, [&] { make_link(link, adapter); });
        if (!link.error.empty()) --open_;
    }
}

Json record_for_peer(const LinkJob& job, Json body) {
    return {job.peer_agent, job.peer_worker, job.connection, !job.is_source, std::move(body)};
}

void LinkWorker::describe_sources() {
    Json records = Json::array();
    for (Link& link : links_) {
        if (link.error.empty() && link.job.is_source) {
            guarded(link, [&] {
                link.endpoint->choose_gid(Json());
                records.push_back(record_for_peer(link.job, link.endpoint->describe()));
            });
            if (!link.error.empty()) --open_;
        }
        if (!link.error.empty()) {
            records.push_back(record_for_peer(link.job, {{"failed", link.error}}));
        }
    }
    agent_.send(MessageType::kResources, {{"records", std::move(records)}});
}

void LinkWorker::connect_link(Link& link, const Json& peer, Json& answers) {
    bool is_destination = !link.job.is_source;
    if (is_destination) link.endpoint->choose_gid(peer);
    link.endpoint->connect(peer, is_destination);
    const Plan& plan = link.endpoint->plan();
    if (plan.lockstep) {
        lockstep_.add(*link.endpoint, link.job.is_source || plan.bidirectional,
                      is_destination || plan.bidirectional, link.job.connection,
                      link.job.is_source);
        link.traffic = std::make_unique<LockstepEnd>(lockstep_, lockstep_links_++);
    } else {
        link.traffic =
            make_traffic(*link.endpoint, roles_of(plan, is_destination), link.job.is_source);
    }
    link.traffic->prime();
    link.connected = true;
    if (is_destination) {
        answers.push_back(record_for_peer(link.job, link.endpoint->describe()));
    }
}

void LinkWorker::handle_record(const Json& record, Json& answers) {
    auto found = by_connection_.find({record.at(0).get<std::uint32_t>(), record.at(1).get<bool>()});
    if (found == by_connection_.end()) throw Failure("a record of a connection that is not ours");
    Link& link = *found->second;
    const Json& body = record.at(2);
    if (!link.error.empty()) return;
    bool was_connected = link.connected;
    if (body.contains("failed")) {
        fail(link, "the other end: " + body.value("failed", ""));
    } else {
        guarded(link, [&] { connect_link(link, body, answers); });
        if (!link.error.empty()) {
            answers.push_back(record_for_peer(link.job, {{"failed", link.error}}));
        }
    }
    if (!was_connected) --open_;
}

void LinkWorker::connect() {
    while (open_ > 0) {
        Json message = await(agent_, MessageType::kResources);
        Json answers = Json::array();
        for (const Json& record : message.at("records")) handle_record(record, answers);
        if (!answers.empty()) {
            agent_.send(MessageType::kResources, {{"records", std::move(answers)}});
        }
    }
    Json failed = Json::array();
    for (const Link& link : links_) {
        if (link.error.empty() || failed.size() == kFailuresTold) continue;
        failed.push_back(link.error);
    }
    agent_.send(MessageType::kConnected, {{"failed", std::move(failed)}});
}

void LinkWorker::begin_phase() {
    round_ = head_.round.load();
    if (head_.stopped.load() != 0) return;
    phase_ = head_.phase.load();
    std::int64_t start = head_.start_ns.load();
    // Who shares a core and spins keeps others from waking in time.
    sleep_until(core_ ? start - kSpinNs : start);
    while (monotonic_ns() < start) {
    }
    started_ns_ = monotonic_ns();
    wall_start_ns_ = wall_ns();
    in_phase_ = true;
    for (Link& link : links_) {
        if (!link.is_alive() || link.job.phase != phase_) continue;
        guarded(link, [&] { link.traffic->begin(start); });
    }
}

bool LinkWorker::turn_all() {
    bool interrupted = head_.interrupted.load(std::memory_order_relaxed) != 0, moved = false;
    std::uint64_t completed = 0;
    for (std::size_t i = 0; i < links_.size(); ++i) {
        Link& link = links_[i];
        if (!link.is_alive()) continue;
        if (interrupted) link.traffic->interrupt();
        guarded(link, [&] { moved |= link.traffic->turn(monotonic_ns()); });
        std::uint64_t own = link.traffic->completed();
        counters_.at(first_link_ + i).store(own, std::memory_order_relaxed);
        completed += own;
    }
    line_.iterations.store(completed, std::memory_order_relaxed);
    return moved;
}

void LinkWorker::finish_phase() {
    for (const Link& link : links_) {
        bool waits = link.is_alive() && link.job.phase == phase_ && !link.traffic->is_done();
        if (waits) return;
    }
    in_phase_ = false;
    stopped_ns_ = monotonic_ns();
    agent_.send(MessageType::kDrained, {{"phase", phase_}});
}

// Where nothing is to be expected, others need the processor more.
void LinkWorker::rest(bool moved) {
    if (moved) {
        empty_turns_ = 0;
        return;
    }
    bool busy = std::any_of(links_.begin(), links_.end(), [](const Link& link) {
        return link.is_alive() && link.traffic->is_busy();
    });
    if (!busy) {
        timespec nap{.tv_sec = 0, .tv_nsec = kNapNs};
        nanosleep(&nap, nullptr);
    } else if (!core_ && ++empty_turns_ >= kEmptyTurnsPerYield) {
        empty_turns_ = 0;
        sched_yield();
    }
}

// Everybody has drained: what is still to come has arrived, or was lost on the way (UC and UD).
void LinkWorker::drain_responders() {
    bool lossy = std::any_of(links_.begin(), links_.end(), [](const Link& link) {
        return link.is_alive() && link.endpoint->plan().transport != Transport::kRc;
    });
    std::int64_t quiet_since = monotonic_ns();
    for (;;) {
        if (turn_all()) {
            quiet_since = monotonic_ns();
        } else if (!lossy || monotonic_ns() - quiet_since > kQuietNs) {
            return;
        }
    }
}

void LinkWorker::run_phases() {
    wait_at_gate(head_, round_);
    while (head_.stopped.load() == 0) {
        if (head_.round.load() != round_ && !in_phase_) begin_phase();
        if (round_ == 0) {
            wait_at_gate(head_, round_);
            continue;
        }
        bool moved = turn_all();
        if (in_phase_) finish_phase();
        rest(moved);
    }
    drain_responders();
}

void LinkWorker::report() {
    for (Link& link : links_) {
        ProcessResult result;
        if (link.traffic) {
            std::int64_t end = link.failed_ns > 0 ? link.failed_ns : monotonic_ns();
            result = link.traffic->result(end);
        }
        result.is_requester = result.is_requester && link.traffic != nullptr;
        result.process = self_.process;
        result.core = core_;
        result.start_ns = wall_start_ns_;
        Json facts = link.endpoint ? link.endpoint->describe() : Json::object();
        for (const char* key : {"targets", "gidRaw", "readsMax", "readsInitMax"}) facts.erase(key);
        if (link.connected) facts["mtu"] = link.endpoint->mtu();
        agent_.send(MessageType::kResults, {{"connection", link.job.connection},
                                            {"isSource", link.job.is_source},
                                            {"error", link.error},
                                            {"result", result.to_json()},
                                            {"facts", std::move(facts)}});
    }
    agent_.send(MessageType::kReport, {{"startedNs", started_ns_}, {"stoppedNs", stopped_ns_}});
}

void LinkWorker::run() {
    if (core_) pin_to(*core_);
    prctl(PR_SET_TIMERSLACK, 1);  // nanosecond: to wake when it was agreed
    make_links();
    describe_sources();
    connect();
    run_phases();
    report();
    // Queue pairs stay until all hosts are done.
    await(agent_, MessageType::kBye);
}

}  // namespace

void work_on_links(const LinkWork& work, Channel& agent, Board& board) {
    LinkWorker(work, agent, board).run();
}

}  // namespace rdmalab::perftest
