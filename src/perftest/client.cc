#include "perftest/client.h"

#include <errno.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdio>

#include "perftest/device.h"
#include "perftest/failure.h"
#include "perftest/launch.h"
#include "perftest/live.h"
#include "perftest/progress.h"
#include "perftest/protocol.h"
#include "perftest/quantity.h"
#include "perftest/report_json.h"
#include "perftest/report_text.h"
#include "perftest/worker.h"

namespace rdmalab::perftest {

namespace {

constexpr double kConnectSeconds = 5;
// A server that was started by hand may be a little late.
constexpr double kServerPatienceSeconds = 5;
constexpr std::int64_t kStartDelayNs = 50'000'000;
constexpr int kClockQuestions = 8;

std::string text_in(const Request& request, const char* name) {
    auto found = request.find(name);
    return found == request.end() ? "" : found->second;
}

class Client {
public:
    Client(const std::string& program, const Request& request, const Planned& planned)
        : request_(request),
          plan_(planned.plan),
          side_(planned.side),
          output_(output_of(request)),
          progress_(progress_style(output_.non_interactive, output_.json_on_stdout)) {
        launch_ = launch_options(text_in(request, "launch_server"));
        launch_.host = text_in(request, "server");
        launch_.user = text_in(request, "server_username");
        launch_.exe = text_in(request, "server_exe");
        launch_.program = program;
        launch_.port = static_cast<std::uint16_t>(
            request.contains("port") ? std::stoul(request.at("port")) : kControlPort);
    }

    int run();

private:
    Channel reach_server();
    Result<Fd> connect_patiently();
    void agree();
    void connect_queue_pairs(Crew& crew);
    std::int64_t clock_offset();
    void start(Crew& crew);
    void wait_for_traffic(Crew& crew);
    void collect(Crew& crew);
    void add_direction(bool from_client, std::vector<ProcessResult> ours,
                       std::vector<ProcessResult> theirs);
    int finish();

    const Request& request_;
    Plan plan_;
    Side side_;
    Output output_;
    LaunchOptions launch_;
    Signals signals_;
    Progress progress_;
    std::optional<LaunchedServer> launched_;
    std::optional<Session> session_;
    Placement placement_;
    std::string server_host_;
    Outcome outcome_;
    std::optional<Live> live_;
};

Result<Fd> Client::connect_patiently() {
    bool patient = launch_.kind == LaunchKind::kDisabled;
    std::int64_t deadline =
        monotonic_ns() + static_cast<std::int64_t>(kServerPatienceSeconds * 1e9);
    for (;;) {
        Result<Fd> fd = connect_to(launch_.host, launch_.port, kConnectSeconds);
        bool again =
            patient && !fd.ok() && fd.error().code == ECONNREFUSED && monotonic_ns() < deadline;
        if (!again) return fd;
        timespec pause{.tv_sec = 0, .tv_nsec = 100'000'000};
        nanosleep(&pause, nullptr);
    }
}

Channel Client::reach_server() {
    Result<Fd> fd = connect_patiently();
    bool launches = launch_.kind != LaunchKind::kDisabled;
    if (!fd.ok() && launches && fd.error().code == ECONNREFUSED) {
        launched_.emplace(LaunchedServer::start(launch_));
        fd = connect_to(launch_.host, launch_.port, kConnectSeconds);
    }
    if (!fd.ok()) throw Failure(fd.error().text);
    return Channel(std::move(*fd));
}

// The server hears what is asked of it and says with what it takes part.
void Client::agree() {
    auto wish = [&](const char* own, const std::string& otherwise) {
        std::string text = text_in(request_, own);
        return text.empty() ? otherwise : text;
    };
    std::string device = device_to_use(side_.device);
    placement_ = place(device, side_, plan_.processes, {});
    session_->send(MessageType::kTest,
                   {{"scenario", scenario_json(plan_)},
                    {"host", host_name()},
                    {"bootId", boot_id()},
                    {"cores", pinned_cores(placement_)},
                    {"serverDevice", wish("server_device", side_.device)},
                    {"serverDeviceFlag", request_.contains("server_device")},
                    {"serverMemory", wish("server_mem_type", name_of(side_.memory))},
                    {"serverMemoryFlag", request_.contains("server_mem_type")},
                    {"serverCores", wish("server_cores", text_in(request_, "cores"))},
                    {"serverCoresFlag", request_.contains("server_cores")}});
    Json accepted =
        session_->receive(MessageType::kAccept, "waiting for it to accept the test", kStepSeconds);
    server_host_ = accepted.value("host", launch_.host);
}

void Client::connect_queue_pairs(Crew& crew) {
    std::vector<Json> ours =
        session_->gather(MessageType::kResources, "making RDMA resources", kStepSeconds);
    session_->send(MessageType::kResources, {{"processes", ours}});
    Json theirs =
        session_->receive(MessageType::kResources, "waiting for its RDMA resources", kStepSeconds);
    const Json& processes = theirs.at("processes");
    if (processes.size() != crew.size()) {
        throw Failure(
            fmt::format("the server has {} processes, expected {}", processes.size(), crew.size()));
    }
    for (std::size_t i = 0; i < crew.size(); ++i) {
        crew.send(i, MessageType::kResources, processes[i]);
    }
    std::vector<Json> connected =
        session_->gather(MessageType::kConnected, "connecting queue pairs", kStepSeconds);
    outcome_.client = end_facts(host_name(), ours);
    outcome_.client["mtu"] = connected.front().at("mtu");
    outcome_.server = end_facts(server_host_, processes.get<std::vector<Json>>());
}

// The server's clock minus ours, from the quickest of a few questions.
std::int64_t Client::clock_offset() {
    std::int64_t best_trip = INT64_MAX, offset = 0;
    for (int i = 0; i < kClockQuestions; ++i) {
        std::int64_t asked = monotonic_ns();
        session_->send(MessageType::kClock);
        Json answer = session_->receive(MessageType::kClock, "comparing clocks", kStepSeconds);
        std::int64_t now = monotonic_ns();
        if (now - asked >= best_trip) continue;
        best_trip = now - asked;
        offset = answer.at("ns").get<std::int64_t>() - (asked + now) / 2;
    }
    return offset;
}

void Client::start(Crew& crew) {
    std::int64_t offset = clock_offset();
    std::int64_t at = monotonic_ns() + kStartDelayNs;
    session_->set_running(true);
    session_->send(MessageType::kStart, {{"at", at + offset}});
    crew.send_all(MessageType::kStart, {{"at", at}});
    outcome_.start_time = rfc3339(wall_ns() + kStartDelayNs);
    session_->receive(MessageType::kStarted, "starting traffic", kStepSeconds);
}

void Client::wait_for_traffic(Crew& crew) {
    progress_.bar("Running traffic", plan_.total_seconds());
    live_.emplace(plan_, crew, *session_, output_.json_on_stdout);
    session_->set_tick([&] {
        live_->tick();
        progress_.tick();
    });
    std::vector<Json> drained = session_->gather(MessageType::kDrained, "running traffic", 0);
    Json posted = Json::array();
    for (const Json& each : drained) posted.push_back(each.at("posted"));
    Json theirs;
    if (plan_.bidirectional) {
        theirs = session_->receive(MessageType::kDrained, "waiting for the end of its traffic", 0);
        for (std::uint32_t i = 0; i < crew.size(); ++i) {
            crew.board().line(i).expected =
                theirs.at("posted").at(i).get<std::uint64_t>() * plan_.receives_per_iteration();
        }
    }
    crew.board().head().stopped = 1;
    session_->send(MessageType::kStop, {{"posted", posted}});
    session_->set_tick([&] { progress_.tick(); });
}

void Client::add_direction(bool from_client, std::vector<ProcessResult> ours,
                           std::vector<ProcessResult> theirs) {
    Direction direction;
    const Json& source = from_client ? outcome_.client : outcome_.server;
    const Json& destination = from_client ? outcome_.server : outcome_.client;
    direction.source_host = source.value("host", "?");
    direction.source_device = source.value("device", "?");
    direction.destination_host = destination.value("host", "?");
    direction.destination_device = destination.value("device", "?");
    direction.requesters = from_client ? std::move(ours) : std::move(theirs);
    direction.responders = from_client ? std::move(theirs) : std::move(ours);
    if (live_) direction.intervals = live_->summary(from_client);
    outcome_.directions.push_back(std::move(direction));
}

void Client::collect(Crew& crew) {
    progress_.spin("Finalizing");
    std::vector<ProcessResult> ours = read_process_results(
        session_->gather(MessageType::kResults, "collecting results", kStepSeconds));
    Json body = session_->receive(MessageType::kResults, "waiting for its results", kStepSeconds);
    std::vector<ProcessResult> theirs =
        read_process_results(body.at("processes").get<std::vector<Json>>());
    outcome_.plan = plan_;
    for (const ProcessResult& result : ours) outcome_.interrupted |= result.interrupted;
    add_direction(true, ours, theirs);
    if (plan_.bidirectional) add_direction(false, ours, theirs);
    session_->send(MessageType::kReport, outcome_message(outcome_));
    session_->set_running(false);
    crew.finish();
    session_->set_crew(nullptr);
}

int Client::finish() {
    try {
        session_->receive(MessageType::kBye, "waiting for its farewell", kStepSeconds);
    } catch (const Failure& failure) {
        // The results are complete; only the server's own report may be missing.
        fmt::print(stderr, "warning: {}\n", failure.what());
    }
    progress_.finish();
    bool shown = show(outcome_, output_, text_heading(outcome_) + text_report(outcome_));
    return shown ? outcome_.exit_code() : kExitError;
}

int Client::run() {
    device_to_use(side_.device);
    progress_.spin("Preparing RDMA resources");
    Channel channel = reach_server();
    std::string name = "server " + launch_.host;
    greet(channel, name, false);
    session_.emplace(std::move(channel), name, signals_);
    if (launched_) session_->set_output(launched_->output());
    session_->set_tick([&] { progress_.tick(); });
    std::optional<Crew> crew;
    try {
        agree();
        crew.emplace(plan_.processes, pair_work(plan_, side_, false, placement_));
        session_->set_crew(&*crew);
        connect_queue_pairs(*crew);
        start(*crew);
        wait_for_traffic(*crew);
        collect(*crew);
    } catch (const Json::exception& error) {
        session_->fail("what the server said cannot be read");
        throw Failure(fmt::format("{}: what it said cannot be read: {}", name, error.what()));
    } catch (const Failure& failure) {
        session_->fail(failure.what());
        throw;
    }
    return finish();
}

}  // namespace

Output output_of(const Request& request) {
    Output output;
    output.non_interactive = request.contains("non_interactive");
    output.json_on_stdout = request.contains("print_json_results");
    output.json_file = request.contains("json_output");
    output.json_path = text_in(request, "json_output");
    return output;
}

namespace {

bool write_json(const Json& report, const Output& output) {
    if (output.json_on_stdout) {
        fmt::print("{}\n", to_text(report, 2));
        fflush(stdout);
    }
    if (!output.json_file) return true;
    std::string path = output.json_path.empty() ? default_report_path() : output.json_path;
    Status written = write_report(path, report);
    if (!written.ok()) {
        fmt::print(stderr, "rdma_perftest: --json_output: {}\n", written.error().text);
        return false;
    }
    if (!output.json_on_stdout) fmt::print("JSON report: {}\n", path);
    return true;
}

}  // namespace

bool show(const Outcome& outcome, const Output& output, const std::string& text) {
    if (!output.json_on_stdout) {
        fmt::print("{}", text);
        fflush(stdout);
    }
    return write_json(report_json(outcome), output);
}

void show_failure(const Json& scenario, const Output& output, const std::string& error) {
    write_json(error_json(scenario, error), output);
}

int run_client(const std::string& program, const Request& request, const Planned& planned) {
    return Client(program, request, planned).run();
}

}  // namespace rdmalab::perftest
