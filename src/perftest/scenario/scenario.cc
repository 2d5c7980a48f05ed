#include "perftest/scenario/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "perftest/parameters.h"
#include "perftest/quantity.h"
#include "perftest/scenario/ranges.h"

namespace rdmalab::perftest {

namespace {

constexpr double kEndMarginS = 2;
constexpr char kDefaultDatatype[] = "float32";
// Stands in the words for a list of connections, so that rules know that there are several hosts.
constexpr char kListed[] = "CONNECTIONS";

// Plans one test; says what is wrong in the words of its source.
class TestPlanner {
public:
    TestPlanner(const ScenarioWords& scenario, const TestWords& words, Refusal& refusal,
                std::vector<std::string>& notes)
        : scenario_(scenario), words_(words), refusal_(refusal), notes_(notes) {}

    ScenarioTest plan(std::size_t number);

private:
    void read_wiring();
    void read_kind();
    void add_node(const NodeWords& node);
    std::vector<int> expand_gpus(const NodeWords& node, std::size_t devices);
    std::vector<std::string> expand(const NodeWords& node, const char* name);
    std::uint32_t side_for(const NodeWords& node);
    void read_listed();
    void connect();
    void read_sizes();
    void note_hub();
    Request test_request() const;

    void complain(const std::string& path, const std::string& flag, const std::string& text);
    void take_errors(const std::string& path, const std::vector<std::string>& errors);
    bool has(const char* name) const { return request_.contains(name); }

    const ScenarioWords& scenario_;
    const TestWords& words_;
    Refusal& refusal_;
    std::vector<std::string>& notes_;
    Request request_;
    ScenarioTest test_;
    std::map<Request, std::uint32_t> side_of_words_;
    std::set<std::string> said_;
    std::vector<ScenarioConnection> listed_;
};

// `flag` with or without its value in front of the text, as a flag or as a path into the JSON.
void TestPlanner::complain(const std::string& path, const std::string& flag,
                           const std::string& text) {
    if (!scenario_.is_json) {
        std::string name = flag == "host" ? "server" : flag;
        refusal_.errors.push_back(name.empty() ? text : fmt::format("--{}: {}", name, text));
        return;
    }
    std::string field = flag == "host" ? "hostName" : in_json_words("--" + flag);
    if (flag.empty()) field = "";
    std::string where = path + (path.empty() || field.empty() ? "" : ".") + field;
    std::string said = in_json_words(text);
    refusal_.errors.push_back(where.empty() ? said : where + ": " + said);
}

// Errors of make_plan begin with the flag that they are about, or name flags in the text.
void TestPlanner::take_errors(const std::string& path, const std::vector<std::string>& errors) {
    for (const std::string& error : errors) {
        // The same for every node of a test, when it is the test that is wrong.
        if (!said_.insert(error).second) continue;
        std::size_t end = error.find(": ");
        std::string flag =
            error.rfind("--", 0) == 0 && end != std::string::npos ? error.substr(2, end - 2) : "";
        const Parameter* parameter = find_parameter(flag);
        if (parameter == nullptr) {
            complain(path, "", error);
        } else {
            complain(path, flag, error.substr(end + 2));
        }
    }
}

void TestPlanner::read_wiring() {
    Wiring& wiring = test_.wiring;
    if (!words_.connections.empty()) {
        wiring.pattern = Pattern::kConnections;
        if (has("traffic_pattern")) {
            complain(words_.path, "traffic_pattern", "with connections: the list is the pattern");
        }
        request_["traffic_pattern"] = kListed;
    } else {
        std::string word = has("traffic_pattern") ? request_["traffic_pattern"] : "";
        std::optional<Pattern> pattern = pattern_named(word);
        if (!pattern) {
            complain(words_.path, "traffic_pattern",
                     fmt::format("expected one of ONE_TO_ONE, ONE_TO_MANY, MANY_TO_ONE, "
                                 "ALL_TO_ALL, BISECTION, RING (o2o, o2m, m2o, a2a, b, r); found "
                                 "'{}'",
                                 word));
        }
        wiring.pattern = pattern.value_or(Pattern::kOneToOne);
        request_["traffic_pattern"] = name_of(wiring.pattern);
    }
    if (has("traffic_partition")) {
        std::optional<Partition> partition = partition_named(request_["traffic_partition"]);
        if (!partition) {
            complain(words_.path, "traffic_partition",
                     fmt::format("expected RAILED, LOCAL or REMOTE; found '{}'",
                                 request_["traffic_partition"]));
        }
        wiring.partition = partition.value_or(Partition::kNone);
    }
    if (has("bidirectional")) wiring.direction = TrafficDirection::kBidir;
    if (has("dual_unidir")) wiring.direction = TrafficDirection::kDualUnidir;
}

// Lock-step, rounds, sizes from a file; and the defaults that go with them.
void TestPlanner::read_kind() {
    test_.wiring.peer_shifting = has("peer_shifting");
    test_.iteration_sync = has("iteration_sync");
    bool warmup_given = has("warmup_time") || has("warmup_iterations");
    if (test_.iteration_sync && !warmup_given) request_["warmup_time"] = "0";
    bool margin = !(has("metric") && request_["metric"] == "lat") && !test_.iteration_sync;
    if (!has("end_margin") && margin) request_["end_margin"] = fmt::format("{}", kEndMarginS);
    if (!has("ptini_file")) return;
    test_.ptini_file = request_["ptini_file"];
    test_.ptini_datatype = has("ptini_datatype") ? request_["ptini_datatype"] : kDefaultDatatype;
    if (!datatype_bytes(test_.ptini_datatype)) {
        std::string near = nearest(test_.ptini_datatype, datatype_names());
        complain(words_.path, "ptini_datatype",
                 fmt::format("expected one of {}; found '{}'{}", fmt::join(datatype_names(), " "),
                             test_.ptini_datatype,
                             near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
}

std::vector<std::string> TestPlanner::expand(const NodeWords& node, const char* name) {
    auto found = node.words.find(name);
    if (found == node.words.end()) {
        complain(node.path, name,
                 fmt::format("expected {} (ranges like {} allowed), found nothing",
                             std::string_view(name) == "host" ? "the hosts" : "the RDMA devices",
                             std::string_view(name) == "host" ? "node[01-16]" : "mlx5_[0-3]"));
        return {};
    }
    Result<std::vector<std::string>> names = expand_ranges(found->second);
    if (names.ok()) return *names;
    complain(node.path, name, fmt::format("{}, in '{}'", names.error().text, found->second));
    return {};
}

// One GPU per device, by position; a single one is for all; none: -1.
std::vector<int> TestPlanner::expand_gpus(const NodeWords& node, std::size_t devices) {
    std::vector<int> none(devices, -1);
    bool own = node.words.contains("cuda_device_id");
    if (!own && !has("cuda_device_id")) return none;
    std::string text = own ? node.words.at("cuda_device_id") : request_["cuda_device_id"];
    Result<std::vector<std::string>> names = expand_ranges(text);
    std::vector<int> out;
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
        Result<std::uint64_t> number = parse_count(name, 0, 255);
        if (number.ok()) out.push_back(static_cast<int>(*number));
    }
    if (!names.ok() || out.size() != names->size()) {
        complain(node.path, "cuda_device_id",
                 fmt::format("expected GPU numbers like 0 or [0-3], found '{}'", text));
        return none;
    }
    if (out.size() == 1) out.assign(devices, out.front());
    if (out.size() == devices) return out;
    complain(node.path, "cuda_device_id",
             fmt::format("{} GPUs for {} devices; they are paired by position, so give as many of "
                         "both, or one GPU for all",
                         out.size(), devices));
    return none;
}

Request TestPlanner::test_request() const {
    Request out = request_;
    out.erase("cuda_device_id");  // per endpoint
    return out;
}

// The side of a node; makes the plan, too, which must be the same for all.
std::uint32_t TestPlanner::side_for(const NodeWords& node) {
    Request own = node.words;
    own.erase("host");
    own.erase("device");
    auto [entry, is_new] =
        side_of_words_.try_emplace(own, static_cast<std::uint32_t>(side_of_words_.size()));
    if (!is_new) return entry->second;
    Request request = test_request();
    for (const auto& [name, text] : own) {
        if (name == "cuda_device_id") continue;
        request[name] = text;
    }
    bool has_gpu = own.contains("cuda_device_id") || has("cuda_device_id");
    if (has_gpu) request["cuda_device_id"] = "0";
    auto planned = make_plan(request);
    test_.sides.emplace_back();
    if (auto* refusal = std::get_if<Refusal>(&planned)) {
        take_errors(side_of_words_.size() == 1 ? words_.path : node.path, refusal->errors);
        return entry->second;
    }
    const auto& good = std::get<Planned>(planned);
    test_.sides.back() = good.side;
    if (entry->second == 0) test_.plan = good.plan;
    if (test_.plan.processes != good.plan.processes) {
        complain(node.path, "cores",
                 fmt::format("{} processes here, {} at the first node; every endpoint of a test "
                             "has as many",
                             good.plan.processes, test_.plan.processes));
    }
    return entry->second;
}

void TestPlanner::add_node(const NodeWords& node) {
    std::vector<std::string> hosts = expand(node, "host"), devices = expand(node, "device");
    std::vector<int> gpus = expand_gpus(node, devices.size());
    std::uint32_t side = side_for(node);
    if (test_.endpoints.size() + hosts.size() * devices.size() > kEndpointsMax) {
        complain(node.path, "host",
                 fmt::format("{} hosts with {} devices each make more than {} endpoints",
                             hosts.size(), devices.size(), kEndpointsMax));
        return;
    }
    for (const std::string& host : hosts) {
        for (std::size_t i = 0; i < devices.size(); ++i) {
            std::optional<int> gpu = gpus[i] < 0 ? std::nullopt : std::optional<int>(gpus[i]);
            test_.endpoints.push_back({host, devices[i], gpu, side});
        }
    }
}

// Each entry of the list: its sources and destinations, by position.
void TestPlanner::read_listed() {
    std::map<std::string, std::uint32_t> index;
    auto add = [&](const NodeWords& node) {
        std::size_t before = test_.endpoints.size();
        add_node(node);
        std::vector<std::uint32_t> out;
        std::vector<TestEndpoint> added(
            test_.endpoints.begin() + static_cast<std::ptrdiff_t>(before), test_.endpoints.end());
        test_.endpoints.resize(before);
        for (const TestEndpoint& each : added) {
            auto [entry, is_new] =
                index.try_emplace(each.label(), static_cast<std::uint32_t>(test_.endpoints.size()));
            if (is_new) test_.endpoints.push_back(each);
            out.push_back(entry->second);
        }
        return out;
    };
    for (const auto& [source, destination] : words_.connections) {
        std::vector<std::uint32_t> from = add(source), to = add(destination);
        if (from.size() != to.size()) {
            complain(destination.path, "",
                     fmt::format("{} endpoints for {} sources; they are paired by position",
                                 to.size(), from.size()));
            continue;
        }
        for (std::size_t i = 0; i < from.size(); ++i) listed_.push_back({from[i], to[i], 0});
    }
}

void TestPlanner::connect() {
    Result<std::vector<ScenarioConnection>> made =
        test_.wiring.pattern == Pattern::kConnections
            ? rewire(test_.wiring, test_.endpoints, listed_)
            : wire(test_.wiring, test_.endpoints);
    if (made.ok()) {
        test_.connections = std::move(*made);
    } else {
        complain(words_.path, "traffic_pattern", made.error().text);
    }
}

// Sizes by pair; a pair of size 0 has no connection.
void TestPlanner::read_sizes() {
    std::optional<std::uint32_t> element = datatype_bytes(test_.ptini_datatype);
    if (test_.ptini_file.empty() || !element) return;
    auto ranks = static_cast<std::uint32_t>(test_.endpoints.size());
    Result<SizeMatrix> sizes = read_ptini(test_.ptini_file, ranks, *element);
    if (!sizes.ok()) {
        complain(words_.path, "ptini_file", sizes.error().text);
        return;
    }
    test_.sizes = std::move(*sizes);
    std::erase_if(test_.connections, [&](const ScenarioConnection& each) {
        return test_.sizes->at(each.source, each.destination) == 0;
    });
    if (test_.connections.empty() && refusal_.errors.empty()) {
        complain(words_.path, "ptini_file", "no connection is left: every count is 0");
    }
    if (test_.ptini_datatype == "float128") {
        notes_.push_back(
            "float128 has 16 bytes; ucc_perftest -d float128 moves 8 for each, so a replay of its "
            "captures differs");
    }
}

void TestPlanner::note_hub() {
    bool star =
        test_.wiring.pattern == Pattern::kOneToMany || test_.wiring.pattern == Pattern::kManyToOne;
    if (!star || test_.endpoints.empty()) return;
    const TestEndpoint& hub = test_.endpoints.front();
    auto count = std::count_if(test_.endpoints.begin(), test_.endpoints.end(),
                               [&](const TestEndpoint& each) { return each.host == hub.host; });
    if (count < 2) return;
    notes_.push_back(
        fmt::format("{}: {} alone is the hub of {}; the other {} endpoints of its host "
                    "are among the many",
                    test_.name, hub.label(), name_of(test_.wiring.pattern), count - 1));
}

ScenarioTest TestPlanner::plan(std::size_t number) {
    request_ = words_.words;
    test_.name = words_.name.empty() ? fmt::format("Test {}", number + 1) : words_.name;
    test_.prints_matrix = words_.prints_matrix;
    std::size_t before = refusal_.errors.size();
    read_wiring();
    read_kind();
    if (!words_.nodes.empty() && !words_.connections.empty()) {
        complain(words_.path, "", "testNodes and connections: give one of them");
    } else if (words_.nodes.empty() && words_.connections.empty()) {
        complain(words_.path, "", "expected testNodes (or connections), found nothing");
    }
    for (const NodeWords& node : words_.nodes) add_node(node);
    if (!words_.connections.empty()) read_listed();
    if (refusal_.errors.size() == before) {
        connect();
        read_sizes();
        note_hub();
    }
    return std::move(test_);
}

// Rules between tests.
void check_together(const Scenario& scenario, Refusal& refusal) {
    auto count = [&](auto predicate) {
        return static_cast<std::size_t>(
            std::count_if(scenario.tests.begin(), scenario.tests.end(), predicate));
    };
    std::size_t all = scenario.tests.size();
    std::size_t synced = count([](const ScenarioTest& test) { return test.iteration_sync; });
    if (synced != 0 && synced != all) {
        refusal.errors.push_back(
            fmt::format("tests: {} of {} with iterationSync; all tests of a scenario must be with "
                        "it, or all without",
                        synced, all));
    }
    std::size_t shifted = count([](const ScenarioTest& test) { return test.wiring.peer_shifting; });
    if (shifted != 0 && shifted != all) {
        refusal.errors.push_back(
            fmt::format("tests: {} of {} with peerShifting; rounds one after another cannot run "
                        "beside tests without rounds",
                        shifted, all));
    }
    if (scenario.connections() > kConnectionsMax) {
        refusal.errors.push_back(
            fmt::format("tests: {} connections in all, the most allowed are {}",
                        scenario.connections(), kConnectionsMax));
    }
}

std::vector<std::string> with_source(const std::string& source, std::vector<std::string> errors) {
    for (std::string& error : errors) {
        if (!source.empty()) error = source + ": " + error;
    }
    return errors;
}

}  // namespace

Side ScenarioTest::side_of(const TestEndpoint& endpoint) const {
    Side side = sides[endpoint.node];
    side.device = endpoint.device;
    side.cuda_device = endpoint.gpu;
    return side;
}

std::uint64_t ScenarioTest::bytes_of(const ScenarioConnection& connection) const {
    return sizes ? sizes->at(connection.source, connection.destination)
                 : plan.bytes_per_iteration();
}

Plan ScenarioTest::plan_of(const ScenarioConnection& connection) const {
    Plan out = plan;
    if (sizes) out.operations.front().size = bytes_of(connection);
    return out;
}

std::uint32_t ScenarioTest::rounds() const {
    std::uint32_t rounds = 0, last = UINT32_MAX;
    for (const ScenarioConnection& each : connections) {
        if (each.phase != last) ++rounds;
        last = each.phase;
    }
    return wiring.peer_shifting ? rounds : 1;
}

std::vector<std::string> Scenario::hosts() const {
    std::vector<std::string> out;
    std::set<std::string> seen;
    for (const ScenarioTest& test : tests) {
        for (const TestEndpoint& endpoint : test.endpoints) {
            if (seen.insert(endpoint.host).second) out.push_back(endpoint.host);
        }
    }
    return out;
}

std::size_t Scenario::connections() const {
    std::size_t sum = 0;
    for (const ScenarioTest& test : tests) sum += test.connections.size();
    return sum;
}

std::variant<Scenario, Refusal> plan_scenario(const ScenarioWords& words) {
    Scenario scenario;
    Refusal refusal;
    scenario.name = words.name;
    scenario.output = words.output;
    scenario.notes = words.notes;
    refusal.errors = words.errors;
    for (std::size_t i = 0; i < words.tests.size(); ++i) {
        TestPlanner planner(words, words.tests[i], refusal, scenario.notes);
        scenario.tests.push_back(planner.plan(i));
    }
    check_together(scenario, refusal);
    if (!refusal.errors.empty()) return Refusal{with_source(words.source, refusal.errors)};
    return scenario;
}

namespace {

void put_side(const Side& side, Json& node) {
    if (side.cuda_device) node["cudaDeviceId"] = *side.cuda_device;
    if (side.gid_index) node["gidIndex"] = *side.gid_index;
    if (side.ib_port) node["ibPort"] = *side.ib_port;
    if (!side.cores.empty()) node["cores"] = side.cores;
    if (!side.excluded_cores.empty()) node["excludeCores"] = side.excluded_cores;
    if (side.memory != Memory::kHost) node["memoryType"] = name_of(side.memory);
}

Json test_json(const ScenarioTest& test) {
    Json out = {{"name", test.name}};
    Json nodes = Json::array();
    for (const TestEndpoint& endpoint : test.endpoints) {
        Json node = {{"hostName", endpoint.host}, {"deviceName", endpoint.device}};
        put_side(test.side_of(endpoint), node);
        nodes.push_back(std::move(node));
    }
    if (test.wiring.pattern == Pattern::kConnections) {
        Json list = Json::array();
        for (const ScenarioConnection& each : test.connections) {
            list.push_back(
                {{"source", nodes[each.source]}, {"destination", nodes[each.destination]}});
        }
        out["connections"] = std::move(list);
    } else {
        out["testNodes"] = std::move(nodes);
        out["trafficPattern"] = name_of(test.wiring.pattern);
    }
    if (test.wiring.partition != Partition::kNone) {
        out["trafficPartition"] = name_of(test.wiring.partition);
    }
    Json plan = scenario_json(test.plan);
    plan["trafficDirection"] = name_of(test.wiring.direction);
    if (test.sizes) plan.erase("msgSize");
    out.update(plan);
    out["iterationSync"] = test.iteration_sync;
    out["peerShifting"] = test.wiring.peer_shifting;
    if (test.sizes) {
        out["ptiniFile"] = test.ptini_file;
        out["ptiniDatatype"] = test.ptini_datatype;
    }
    out["printConnectionMatrix"] = test.prints_matrix;
    return out;
}

}  // namespace

Json scenario_json(const Scenario& scenario) {
    Json out;
    if (!scenario.name.empty()) out["name"] = scenario.name;
    out["tests"] = Json::array();
    for (const ScenarioTest& test : scenario.tests) out["tests"].push_back(test_json(test));
    return out;
}

}  // namespace rdmalab::perftest
