#include "perftest/cluster/agent.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>

#include "perftest/cluster/interfaces.h"
#include "perftest/cluster/job.h"
#include "perftest/cluster/link_counters.h"
#include "perftest/cluster/link_worker.h"
#include "perftest/crew.h"
#include "perftest/device.h"
#include "perftest/failure.h"
#include "perftest/placement.h"
#include "perftest/protocol.h"
#include "perftest/require.h"

namespace rdmalab::perftest {

namespace {

constexpr std::int64_t kLifeNs = 500'000'000;
constexpr std::size_t kLinksToldMax = 1000;

// What is known of one worker.
struct WorkerState {
    bool connected = false, drained = false, reported = false;
    std::string death;  // how it has ended before its time
};

class Agent {
public:
    explicit Agent(Channel uplink) : uplink_(std::move(uplink)) {}
    int run();

private:
    void pump();
    void read_uplink();
    void read_worker(std::size_t index);
    void handle(Message message);
    void handle_test(const Json& body);
    void handle_records(const Json& records);
    void handle_worker(std::size_t index, Message message);
    void handle_death(std::size_t index);
    void pass_records(const Json& records);
    void tell_if_all();
    void place_workers();
    void show_life();
    void report_dead(std::size_t index);
    Json timings() const;
    Json link_counts();
    void tell(MessageType type, const Json& body = Json::object()) {
        if (!uplink_.send(type, body, kFrontEnd)) gone_ = true;
    }
    template <class Predicate>
    bool all(Predicate predicate) const {
        return std::all_of(states_.begin(), states_.end(), [&](const WorkerState& state) {
            return !state.death.empty() || predicate(state);
        });
    }

    Channel uplink_;
    AgentJob job_;
    std::vector<std::optional<int>> cores_;
    std::optional<LinkCounters> counters_;
    std::vector<std::size_t> first_links_;  // of each worker, among the counters
    std::optional<Crew> crew_;
    std::vector<WorkerState> states_;
    std::vector<Json> timings_;
    bool gone_ = false, ended_ = false;
    bool told_connected_ = false, told_drained_ = true, told_reported_ = false, stopped_ = false;
    std::uint32_t phase_ = 0;
    std::int64_t spoken_ns_ = 0;
    std::vector<std::string> failures_;
};

// Cores of all workers of this host: never one twice, and none at all where there are not enough.
void Agent::place_workers() {
    cores_.assign(job_.workers.size(), std::nullopt);
    std::vector<int> taken;
    bool enough = true;
    for (std::size_t i = 0; i < job_.workers.size(); ++i) {
        const WorkerJob& worker = job_.workers[i];
        Planned planned = planned_of(job_, worker, worker.links.front());
        require_parts(worker.side, planned);
        std::string device = device_to_use(planned.side.device);
        std::optional<int> core = place(device, planned.side, 1, taken).cores.front();
        cores_[i] = core;
        if (core) taken.push_back(*core);
        enough = enough && core.has_value();
    }
    for (std::size_t i = 0; i < cores_.size() && !enough; ++i) {
        if (!job_.workers[i].side.contains("cores")) cores_[i] = std::nullopt;
    }
}

void Agent::handle_test(const Json& body) {
    Result<AgentJob> job = read_job(body);
    if (!job.ok()) throw Failure(job.error().text);
    job_ = std::move(*job);
    // MPI ignores a network that no host has, and then takes any.
    std::string networks = body.value("interfaces", "");
    std::string missing = networks.empty() ? "" : missing_interface(networks, own_addresses());
    if (!missing.empty()) throw Failure("mpiTcpNetworkInterfaces: " + missing);
    place_workers();
    states_.assign(job_.workers.size(), {});
    std::size_t links = 0;
    for (const WorkerJob& worker : job_.workers) {
        first_links_.push_back(links);
        links += worker.links.size();
    }
    counters_.emplace(links);
    timings_.assign(job_.workers.size(), Json());
    crew_.emplace(static_cast<std::uint32_t>(job_.workers.size()), [this](std::uint32_t index,
                                                                          Channel& main,
                                                                          Board& board) {
        uplink_ = Channel(Fd());  // or its end would not be seen
        work_on_links({job_, index, cores_[index], *counters_, first_links_[index]}, main, board);
    });
    tell(MessageType::kAccept, {{"workers", job_.workers.size()}});
}

void Agent::handle_records(const Json& records) {
    std::map<std::uint32_t, Json> by_worker;
    for (const Json& record : records) {
        Json& list =
            by_worker.try_emplace(record.at(0).get<std::uint32_t>(), Json::array()).first->second;
        list.push_back({record.at(1), record.at(2), record.at(3)});
    }
    for (auto& [worker, list] : by_worker) {
        if (worker >= states_.size()) throw Failure("a record for a worker that we do not have");
        if (!states_[worker].death.empty()) continue;
        crew_->send(worker, MessageType::kResources, {{"records", std::move(list)}});
    }
}

// Each record to the agent that has the worker.
void Agent::pass_records(const Json& records) {
    std::map<std::uint32_t, Json> by_agent;
    for (const Json& record : records) {
        Json& list =
            by_agent.try_emplace(record.at(0).get<std::uint32_t>(), Json::array()).first->second;
        list.push_back({record.at(1), record.at(2), record.at(3), record.at(4)});
    }
    for (auto& [agent, list] : by_agent) {
        uplink_.send(MessageType::kResources, {{"records", std::move(list)}},
                     address_of_agent(agent));
    }
}

void Agent::handle(Message message) {
    const Json& body = message.body;
    switch (message.type) {
        case MessageType::kTest:
            return handle_test(body);
        case MessageType::kResources:
            return handle_records(body.at("records"));
        case MessageType::kClock:
            return tell(MessageType::kClock, {{"ns", monotonic_ns()}});
        case MessageType::kRound:
            phase_ = body.at("phase").get<std::uint32_t>();
            told_drained_ = false;
            for (WorkerState& state : states_) state.drained = false;
            crew_->board().open_gate(phase_, body.at("at").get<std::int64_t>());
            return tell_if_all();
        case MessageType::kInterrupt:
            crew_->board().head().interrupted = 1;
            return;
        case MessageType::kStop:
            stopped_ = true;
            crew_->board().stop();
            for (std::size_t i = 0; i < states_.size(); ++i) {
                if (!states_[i].death.empty()) report_dead(i);
            }
            return tell_if_all();
        case MessageType::kBye:
            if (crew_) crew_->finish();
            ended_ = true;
            return;
        default:
            throw Failure(fmt::format("the agent of {}: unexpected '{}'", host_name(),
                                      name_of(message.type)));
    }
}

// Its links, as results with an error.
void Agent::report_dead(std::size_t index) {
    const WorkerJob& worker = job_.workers[index];
    for (const LinkJob& link : worker.links) {
        ProcessResult result;
        result.process = worker.process;
        result.is_requester = false;
        tell(MessageType::kResults, {{"connection", link.connection},
                                     {"isSource", link.is_source},
                                     {"error", states_[index].death},
                                     {"fatal", true},
                                     {"result", result.to_json()},
                                     {"facts", Json::object()}});
    }
}

void Agent::handle_death(std::size_t index) {
    WorkerState& state = states_[index];
    const WorkerJob& worker = job_.workers[index];
    state.death =
        fmt::format("process {} of {} {}", worker.process, worker.label, crew_->death_of(index));
    if (!told_connected_) {
        if (failures_.empty()) failures_.push_back(state.death);
        Json records = Json::array();
        for (const LinkJob& link : worker.links) {
            records.push_back({link.peer_agent,
                               link.peer_worker,
                               link.connection,
                               !link.is_source,
                               {{"failed", state.death}}});
        }
        pass_records(records);
    }
    // Others may wait for nothing but a word of it.
    if (told_connected_ && job_.tests[worker.test].iteration_sync) {
        tell(MessageType::kInterrupt, {{"text", state.death}});
    }
    if (stopped_ && !state.reported) report_dead(index);
}

void Agent::handle_worker(std::size_t index, Message message) {
    WorkerState& state = states_[index];
    switch (message.type) {
        case MessageType::kResources:
            return pass_records(message.body.at("records"));
        case MessageType::kConnected:
            state.connected = true;
            for (const Json& each : message.body.at("failed")) {
                failures_.push_back(
                    fmt::format("{}: {}", job_.workers[index].label, each.get<std::string>()));
            }
            break;
        case MessageType::kDrained:
            state.drained = message.body.at("phase").get<std::uint32_t>() == phase_;
            break;
        case MessageType::kResults:
        case MessageType::kInterrupt:
            return tell(message.type, message.body);
        case MessageType::kReport:
            state.reported = true;
            timings_[index] = std::move(message.body);
            break;
        case MessageType::kFail:
            failures_.push_back(fmt::format("{}: {}", job_.workers[index].label,
                                            message.body.value("text", "failed")));
            break;
        default:
            throw Failure(fmt::format("{}: unexpected '{}' of a worker", job_.workers[index].label,
                                      name_of(message.type)));
    }
    tell_if_all();
}

Json Agent::timings() const {
    Json out = Json::array();
    for (std::size_t i = 0; i < states_.size(); ++i) {
        const WorkerJob& worker = job_.workers[i];
        Json timing = timings_[i].is_object() ? timings_[i] : Json::object();
        timing["label"] = worker.label;
        timing["test"] = worker.test;
        timing["process"] = worker.process;
        out.push_back(std::move(timing));
    }
    return out;
}

// Steps that end when every worker has ended it.
void Agent::tell_if_all() {
    if (!crew_) return;
    if (!told_connected_ && all([](const WorkerState& state) { return state.connected; })) {
        told_connected_ = true;
        tell(MessageType::kConnected, {{"failed", failures_}});
    }
    if (!told_drained_ && all([](const WorkerState& state) { return state.drained; })) {
        told_drained_ = true;
        tell(MessageType::kDrained, {{"phase", phase_}});
    }
    if (stopped_ && !told_reported_ &&
        all([](const WorkerState& state) { return state.reported; })) {
        told_reported_ = true;
        tell(MessageType::kReport, {{"workers", timings()}});
    }
}

void Agent::read_uplink() {
    if (!uplink_.fill()) gone_ = true;
    while (!ended_) {
        Result<std::optional<Message>> message = uplink_.poll_message();
        if (!message.ok()) throw Failure("the uplink: " + message.error().text);
        if (!message->has_value()) return;
        handle(std::move(**message));
    }
}

void Agent::read_worker(std::size_t index) {
    bool open = crew_->channel(index).fill();
    for (;;) {
        Result<std::optional<Message>> message = crew_->channel(index).poll_message();
        if (!message.ok()) throw Failure("a worker process: " + message.error().text);
        if (!message->has_value()) break;
        handle_worker(index, std::move(**message));
    }
    if (open) return;
    handle_death(index);
    tell_if_all();
}

void Agent::show_life() {
    std::int64_t now = monotonic_ns();
    if (now - spoken_ns_ < kLifeNs) return;
    spoken_ns_ = now;
    std::vector<std::uint64_t> iterations(job_.tests.size());
    for (std::uint32_t i = 0; i < job_.workers.size() && crew_; ++i) {
        iterations[job_.workers[i].test] += crew_->board().line(i).iterations.load();
    }
    tell(MessageType::kAlive, {{"iterations", iterations}, {"links", link_counts()}});
}

// [connection, is source, completed] of each link, while they are not too many to be told often.
Json Agent::link_counts() {
    Json out = Json::array();
    bool few = !first_links_.empty() && first_links_.back() <= kLinksToldMax;
    for (std::size_t i = 0; i < job_.workers.size() && few && crew_; ++i) {
        const std::vector<LinkJob>& links = job_.workers[i].links;
        for (std::size_t k = 0; k < links.size(); ++k) {
            std::uint64_t completed = counters_->at(first_links_[i] + k).load();
            if (completed > 0) {
                out.push_back({links[k].connection, links[k].is_source, completed});
            }
        }
    }
    return out;
}

void Agent::pump() {
    std::vector<pollfd> entries = {{.fd = uplink_.descriptor(), .events = POLLIN, .revents = 0}};
    for (std::size_t i = 0; i < states_.size(); ++i) {
        int fd = states_[i].death.empty() ? crew_->channel(i).descriptor() : -1;
        entries.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
    poll(entries.data(), entries.size(), static_cast<int>(kLifeNs / 2 / 1'000'000));
    if (entries[0].revents != 0) read_uplink();
    // The number of workers changes only by a message from above.
    for (std::size_t i = 0; i + 1 < entries.size() && !ended_; ++i) {
        if (entries[i + 1].revents != 0) read_worker(i);
    }
    show_life();
}

int Agent::run() {
    tell(MessageType::kHello, {{"host", host_name()},
                               {"version", RDMALAB_VERSION},
                               {"build", build_id()},
                               {"bootId", boot_id()}});
    try {
        while (!ended_ && !gone_) pump();
    } catch (const Json::exception& error) {
        tell(MessageType::kFail,
             {{"text", fmt::format("a message that cannot be read: {}", error.what())}});
        return kExitError;
    } catch (const Failure& failure) {
        tell(MessageType::kFail, {{"text", failure.what()}});
        return kExitError;
    }
    return ended_ ? kExitOk : kExitError;
}

}  // namespace

// FNV-1a over the program's file: any other build is another program.
std::string build_id() {
    std::ifstream file("/proc/self/exe", std::ios::binary);
    std::uint64_t hash = 0xcbf29ce484222325;
    std::vector<char> chunk(1u << 16);
    while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) ||
           file.gcount() > 0) {
        for (std::streamsize i = 0; i < file.gcount(); ++i) {
            hash = (hash ^ static_cast<unsigned char>(chunk[static_cast<std::size_t>(i)])) *
                   0x100000001b3;
        }
    }
    return fmt::format("{:016x}", hash);
}

int run_agent(Channel uplink) { return Agent(std::move(uplink)).run(); }

}  // namespace rdmalab::perftest
