#include "perftest/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "perftest/fields.h"
#include "perftest/parameters.h"
#include "perftest/quantity.h"
#include "perftest/rules.h"

namespace rdmalab::perftest {

namespace {

constexpr std::uint64_t kMessageMax = 1ull << 31;  // IBTA: a message has at most 2^31 bytes
constexpr double kSecondsMax = 366.0 * 24 * 3600;
constexpr std::size_t kOperationsMax = 64;

constexpr std::array<const char*, 3> kTransports = {"RC", "UC", "UD"};
constexpr std::array<const char*, 7> kVerbs = {"write",    "read",      "send",     "write_imm",
                                               "send_imm", "atomic_fa", "atomic_cs"};
constexpr std::array<const char*, 7> kMemories = {
    "host",        "nullmr",      "device", "cuda_auto_detect", "cuda_data_direct",
    "cuda_dmabuf", "cuda_peermem"};

template <std::size_t N>
std::optional<std::size_t> index_of(const std::array<const char*, N>& words,
                                    const std::string& word) {
    for (std::size_t i = 0; i < N; ++i) {
        if (word == words[i]) return i;
    }
    return std::nullopt;
}

// Reads values out of a request; an error names the flag.
class Reader {
public:
    Reader(const Request& request, std::vector<std::string>& errors)
        : request_(request), errors_(errors) {}

    bool has(const char* name) const { return request_.contains(name); }
    std::string text(const char* name, std::string otherwise = "") const {
        auto found = request_.find(name);
        return found == request_.end() ? otherwise : found->second;
    }
    std::uint64_t count(const char* name, std::uint64_t otherwise, std::uint64_t min,
                        std::uint64_t max) {
        return number<std::uint64_t>(name, otherwise, parse_count(text(name), min, max));
    }
    std::uint64_t size(const char* name, std::uint64_t otherwise, std::uint64_t min,
                       std::uint64_t max) {
        return number<std::uint64_t>(name, otherwise, parse_size(text(name), min, max));
    }
    double decimal(const char* name, double otherwise, double min, double max) {
        return number<double>(name, otherwise, parse_decimal(text(name), min, max));
    }
    template <class T>
    std::optional<T> optional_count(const char* name, std::uint64_t max) {
        if (!has(name)) return std::nullopt;
        return static_cast<T>(count(name, 0, 0, max));
    }
    bool flag(const char* name) const { return has(name); }
    std::vector<int> cores(const char* name) {
        return has(name) ? number<std::vector<int>>(name, {}, parse_cores(text(name)))
                         : std::vector<int>();
    }
    // One of the words that the table of parameters lists for it.
    std::string word(const char* name, const char* otherwise) {
        std::string found = text(name, otherwise);
        std::string words = find_parameter(name)->value;
        if (("|" + words + "|").find("|" + found + "|") == std::string::npos ||
            found.find('|') != std::string::npos || found.empty()) {
            std::replace(words.begin(), words.end(), '|', ' ');
            complain(name, fmt::format("expected one of: {}; found '{}'", words, found));
            return otherwise;
        }
        return found;
    }
    void complain(const char* name, const std::string& text) {
        errors_.push_back(fmt::format("--{}: {}", name, text));
    }

private:
    template <class T>
    T number(const char* name, T otherwise, Result<T> parsed) {
        if (!has(name)) return otherwise;
        if (parsed.ok()) return *parsed;
        complain(name, parsed.error().text);
        return otherwise;
    }

    const Request& request_;
    std::vector<std::string>& errors_;
};

std::optional<Operation> read_operation(std::string_view item) {
    std::size_t colon = item.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    std::optional<std::size_t> verb = index_of(kVerbs, std::string(item.substr(0, colon)));
    Result<std::uint64_t> size = parse_size(item.substr(colon + 1), 0, kMessageMax);
    if (!verb || !size.ok()) return std::nullopt;
    return Operation{static_cast<Verb>(*verb), *size};
}

void read_operations(Reader& reader, Plan& plan) {
    std::string text = reader.text("operations");
    std::string_view rest = text;
    for (bool more = true; more;) {
        std::size_t comma = std::min(rest.find(','), rest.size());
        std::optional<Operation> operation = read_operation(rest.substr(0, comma));
        more = comma < rest.size();
        rest = more ? rest.substr(comma + 1) : std::string_view();
        if (!operation || plan.operations.size() == kOperationsMax) {
            reader.complain("operations",
                            fmt::format("expected at most {} of VERB:SIZE, separated by commas, "
                                        "like write:65536,send:4k; found '{}'",
                                        kOperationsMax, text));
            break;
        }
        plan.operations.push_back(*operation);
    }
    plan.is_mix = true;
    if (plan.operations.empty()) plan.operations.push_back({});
}

std::uint64_t default_size(const Plan& plan, Verb verb) {
    if (is_atomic(verb)) return 8;
    // Fits into one packet on Ethernet with the usual 1500 bytes.
    return plan.transport == Transport::kUd ? 1024 : 65536;
}

void read_traffic(Reader& reader, Plan& plan) {
    plan.transport = static_cast<Transport>(
        index_of(kTransports, reader.word("connection_type", "RC")).value_or(0));
    auto verb = static_cast<Verb>(index_of(kVerbs, reader.word("verb", "write")).value_or(0));
    if (reader.has("operations")) {
        read_operations(reader, plan);
    } else {
        plan.operations = {
            {verb, reader.size("msg_size", default_size(plan, verb), 0, kMessageMax)}};
    }
    plan.metric = reader.word("metric", "bw") == "lat" ? Metric::kLatency : Metric::kBandwidth;
    plan.latency_mode = reader.word("lat_mode", "full_round_trip") == "one_way"
                            ? LatencyMode::kOneWay
                            : LatencyMode::kFullRoundTrip;
    plan.bidirectional = reader.flag("bidirectional");
    plan.validate = reader.flag("validate");
    plan.lockstep = reader.flag("iteration_sync");
    plan.qp_histogram = reader.flag("qp_histogram");
}

void read_window(Reader& reader, Plan& plan) {
    bool by_iterations = reader.has("iterations");
    plan.infinite = reader.flag("run_infinitely");
    plan.iterations = reader.count("iterations", 0, 1, 1ull << 53);
    plan.duration_s =
        by_iterations || plan.infinite ? 0 : reader.decimal("duration", 10, 0.001, kSecondsMax);
    plan.warmup_iterations = reader.count("warmup_iterations", 0, 0, 1ull << 53);
    double warmup = reader.has("warmup_iterations") ? 0 : 2;
    plan.warmup_s = reader.decimal("warmup_time", warmup, 0, kSecondsMax);
    bool margin = plan.processes > 1 && plan.metric == Metric::kBandwidth;
    plan.end_margin_s = reader.decimal("end_margin", margin ? 2 : 0, 0, kSecondsMax);
    plan.bw_threshold_gbps = reader.decimal("bw_threshold", 0, 0, 1e9);
    plan.lat_threshold_us = reader.decimal("lat_threshold", 0, 0, 1e12);
    plan.report_interval_s = reader.decimal("report_interval", 0, 0, kSecondsMax);
}

// Buffers of a validated test hold every message in flight.
std::uint32_t validated_depth(std::uint64_t size, std::uint32_t depth) {
    constexpr std::uint64_t kBytesMax = 64ull << 20;
    std::uint64_t fitting = kBytesMax / std::max<std::uint64_t>(size, 1);
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(fitting, 2, depth));
}

void read_lists(Reader& reader, Plan& plan) {
    auto group = static_cast<std::uint32_t>(plan.operations.size());
    std::uint32_t depth = std::max(plan.tx_depth / group, 1u);
    bool small = plan.bytes_per_iteration() / group <= 8192;
    std::uint32_t list = small ? std::clamp(depth / 4, 1u, 16u) : 1;
    if (plan.metric == Metric::kLatency || plan.rate_limit_gbps > 0) list = 1;
    plan.post_list = static_cast<std::uint32_t>(reader.count("post_list", list, 1, 65536));
    std::uint64_t moderation = plan.post_list;
    if (plan.is_ping_pong()) moderation = std::clamp(depth / 4, 1u, 32u);
    moderation = reader.count("cq_mod", moderation, 1, 65536);
    std::uint64_t lists = (moderation + plan.post_list - 1) / plan.post_list;
    std::uint64_t block = std::min<std::uint64_t>(lists * plan.post_list, depth);
    plan.block = static_cast<std::uint32_t>(std::max<std::uint64_t>(block / plan.post_list, 1) *
                                            plan.post_list);
}

void read_queues(Reader& reader, Plan& plan) {
    plan.qps = static_cast<std::uint32_t>(reader.count("qps", 1, 1, 16384));
    std::uint32_t tx = 128, rx = 512;
    if (plan.validate) {
        tx = validated_depth(plan.operations.front().size, tx);
        rx = std::max(tx, validated_depth(plan.operations.front().size, rx));
    }
    tx = std::max(tx, static_cast<std::uint32_t>(plan.operations.size()));
    plan.tx_depth = static_cast<std::uint32_t>(reader.count("tx_depth", tx, 1, 65536));
    if (plan.validate) rx = std::max(rx, plan.tx_depth);
    plan.rx_depth = static_cast<std::uint32_t>(reader.count("rx_depth", rx, 1, 65536));
    plan.inline_size = reader.optional_count<std::uint32_t>("inline_size", 65536);
    plan.rate_limit_gbps = reader.decimal("rate_limit", 0, 0, 1e6);
    read_lists(reader, plan);
}

void read_connection(Reader& reader, Plan& plan) {
    plan.mtu =
        static_cast<std::uint32_t>(reader.has("mtu") ? std::stoul(reader.word("mtu", "256")) : 0);
    if (reader.has("gid_family"))
        plan.gid_family = reader.word("gid_family", "ipv4") == "ipv4" ? 4 : 6;
    plan.service_level = static_cast<std::uint8_t>(reader.count("service_level", 0, 0, 15));
    plan.traffic_class = static_cast<std::uint8_t>(reader.count("traffic_class", 0, 0, 255));
    plan.qp_timeout = static_cast<std::uint8_t>(reader.count("qp_timeout", 14, 0, 31));
    plan.retry_count = static_cast<std::uint8_t>(reader.count("retry_count", 7, 0, 7));
    plan.start_psn = reader.optional_count<std::uint32_t>("start_psn", (1u << 24) - 1);
    plan.use_ece = reader.flag("use_ece");
}

void read_memory(Reader& reader, Side& side) {
    if (reader.has("cuda")) {
        side.memory = Memory::kCudaAutoDetect;
        side.cuda_device = reader.optional_count<int>("cuda", 255);
    } else {
        side.memory = memory_named(reader.word("mem_type", "host")).value_or(Memory::kHost);
        side.cuda_device = reader.optional_count<int>("cuda_device_id", 255);
    }
    side.cuda_lib_path = reader.text("cuda_lib_path");
    side.ph = reader.optional_count<int>("ph", 3);
    side.tph_core = reader.optional_count<int>("tph_core_id", 8191);
    if (reader.has("tph_mem")) side.tph_mem = reader.word("tph_mem", "vm");
}

void read_side(Reader& reader, Side& side) {
    side.device = reader.text("device");
    if (reader.has("device") && (side.device.empty() || side.device.size() > 63)) {
        reader.complain(
            "device", fmt::format("expected the name of an RDMA device, found '{}'", side.device));
    }
    if (reader.has("ib_port")) {
        side.ib_port = static_cast<std::uint8_t>(reader.count("ib_port", 1, 1, 255));
    }
    side.gid_index = reader.optional_count<std::uint8_t>("gid_index", 255);
    side.cores = reader.cores("cores");
    side.excluded_cores = reader.cores("exclude_cores");
    read_memory(reader, side);
}

// Values for the other side, wrong here already.
void check_server_values(Reader& reader) {
    reader.count("port", 1, 1, 65535);
    reader.cores("server_cores");
    if (reader.has("server_mem_type") && !memory_named(reader.text("server_mem_type"))) {
        reader.complain("server_mem_type",
                        fmt::format("expected a memory type as of --mem_type, found '{}'",
                                    reader.text("server_mem_type")));
    }
    for (const char* name : {"server", "server_exe", "server_username", "server_device"}) {
        if (reader.has(name) && reader.text(name).empty()) {
            reader.complain(name, "expected a name, found ''");
        }
    }
}

}  // namespace

const char* name_of(Transport transport) {
    return kTransports[static_cast<std::size_t>(transport)];
}
const char* name_of(Verb verb) { return kVerbs[static_cast<std::size_t>(verb)]; }
const char* name_of(Memory memory) { return kMemories[static_cast<std::size_t>(memory)]; }

std::optional<Memory> memory_named(const std::string& word) {
    if (word == "cuda") return Memory::kCudaAutoDetect;
    std::optional<std::size_t> index = index_of(kMemories, word);
    if (!index) return std::nullopt;
    return static_cast<Memory>(*index);
}

std::uint64_t Plan::bytes_per_iteration() const {
    std::uint64_t sum = 0;
    for (const Operation& operation : operations) sum += operation.size;
    return sum;
}

bool Plan::sends_receives() const { return receives_per_iteration() > 0; }

std::uint64_t Plan::receives_per_iteration() const {
    return static_cast<std::uint64_t>(
        std::count_if(operations.begin(), operations.end(),
                      [](const Operation& operation) { return takes_receive(operation.verb); }));
}

std::uint64_t Plan::largest_receive() const {
    std::uint64_t largest = 0;
    for (const Operation& operation : operations) {
        if (takes_receive(operation.verb)) largest = std::max(largest, operation.size);
    }
    return largest;
}

bool Plan::is_ping_pong() const {
    return metric == Metric::kLatency && latency_mode == LatencyMode::kFullRoundTrip && !is_mix &&
           !is_read_like(operations.front().verb);
}

const char* Plan::latency_definition() const {
    if (is_ping_pong()) return "half_round_trip";
    return latency_mode == LatencyMode::kOneWay ? "local_completion" : "completion_time";
}

double Plan::total_seconds() const {
    if (infinite || iterations > 0 || warmup_iterations > 0) return 0;
    return warmup_s + duration_s + end_margin_s;
}

std::variant<Planned, Refusal> make_plan(const Request& request) {
    Planned planned;
    Refusal refusal;
    Reader reader(request, refusal.errors);
    for (const auto& [name, text] : request) {
        if (find_parameter(name) == nullptr) {
            refusal.errors.push_back(fmt::format("--{}: there is no such parameter", name));
        }
    }
    read_side(reader, planned.side);
    read_traffic(reader, planned.plan);
    std::uint64_t processes = std::max<std::uint64_t>(planned.side.cores.size(), 1);
    planned.plan.processes =
        static_cast<std::uint32_t>(reader.count("num_processes", processes, 1, 1024));
    read_window(reader, planned.plan);
    read_queues(reader, planned.plan);
    read_connection(reader, planned.plan);
    reader.word("rdma_driver", "ibv");
    reader.word("engine", "cpu");
    check_server_values(reader);
    check_rules(request, planned, refusal.errors);
    if (!refusal.errors.empty()) return refusal;
    return planned;
}

namespace {

void put_window(const Plan& plan, Json& out) {
    if (plan.infinite) {
        out["runInfinitely"] = true;
    } else if (plan.iterations > 0) {
        out["iterations"] = plan.iterations;
    } else {
        out["duration"] = plan.duration_s;
    }
    if (plan.warmup_iterations > 0) {
        out["warmupIterations"] = plan.warmup_iterations;
    } else {
        out["warmupTime"] = plan.warmup_s;
    }
    if (plan.metric == Metric::kBandwidth) {
        out["endMargin"] = plan.end_margin_s;
        out["bwThreshold"] = plan.bw_threshold_gbps;
        out["reportInterval"] = plan.report_interval_s;
    } else {
        out["latencyMode"] =
            plan.latency_mode == LatencyMode::kOneWay ? "one_way" : "full_round_trip";
        out["latThreshold"] = plan.lat_threshold_us;
    }
}

void put_connection(const Plan& plan, Json& out) {
    if (plan.mtu > 0) out["mtu"] = plan.mtu;
    if (plan.gid_family) out["gidFamily"] = *plan.gid_family == 4 ? "ipv4" : "ipv6";
    out["serviceLevel"] = plan.service_level;
    out["trafficClass"] = plan.traffic_class;
    out["qpTimeOut"] = plan.qp_timeout;
    out["retryCount"] = plan.retry_count;
    if (plan.start_psn) out["startPsn"] = *plan.start_psn;
    out["useEce"] = plan.use_ece;
    out["rdmaDriver"] = "ibv";
    out["engine"] = "cpu";
}

}  // namespace

Json scenario_json(const Plan& plan) {
    Json out;
    out["connectionType"] = name_of(plan.transport);
    if (plan.is_mix) {
        std::string mix;
        for (const Operation& operation : plan.operations) {
            mix += fmt::format("{}{}:{}", mix.empty() ? "" : ",", name_of(operation.verb),
                               operation.size);
        }
        out["operations"] = mix;
    } else {
        out["verb"] = name_of(plan.operations.front().verb);
        out["msgSize"] = plan.operations.front().size;
    }
    out["metric"] = plan.metric == Metric::kBandwidth ? "bw" : "lat";
    out["trafficDirection"] = plan.bidirectional ? "BIDIR" : "UNIDIR";
    out["dataValidation"] = plan.validate;
    put_window(plan, out);
    out["numProcesses"] = plan.processes;
    out["qps"] = plan.qps;
    out["txDepth"] = plan.tx_depth;
    out["rxDepth"] = plan.rx_depth;
    out["postList"] = plan.post_list;
    out["cqModeration"] = plan.block;
    if (plan.inline_size) out["inlineSize"] = *plan.inline_size;
    out["rateLimit"] = plan.rate_limit_gbps;
    put_connection(plan, out);
    out["printQpHistogram"] = plan.qp_histogram;
    return out;
}

Result<Request> request_of(const Json& scenario) {
    if (!scenario.is_object()) {
        return Error{EINVAL, "expected an object with the fields of a test, found " +
                                 std::string(scenario.type_name())};
    }
    Request request;
    for (const auto& [key, value] : scenario.items()) {
        const Parameter* parameter = find_json_field(key);
        if (parameter == nullptr) {
            std::vector<std::string> known;
            for (const Parameter& each : parameters()) known.emplace_back(each.json);
            std::string near = nearest(key, known);
            return Error{EINVAL, fmt::format("unknown field '{}'{}", key,
                                             near.empty() ? "" : "; did you mean '" + near + "'?")};
        }
        Result<std::optional<std::string>> text = field_text(*parameter, value);
        if (!text.ok()) return Error{EINVAL, key + ": " + text.error().text};
        if (text->has_value()) request[parameter->name] = **text;
    }
    return request;
}

}  // namespace rdmalab::perftest
