#include "perftest/cluster/conductor.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "perftest/channel.h"
#include "perftest/cluster/agent.h"
#include "perftest/cluster/job.h"
#include "perftest/cluster/timeline.h"
#include "perftest/failure.h"
#include "perftest/protocol.h"
#include "perftest/report_json.h"

namespace rdmalab::perftest {

namespace {

constexpr int kTickMs = 100;
// SSH is a matter of cores: a third of a second for each host on the machine this was tried on.
constexpr double kLaunchSeconds = 25, kLaunchSecondsPerHost = 1;
constexpr double kPrepareSeconds = 120;
constexpr double kTrafficSlackSeconds = 30;
constexpr std::int64_t kSilenceNs = 10'000'000'000;
// Errors of other hosts that come while one is told.
constexpr std::int64_t kMoreErrorsNs = 500'000'000;
// Before a common start: the message must be everywhere, and everybody asleep.
constexpr std::int64_t kStartDelayNs = 200'000'000;
constexpr std::int64_t kStartDelayPerWorkerNs = 1'000'000;
constexpr std::int64_t kStartDelayMaxNs = 3'000'000'000;

// What is known of one end of a connection: its processes, and the first error.
struct EndState {
    std::vector<ProcessResult> results;
    Json facts = Json::object();
    std::string error;
    bool fatal = false;
    // The last that was told while it ran, for when no results come: completed iterations of all
    // processes, and when.
    std::uint64_t first_count = 0, last_count = 0;
    std::int64_t first_ns = 0, last_ns = 0;
};

class Conductor {
public:
    Conductor(const Scenario& scenario, Backend& backend, Signals& signals, Progress& progress)
        : scenario_(scenario),
          backend_(backend),
          signals_(signals),
          progress_(progress),
          seating_(seat(scenario)),
          alive_(seating_.hosts.size(), true),
          heard_ns_(seating_.hosts.size(), monotonic_ns()),
          inbox_(seating_.hosts.size()),
          answers_(seating_.hosts.size()),
          ends_(scenario.connections()),
          timeline_(scenario, seating_.hosts.size()) {
        for (auto& pair : ends_) pair.resize(2);
    }

    ScenarioOutcome run();

private:
    using Bodies = std::vector<Json>;

    void launch();
    void check_builds(const Bodies& hellos);
    void prepare();
    void run_round(std::uint32_t phase);
    void collect();
    void assemble();
    void assemble_connection(std::uint32_t test, const ScenarioConnection& plan,
                             std::uint32_t number);
    std::string error_of(const std::vector<EndState>& ends) const;

    Bodies gather(MessageType type, const std::string& step, double seconds);
    void pump(const std::string& step);
    void handle(BackendEvent event, const std::string& step);
    void handle_message(std::uint32_t agent, Message message, const std::string& step);
    void take_answer(std::uint32_t agent, const std::string& step);
    void handle_lost(std::uint32_t agent, const std::string& text, const std::string& step);
    void handle_alive(std::uint32_t agent, const Json& body);
    void salvage(EndState& end, bool requests) const;
    void break_step(const std::string& text);
    void handle_result(const Json& body);
    void handle_interrupt(const std::string& step);
    void check_silence(const std::string& step);
    void lose_silent(const std::string& text, const std::string& step);
    void send_all(MessageType type, const Json& body = Json::object());
    [[noreturn]] void fail_with_others(const std::string& step);
    std::int64_t start_delay() const;
    double round_seconds() const;

    const Scenario& scenario_;
    Backend& backend_;
    Signals& signals_;
    Progress& progress_;
    Seating seating_;
    std::vector<bool> alive_;
    std::vector<std::int64_t> heard_ns_;
    std::vector<std::deque<Message>> inbox_;
    std::vector<std::optional<Json>> answers_;
    MessageType awaited_ = MessageType::kHello;
    std::vector<std::string> errors_;
    std::string broken_;                       // why a lock-step has ended early
    std::vector<std::vector<EndState>> ends_;  // by connection: source, destination
    Clocks clocks_;
    Timeline timeline_;
    ScenarioOutcome outcome_;
    bool running_ = false, over_ = false;
};

void Conductor::send_all(MessageType type, const Json& body) {
    for (std::uint32_t i = 0; i < alive_.size(); ++i) {
        if (alive_[i]) backend_.send(i, type, body);
    }
}

void Conductor::handle_interrupt(const std::string& step) {
    if (!running_ || outcome_.interrupted) {
        throw Failure(fmt::format("interrupted while {}", step));
    }
    outcome_.interrupted = true;
    send_all(MessageType::kInterrupt);
}

void Conductor::handle_lost(std::uint32_t agent, const std::string& text, const std::string& step) {
    if (!alive_[agent]) return;
    alive_[agent] = false;
    errors_.push_back(fmt::format("{} while {}", text, step));
    if (running_ && scenario_.tests.front().iteration_sync) break_step(text);
}

void Conductor::handle_alive(std::uint32_t agent, const Json& body) {
    timeline_.handle(agent, body.at("iterations").get<std::vector<std::uint64_t>>());
    std::map<EndState*, std::uint64_t> sums;
    for (const Json& each : body.at("links")) {
        auto connection = each.at(0).get<std::uint32_t>();
        if (connection >= ends_.size()) throw Failure("a count of a connection that is not ours");
        sums[&ends_[connection][each.at(1).get<bool>() ? 0 : 1]] += each.at(2).get<std::uint64_t>();
    }
    for (const auto& [end, count] : sums) {
        std::int64_t now = monotonic_ns();
        if (end->first_ns == 0) {
            end->first_ns = now;
            end->first_count = count;
        }
        end->last_ns = now;
        end->last_count = count;
    }
}

// What an end had done when it was last heard of.
void Conductor::salvage(EndState& end, bool requests) const {
    if (!end.results.empty() || end.last_ns <= end.first_ns || !requests) return;
    ProcessResult result;
    result.window_ns = end.last_ns - end.first_ns;
    result.iterations_per_qp = {end.last_count - end.first_count};
    result.interrupted = true;
    end.results.push_back(std::move(result));
}

// Tests in lock-step end for all when one process cannot go on.
void Conductor::break_step(const std::string& text) {
    if (!broken_.empty()) return;
    broken_ = text;
    send_all(MessageType::kInterrupt);
}

void Conductor::handle_message(std::uint32_t agent, Message message, const std::string& step) {
    heard_ns_[agent] = monotonic_ns();
    switch (message.type) {
        case MessageType::kAlive:
            return handle_alive(agent, message.body);
        case MessageType::kResults:
            return handle_result(message.body);
        case MessageType::kInterrupt:
            return break_step(message.body.value("text", ""));
        case MessageType::kFail:
            return handle_lost(
                agent,
                fmt::format("{}: {}", seating_.hosts[agent], message.body.value("text", "failed")),
                step);
        default:
            break;
    }
    inbox_[agent].push_back(std::move(message));
    take_answer(agent, step);
}

// An agent may be a step ahead of the others, so that what it says waits.
void Conductor::take_answer(std::uint32_t agent, const std::string& step) {
    if (inbox_[agent].empty() || answers_[agent]) return;
    Message message = std::move(inbox_[agent].front());
    inbox_[agent].pop_front();
    if (message.type != awaited_) {
        throw Failure(fmt::format("{}: expected '{}', found '{}' while {}", seating_.hosts[agent],
                                  name_of(awaited_), name_of(message.type), step));
    }
    answers_[agent] = std::move(message.body);
}

void Conductor::handle(BackendEvent event, const std::string& step) {
    if (event.kind == BackendEvent::Kind::kMessage) {
        return handle_message(event.agent, std::move(event.message), step);
    }
    if (event.kind == BackendEvent::Kind::kLost) return handle_lost(event.agent, event.text, step);
    over_ = true;
    errors_.push_back(fmt::format("{} while {}", event.text, step));
    alive_.assign(alive_.size(), false);
}

void Conductor::lose_silent(const std::string& text, const std::string& step) {
    for (std::uint32_t i = 0; i < alive_.size(); ++i) {
        if (alive_[i] && !answers_[i]) handle_lost(i, seating_.hosts[i] + ": " + text, step);
    }
}

void Conductor::check_silence(const std::string& step) {
    std::int64_t now = monotonic_ns();
    for (std::uint32_t i = 0; i < alive_.size(); ++i) {
        if (alive_[i] && now - heard_ns_[i] > kSilenceNs) {
            handle_lost(i,
                        fmt::format("{} has been silent for {} s", seating_.hosts[i],
                                    kSilenceNs / 1'000'000'000),
                        step);
        }
    }
}

void Conductor::pump(const std::string& step) {
    std::optional<BackendEvent> event = backend_.wait(kTickMs, signals_.descriptor());
    if (event) handle(std::move(*event), step);
    if (signals_.take()) handle_interrupt(step);
    if (running_ && timeline_.poll(monotonic_ns())) progress_.set_note(timeline_.text());
    progress_.tick();
}

// Throws with all that has gone wrong; other hosts may be about to say the same.
void Conductor::fail_with_others(const std::string& step) {
    std::int64_t until = monotonic_ns() + kMoreErrorsNs;
    while (monotonic_ns() < until && !over_) {
        std::optional<BackendEvent> event = backend_.wait(kTickMs, -1);
        if (event && event->kind != BackendEvent::Kind::kMessage) handle(std::move(*event), step);
        if (event && event->message.type == MessageType::kFail) handle(std::move(*event), step);
    }
    throw Failure(fmt::format("{}", fmt::join(errors_, "\n")));
}

// That message of every agent that lives. Before traffic any loss ends the run.
Conductor::Bodies Conductor::gather(MessageType type, const std::string& step, double seconds) {
    answers_.assign(alive_.size(), std::nullopt);
    awaited_ = type;
    std::int64_t deadline = monotonic_ns() + static_cast<std::int64_t>(seconds * 1e9);
    for (std::uint32_t i = 0; i < alive_.size(); ++i) take_answer(i, step);
    for (std::int64_t& heard : heard_ns_) heard = std::max(heard, monotonic_ns() - kSilenceNs / 2);
    for (;;) {
        bool complete = true;
        std::string missing;
        for (std::uint32_t i = 0; i < alive_.size(); ++i) {
            if (!alive_[i] || answers_[i]) continue;
            complete = false;
            missing += (missing.empty() ? "" : ", ") + seating_.hosts[i];
        }
        if (!running_ && !errors_.empty()) fail_with_others(step);
        if (complete) break;
        if (seconds > 0 && monotonic_ns() > deadline) {
            std::string text = fmt::format("no answer within {} s", seconds);
            if (!running_) throw Failure(fmt::format("{} while {}: {}", text, step, missing));
            lose_silent(text, step);
        }
        pump(step);
        if (type != MessageType::kHello) check_silence(step);
    }
    Bodies out;
    for (std::optional<Json>& answer : answers_) out.push_back(answer.value_or(Json()));
    return out;
}

void Conductor::check_builds(const Bodies& hellos) {
    std::string own = build_id();
    for (std::size_t i = 0; i < hellos.size(); ++i) {
        std::string theirs = hellos[i].value("build", ""), version = hellos[i].value("version", "");
        if (theirs == own) continue;
        errors_.push_back(
            fmt::format("{} has another build of rdma_perftest (version {}, {}); this "
                        "one is version {}, {}",
                        seating_.hosts[i], version, theirs, RDMALAB_VERSION, own));
    }
    if (!errors_.empty()) throw Failure(fmt::format("{}", fmt::join(errors_, "\n")));
}

void Conductor::launch() {
    progress_.spin("Starting agents");
    backend_.launch(seating_.hosts);
    double seconds =
        kLaunchSeconds + kLaunchSecondsPerHost * static_cast<double>(seating_.hosts.size());
    check_builds(gather(MessageType::kHello, "starting the agents", seconds));
}

void Conductor::prepare() {
    progress_.spin("Preparing RDMA resources");
    for (std::uint32_t i = 0; i < seating_.jobs.size(); ++i) {
        Json job = to_json(seating_.jobs[i]);
        auto networks = scenario_.output.find("mpi_tcp_network_interfaces");
        if (networks != scenario_.output.end()) job["interfaces"] = networks->second;
        backend_.send(i, MessageType::kTest, job);
    }
    gather(MessageType::kAccept, "starting worker processes", kPrepareSeconds);
    for (const Json& body :
         gather(MessageType::kConnected, "connecting queue pairs", kPrepareSeconds)) {
        for (const Json& each : body.at("failed")) errors_.push_back(each.get<std::string>());
    }
    if (errors_.empty()) return;
    // The other end of a failure only repeats it.
    std::stable_partition(errors_.begin(), errors_.end(), [](const std::string& text) {
        return text.find("the other end: ") == std::string::npos;
    });
    constexpr std::size_t kShownMax = 20;
    if (errors_.size() > kShownMax) errors_.resize(kShownMax);
    throw Failure(fmt::format("{}", fmt::join(errors_, "\n")));
}

std::int64_t Conductor::start_delay() const {
    std::size_t most = 0;
    for (const AgentJob& job : seating_.jobs) most += job.workers.size();
    return std::min(kStartDelayNs + static_cast<std::int64_t>(most) * kStartDelayPerWorkerNs,
                    kStartDelayMaxNs);
}

// 0 when some test ends by counts.
double Conductor::round_seconds() const {
    double longest = 0;
    for (const ScenarioTest& test : scenario_.tests) {
        if (test.plan.total_seconds() == 0) return 0;
        longest = std::max(longest, test.plan.total_seconds());
    }
    return longest;
}

void Conductor::run_round(std::uint32_t phase) {
    std::int64_t delay = start_delay();
    std::int64_t at = clocks_.reference_ns + (monotonic_ns() - clocks_.taken_ns) + delay;
    for (std::uint32_t i = 0; i < alive_.size(); ++i) {
        if (!alive_[i]) continue;
        backend_.send(i, MessageType::kRound,
                      {{"phase", phase}, {"at", at + clocks_.hosts[i].offset_ns}});
    }
    if (outcome_.start_time.empty()) {
        outcome_.start_time = rfc3339(wall_ns() + delay);
        timeline_.begin(monotonic_ns() + delay);
    }
    double seconds = round_seconds();
    if (seconds > 0) seconds += static_cast<double>(delay) * 1e-9 + kTrafficSlackSeconds;
    gather(MessageType::kDrained, "running traffic", seconds);
}

void Conductor::handle_result(const Json& body) {
    auto connection = body.at("connection").get<std::uint32_t>();
    if (connection >= ends_.size()) throw Failure("a result of a connection that is not ours");
    EndState& end = ends_[connection][body.at("isSource").get<bool>() ? 0 : 1];
    Result<ProcessResult> result = ProcessResult::from_json(body.at("result"));
    if (!result.ok()) throw Failure(result.error().text);
    std::string error = body.at("error").get<std::string>();
    bool fatal = body.value("fatal", false);
    if (end.error.empty() || (fatal && !end.fatal)) {
        end.error = error;
        end.fatal = fatal;
    }
    if (end.results.empty() || end.facts.empty()) end.facts = body.at("facts");
    end.results.push_back(std::move(*result));
}

void Conductor::collect() {
    progress_.spin("Finalizing");
    send_all(MessageType::kStop);
    Bodies reports = gather(MessageType::kReport, "collecting results", kPrepareSeconds);
    for (std::uint32_t i = 0; i < reports.size(); ++i) {
        if (!reports[i].is_object()) continue;
        for (const Json& each : reports[i].at("workers")) {
            WorkerTiming timing{each.at("label").get<std::string>(), i,
                                each.at("test").get<std::uint32_t>(),
                                each.at("process").get<std::uint32_t>()};
            auto started = each.value("startedNs", std::int64_t{0});
            auto stopped = each.value("stoppedNs", std::int64_t{0});
            std::int64_t offset = clocks_.hosts[i].offset_ns;
            if (started != 0) timing.started_ns = started - offset;
            if (stopped != 0) timing.stopped_ns = stopped - offset;
            outcome_.timings.push_back(std::move(timing));
        }
    }
    // Also to those that are lost: what is left of them on their hosts ends by it.
    for (std::uint32_t i = 0; i < alive_.size(); ++i) {
        backend_.send(i, MessageType::kBye, Json::object());
    }
}

// The cause before its consequences: a process that died explains why its peers had no answer.
std::string Conductor::error_of(const std::vector<EndState>& ends) const {
    for (const EndState& end : ends) {
        if (end.fatal) return end.error;
    }
    for (const EndState& end : ends) {
        if (!end.error.empty()) return end.error;
    }
    return "";
}

void Conductor::assemble_connection(std::uint32_t test, const ScenarioConnection& plan,
                                    std::uint32_t number) {
    const ScenarioTest& of = scenario_.tests[test];
    std::vector<EndState>& ends = ends_[number];
    std::string error = error_of(ends);
    for (int e = 0; e < 2; ++e) {
        const TestEndpoint& place = of.endpoints[e == 0 ? plan.source : plan.destination];
        bool whole = ends[static_cast<std::size_t>(e)].results.size() == of.plan.processes;
        if (error.empty() && !whole) {
            error = fmt::format("no results of {}", place.label());
            for (const std::string& text : errors_) {
                if (text.find(place.host) != std::string::npos) error = text;
            }
        }
        if (error.empty() && !broken_.empty()) error = "the lock-step was broken by " + broken_;
        std::sort(
            ends[static_cast<std::size_t>(e)].results.begin(),
            ends[static_cast<std::size_t>(e)].results.end(),
            [](const ProcessResult& a, const ProcessResult& b) { return a.process < b.process; });
    }
    bool bandwidth = of.plan.metric == Metric::kBandwidth;
    salvage(ends[0], bandwidth);
    salvage(ends[1], bandwidth && of.is_bidirectional());
    for (int back = 0; back < (of.is_bidirectional() ? 2 : 1); ++back) {
        const EndState& from = ends[back == 0 ? 0 : 1];
        const EndState& to = ends[back == 0 ? 1 : 0];
        DirectedResult out;
        out.test = test;
        out.connection = number;
        out.source = back == 0 ? plan.source : plan.destination;
        out.destination = back == 0 ? plan.destination : plan.source;
        out.phase = plan.phase;
        out.is_way_back = back != 0;
        out.error = error;
        out.source_facts = from.facts;
        out.destination_facts = to.facts;
        out.direction.source_host = of.endpoints[out.source].host;
        out.direction.source_device = of.endpoints[out.source].device;
        out.direction.destination_host = of.endpoints[out.destination].host;
        out.direction.destination_device = of.endpoints[out.destination].device;
        out.direction.requesters = from.results;
        out.direction.responders = to.results;
        outcome_.results.push_back(std::move(out));
    }
}

void Conductor::assemble() {
    std::uint32_t number = 0;
    for (std::uint32_t i = 0; i < scenario_.tests.size(); ++i) {
        for (const ScenarioConnection& each : scenario_.tests[i].connections) {
            assemble_connection(i, each, number++);
        }
    }
    outcome_.scenario = &scenario_;
    outcome_.backend = backend_.name();
    outcome_.hosts = seating_.hosts;
    outcome_.clocks = clocks_.hosts;
    outcome_.errors = errors_;
    outcome_.timeline = timeline_.points();
}

ScenarioOutcome Conductor::run() {
    try {
        launch();
        prepare();
        clocks_ = backend_.compare_clocks();
        running_ = true;
        double rounds = static_cast<double>(seating_.phase_ids.size());
        progress_.bar("Running traffic", round_seconds() * rounds);
        for (std::uint32_t phase : seating_.phase_ids) {
            if (over_ || outcome_.interrupted) break;
            run_round(phase);
        }
        collect();
    } catch (const Json::exception& error) {
        throw Failure(fmt::format("what an agent said cannot be read: {}", error.what()));
    }
    assemble();
    return std::move(outcome_);
}

}  // namespace

ScenarioOutcome conduct(const Scenario& scenario, Backend& backend, Signals& signals,
                        Progress& progress) {
    return Conductor(scenario, backend, signals, progress).run();
}

}  // namespace rdmalab::perftest
