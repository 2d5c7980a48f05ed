#include "perftest/serve.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "perftest/client.h"
#include "perftest/device.h"
#include "perftest/failure.h"
#include "perftest/parameters.h"
#include "perftest/protocol.h"
#include "perftest/report_json.h"
#include "perftest/report_text.h"
#include "perftest/worker.h"

namespace rdmalab::perftest {

namespace {

// What the client would like this side to use; our own flag wins, and a contradiction is refused.
struct Wish {
    const char* flag;          // of the server
    const char* key;           // in the client's message
    const char* explicit_key;  // whether the client's user named it
    const char* client_flag;
};
constexpr Wish kWishes[] = {
    {"device", "serverDevice", "serverDeviceFlag", "--server_device"},
    {"mem_type", "serverMemory", "serverMemoryFlag", "--server_mem_type"},
    {"cores", "serverCores", "serverCoresFlag", "--server_cores"},
};

void take_wishes(const Request& own, const Json& test, Request& merged) {
    for (const Wish& wish : kWishes) {
        std::string text = test.value(wish.key, "");
        auto given = own.find(wish.flag);
        if (given == own.end()) {
            if (!text.empty()) merged[wish.flag] = text;
            continue;
        }
        if (test.value(wish.explicit_key, false) && given->second != text) {
            throw Failure(
                fmt::format("refused: this server was started with --{} {}, the client "
                            "asks for {} {}",
                            wish.flag, given->second, wish.client_flag, text));
        }
    }
}

std::string joined(const std::vector<std::string>& errors) {
    std::string out;
    for (const std::string& error : errors) out += (out.empty() ? "" : "; ") + error;
    return out;
}

Planned planned_or_throw(const Request& request) {
    auto planned = make_plan(request);
    if (auto* refusal = std::get_if<Refusal>(&planned)) {
        throw Failure("refused: " + joined(refusal->errors));
    }
    return std::get<Planned>(planned);
}

// Every test parameter that the server was started with must be what the client asks for.
void compare(const Request& own, const Json& scenario) {
    Request alone;
    for (const auto& [name, text] : own) {
        const Parameter* parameter = find_parameter(name);
        if (parameter != nullptr && parameter->scope == Scope::kTest) alone[name] = text;
    }
    if (alone.empty()) return;
    Json ours = scenario_json(planned_or_throw(alone).plan);
    for (const auto& [name, text] : alone) {
        std::string key = find_parameter(name)->json;
        Json mine = ours.value(key, Json()), theirs = scenario.value(key, Json());
        if (mine == theirs) continue;
        throw Failure(
            fmt::format("refused: this server was started with --{} {}, the client asks "
                        "for {}",
                        name, text, theirs.is_null() ? "the default" : to_text(theirs)));
    }
}

class Service {
public:
    Service(Channel channel, const std::string& name, const Request& request)
        : request_(request), name_(name) {
        greet(channel, name, true);
        session_.emplace(std::move(channel), name, signals_);
    }
    void run();

private:
    void run_test();
    void accept();
    void connect_queue_pairs(Crew& crew);
    void start(Crew& crew);
    void wait_for_stop(Crew& crew);
    void finish(Crew& crew);

    const Request& request_;
    std::string name_;
    Signals signals_;
    std::optional<Session> session_;
    Planned planned_;
    Placement placement_;
};

void Service::accept() {
    Json test = session_->receive(MessageType::kTest, "waiting for its test", kStepSeconds);
    planned_ = merge(request_, test);
    std::vector<int> taken;
    if (test.value("bootId", "") == boot_id()) taken = test.value("cores", taken);
    std::string device = device_to_use(planned_.side.device);
    placement_ = place(device, planned_.side, planned_.plan.processes, taken);
    session_->send(MessageType::kAccept, {{"host", host_name()}, {"device", device}});
}

void Service::connect_queue_pairs(Crew& crew) {
    Json theirs =
        session_->receive(MessageType::kResources, "waiting for its RDMA resources", kStepSeconds);
    const Json& processes = theirs.at("processes");
    if (processes.size() != crew.size()) {
        throw Failure(
            fmt::format("the client has {} processes, expected {}", processes.size(), crew.size()));
    }
    for (std::size_t i = 0; i < crew.size(); ++i) {
        crew.send(i, MessageType::kResources, processes[i]);
    }
    std::vector<Json> ours =
        session_->gather(MessageType::kResources, "connecting queue pairs", kStepSeconds);
    session_->send(MessageType::kResources, {{"processes", ours}});
}

void Service::start(Crew& crew) {
    for (;;) {
        // Either question may come; the inbox keeps their order.
        Message message = session_->receive_any("waiting for the start", kStepSeconds);
        if (message.type == MessageType::kClock) {
            session_->send(MessageType::kClock, {{"ns", monotonic_ns()}});
            continue;
        }
        if (message.type != MessageType::kStart) {
            throw Failure(
                fmt::format("{}: expected 'start', found '{}'", name_, name_of(message.type)));
        }
        session_->set_running(true);
        crew.send_all(MessageType::kStart, {{"at", message.body.at("at").get<std::int64_t>()}});
        session_->send(MessageType::kStarted);
        return;
    }
}

void Service::wait_for_stop(Crew& crew) {
    const Plan& plan = planned_.plan;
    if (plan.bidirectional) {
        std::vector<Json> drained = session_->gather(MessageType::kDrained, "running traffic", 0);
        Json posted = Json::array();
        for (const Json& each : drained) posted.push_back(each.at("posted"));
        session_->send(MessageType::kDrained, {{"posted", posted}});
    }
    Json stop = session_->receive(MessageType::kStop, "running traffic", 0);
    for (std::uint32_t i = 0; i < crew.size(); ++i) {
        crew.board().line(i).expected =
            stop.at("posted").at(i).get<std::uint64_t>() * plan.receives_per_iteration();
    }
    crew.board().head().stopped = 1;
}

void Service::finish(Crew& crew) {
    std::vector<Json> results =
        session_->gather(MessageType::kResults, "collecting results", kStepSeconds);
    session_->send(MessageType::kResults, {{"processes", results}});
    Json report = session_->receive(MessageType::kReport, "waiting for its report", kStepSeconds);
    crew.finish();
    session_->set_crew(nullptr);
    session_->send(MessageType::kBye);
    if (request_.contains("lease")) return;
    Result<Outcome> outcome = read_outcome(planned_.plan, report);
    if (!outcome.ok()) throw Failure(name_ + ": " + outcome.error().text);
    show(*outcome, output_of(request_), text_heading(*outcome) + text_report(*outcome));
}

void Service::run_test() {
    accept();
    Crew crew(planned_.plan.processes, pair_work(planned_.plan, planned_.side, true, placement_));
    session_->set_crew(&crew);
    connect_queue_pairs(crew);
    start(crew);
    wait_for_stop(crew);
    finish(crew);
}

void Service::run() {
    try {
        run_test();
    } catch (const Json::exception& error) {
        session_->fail("what the client said cannot be read");
        throw Failure(fmt::format("{}: what it said cannot be read: {}", name_, error.what()));
    } catch (const Failure& failure) {
        session_->fail(failure.what());
        throw;
    }
}

}  // namespace

Planned merge(const Request& own, const Json& test) {
    const Json& scenario = test.at("scenario");
    Result<Request> merged = request_of(scenario);
    if (!merged.ok()) throw Failure("refused: " + merged.error().text);
    compare(own, scenario);
    for (const auto& [name, text] : own) {
        const Parameter* parameter = find_parameter(name);
        if (parameter->scope == Scope::kSide) (*merged)[name] = text;
    }
    take_wishes(own, test, *merged);
    return planned_or_throw(*merged);
}

void serve_client(Channel channel, const std::string& name, const Request& request) {
    Service(std::move(channel), name, request).run();
}

}  // namespace rdmalab::perftest
