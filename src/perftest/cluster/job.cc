#include "perftest/cluster/job.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "perftest/failure.h"

namespace rdmalab::perftest {

namespace {

std::string listed(const std::vector<int>& cores) {
    return fmt::format("{}", fmt::join(cores, ","));
}

// A side as the flags that lead to it.
Request side_request(const Side& side, const std::optional<int>& core) {
    Request out = {{"device", side.device}};
    if (side.ib_port) out["ib_port"] = std::to_string(*side.ib_port);
    if (side.gid_index) out["gid_index"] = std::to_string(*side.gid_index);
    if (core) out["cores"] = std::to_string(*core);
    if (!side.excluded_cores.empty()) out["exclude_cores"] = listed(side.excluded_cores);
    out["mem_type"] = name_of(side.memory);
    if (side.cuda_device) out["cuda_device_id"] = std::to_string(*side.cuda_device);
    if (!side.cuda_lib_path.empty()) out["cuda_lib_path"] = side.cuda_lib_path;
    if (side.ph) out["ph"] = std::to_string(*side.ph);
    if (side.tph_core) out["tph_core_id"] = std::to_string(*side.tph_core);
    if (!side.tph_mem.empty()) out["tph_mem"] = side.tph_mem;
    return out;
}

Json words_json(const Request& request) {
    Json out = Json::object();
    for (const auto& [name, text] : request) out[name] = text;
    return out;
}

Request words_of(const Json& json) {
    Request out;
    for (const auto& [name, text] : json.items()) out[name] = text.get<std::string>();
    return out;
}

TestJob test_job(const ScenarioTest& test) {
    TestJob out;
    Json json = scenario_json(test.plan);
    Result<Request> request = request_of(json);
    if (!request.ok()) throw Failure("a plan that cannot be sent: " + request.error().text);
    out.request = std::move(*request);
    // A worker is one process of one endpoint, with at most one core.
    out.request.erase("num_processes");
    if (test.iteration_sync) {
        out.request["iteration_sync"] = "true";
        out.request["traffic_pattern"] = name_of(Pattern::kAllToAll);
    }
    out.has_sizes = test.sizes.has_value();
    if (out.has_sizes) out.request.erase("msg_size");
    out.iteration_sync = test.iteration_sync;
    out.processes = test.plan.processes;
    return out;
}

// Gives every process of every endpoint that has a connection a place among the workers of its
// host.
class Seater {
public:
    explicit Seater(const Scenario& scenario) : scenario_(scenario) {
        out_.hosts = scenario.hosts();
        for (std::uint32_t i = 0; i < out_.hosts.size(); ++i) agent_of_host_[out_.hosts[i]] = i;
        out_.jobs.resize(out_.hosts.size());
        for (std::size_t i = 0; i < out_.jobs.size(); ++i) {
            out_.jobs[i].host = out_.hosts[i];
            for (const ScenarioTest& test : scenario.tests) {
                out_.jobs[i].tests.push_back(test_job(test));
            }
        }
    }

    Seating seat() {
        std::uint32_t connection = 0;
        std::set<std::uint32_t> phases;
        for (std::uint32_t i = 0; i < scenario_.tests.size(); ++i) {
            first_worker_.assign(scenario_.tests[i].endpoints.size(), kNone);
            for (const ScenarioConnection& each : scenario_.tests[i].connections) {
                add(i, each, connection++);
                phases.insert(each.phase);
            }
        }
        out_.phase_ids.assign(phases.begin(), phases.end());
        out_.phases = static_cast<std::uint32_t>(phases.size());
        return std::move(out_);
    }

private:
    static constexpr std::uint32_t kNone = UINT32_MAX;

    void add(std::uint32_t test, const ScenarioConnection& each, std::uint32_t connection) {
        const ScenarioTest& plan = scenario_.tests[test];
        std::uint32_t from = seat_endpoint(test, each.source);
        std::uint32_t to = seat_endpoint(test, each.destination);
        std::uint32_t from_agent = agent_of_host_.at(plan.endpoints[each.source].host);
        std::uint32_t to_agent = agent_of_host_.at(plan.endpoints[each.destination].host);
        for (std::uint32_t p = 0; p < plan.plan.processes; ++p) {
            LinkJob link{connection, true, to_agent, to + p, each.phase, plan.bytes_of(each)};
            out_.jobs[from_agent].workers[from + p].links.push_back(link);
            link.is_source = false;
            link.peer_agent = from_agent;
            link.peer_worker = from + p;
            out_.jobs[to_agent].workers[to + p].links.push_back(link);
        }
    }

    // The worker of the endpoint's first process; the others follow.
    std::uint32_t seat_endpoint(std::uint32_t test, std::uint32_t endpoint) {
        if (first_worker_[endpoint] != kNone) return first_worker_[endpoint];
        const ScenarioTest& plan = scenario_.tests[test];
        const TestEndpoint& place = plan.endpoints[endpoint];
        AgentJob& job = out_.jobs[agent_of_host_.at(place.host)];
        first_worker_[endpoint] = static_cast<std::uint32_t>(job.workers.size());
        Side side = plan.side_of(place);
        for (std::uint32_t p = 0; p < plan.plan.processes; ++p) {
            std::optional<int> core;
            if (!side.cores.empty()) core = side.cores[p];
            job.workers.push_back({test, endpoint, p, place.label(), side_request(side, core), {}});
        }
        return first_worker_[endpoint];
    }

    const Scenario& scenario_;
    Seating out_;
    std::map<std::string, std::uint32_t> agent_of_host_;
    std::vector<std::uint32_t> first_worker_;
};

}  // namespace

Seating seat(const Scenario& scenario) { return Seater(scenario).seat(); }

Json to_json(const AgentJob& job) {
    Json tests = Json::array(), workers = Json::array();
    for (const TestJob& test : job.tests) {
        tests.push_back({{"request", words_json(test.request)},
                         {"hasSizes", test.has_sizes},
                         {"iterationSync", test.iteration_sync},
                         {"processes", test.processes}});
    }
    for (const WorkerJob& worker : job.workers) {
        Json links = Json::array();
        for (const LinkJob& link : worker.links) {
            links.push_back({link.connection, link.is_source, link.peer_agent, link.peer_worker,
                             link.phase, link.bytes});
        }
        workers.push_back({{"test", worker.test},
                           {"endpoint", worker.endpoint},
                           {"process", worker.process},
                           {"label", worker.label},
                           {"side", words_json(worker.side)},
                           {"links", std::move(links)}});
    }
    return {{"host", job.host}, {"tests", std::move(tests)}, {"workers", std::move(workers)}};
}

Result<AgentJob> read_job(const Json& json) {
    AgentJob out;
    try {
        out.host = json.at("host").get<std::string>();
        for (const Json& test : json.at("tests")) {
            out.tests.push_back({words_of(test.at("request")), test.at("hasSizes").get<bool>(),
                                 test.at("iterationSync").get<bool>(),
                                 test.at("processes").get<std::uint32_t>()});
        }
        for (const Json& each : json.at("workers")) {
            WorkerJob worker{each.at("test").get<std::uint32_t>(),
                             each.at("endpoint").get<std::uint32_t>(),
                             each.at("process").get<std::uint32_t>(),
                             each.at("label").get<std::string>(),
                             words_of(each.at("side")),
                             {}};
            if (worker.test >= out.tests.size()) {
                return Error{EPROTO, fmt::format("a worker of test {} of {}", worker.test,
                                                 out.tests.size())};
            }
            for (const Json& link : each.at("links")) {
                worker.links.push_back(
                    {link.at(0).get<std::uint32_t>(), link.at(1).get<bool>(),
                     link.at(2).get<std::uint32_t>(), link.at(3).get<std::uint32_t>(),
                     link.at(4).get<std::uint32_t>(), link.at(5).get<std::uint64_t>()});
            }
            out.workers.push_back(std::move(worker));
        }
    } catch (const Json::exception& error) {
        return Error{EPROTO, std::string("a job that cannot be read: ") + error.what()};
    }
    return out;
}

Planned planned_of(const AgentJob& job, const WorkerJob& worker, const LinkJob& link) {
    const TestJob& test = job.tests[worker.test];
    Request request = test.request;
    for (const auto& [name, text] : worker.side) request[name] = text;
    if (test.has_sizes) request["msg_size"] = std::to_string(link.bytes);
    auto planned = make_plan(request);
    if (auto* refusal = std::get_if<Refusal>(&planned)) {
        throw Failure(
            fmt::format("{}: refused: {}", worker.label, fmt::join(refusal->errors, "; ")));
    }
    return std::get<Planned>(planned);
}

}  // namespace rdmalab::perftest
